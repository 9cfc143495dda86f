"""Work that is shared between threads and the event loop.

A Python loop in a thread holds the interpreter lock, so work that iterates records runs on the
event loop in bounded slices. Calls that release the lock (file reads, compression) run in threads.
`Work` describes both as a generator. It yields a callable, which is called in a thread before the
generator goes on, or None at the end of a slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor
from typing import TypeVar

R = TypeVar("R")
T = TypeVar("T")

Step = Callable[[], None] | None
Work = Generator[Step, None, R]


def offloaded(function: Callable[[], T]) -> Work[T]:
    """Call `function` in a thread. Return its value, or raise its error, in the generator."""
    values: list[T] = []
    errors: list[Exception] = []

    def call() -> None:
        try:
            values.append(function())
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    yield call
    if errors:
        raise errors.pop()
    return values[0]


class WorkRunner:
    """The runner of all pieces of work of one kind on one event loop.

    At most `jobs_max` of them are in progress, in the order of arrival, because each may hold an
    unpacked batch in memory. Runners that share `slices` run at most one slice in an iteration of
    the loop, so the delay of other connections does not grow with the number of pieces of work.

    Args:
        executor: Runs the callables.
        jobs_max: Limit of the pieces of work in progress.
        slices: Held for a slice, and for the iteration of the loop before it.
        pause: Waits between two slices of a piece of work, on the timers of the environment, so
            that the work does not occupy the whole loop.
    """

    def __init__(
        self,
        executor: Executor,
        jobs_max: int,
        slices: asyncio.Lock,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._executor = executor
        self._pause = pause
        self._jobs = asyncio.Semaphore(jobs_max)
        self._slices = slices

    async def run(self, work: Work[R]) -> R:
        """Run the work and return its value."""
        return await self.finish(work, None)

    async def finish(self, work: Work[R], step: Step) -> R:
        """Run the rest of the work after its last yield, which was `step`. Return its value."""
        loop = asyncio.get_running_loop()
        try:
            async with self._jobs:
                while True:
                    if step is not None:
                        await loop.run_in_executor(self._executor, step)
                    async with self._slices:
                        await asyncio.sleep(0)
                        try:
                            step = next(work)
                        except StopIteration as ended:
                            return ended.value  # type: ignore[no-any-return]
                    if step is None and self._pause is not None:
                        await self._pause()
        finally:
            work.close()
