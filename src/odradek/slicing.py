"""Cooperative slicing: long work on the event loop in time slices, between which other work runs.

One request may have 200,000 elements, each of which costs some microseconds. Work on such a list
ends its time slice after every `ELEMENTS_PER_SLICE` elements, so a test can repeat the events
between two slices. An element may take much longer than others, for example the first append to a
log. Work on such elements also ends its slice when a clock says that `SLICE_MS` have passed. The
clock of a simulated process does not move during a callback.

Long work is a generator. It yields None at the end of each slice, or a future to wait for. Between
two slices any other request may change any state, so the work looks up the state for each element.
The order of a connection's requests does not change, because the next one starts when the work has
ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from typing import Any, TypeVar

from odradek.collector import postponed_full_collections, slice_ended
from odradek.result_tasks import run
from odradek.results import Abandoned, Result

logger = logging.getLogger(__name__)

Pause = asyncio.Future[Any] | None
"""Type of a yield of long work: None at the end of a slice, or a future to wait for."""

ELEMENTS_PER_SLICE = 100
"""Elements that are processed in one time slice, which takes up to 2 ms with cold caches."""

ELEMENTS_UNSLICED_MAX = 1_000
"""Largest number of elements of a request that is decoded, executed and encoded unsliced."""

SLICE_MS = 1.0
"""Milliseconds after which a time slice ends although few elements were processed.

A connection starts no request after them, but the last one may take a slice of its own. All of them
take less than 3 ms then.
"""

R = TypeVar("R")


async def end_slice() -> None:
    """Let the event loop run everything else that is ready."""
    slice_ended()
    await asyncio.sleep(0)


def run_to_completion(work: Generator[None, None, R]) -> R:
    """Run the generator without ending any slice."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]


async def in_slices(work: Generator[Pause, None, R], pause: Pause = None) -> R:
    """Run the generator in time slices. A cancelled coroutine closes it.

    Args:
        pause: A future to wait for before the first slice.
    """
    try:
        while True:
            if pause is not None:
                await asyncio.wait((pause,))
            try:
                pause = next(work)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            if pause is None:
                await end_slice()
    finally:
        work.close()


def sliced(work: Generator[Pause, None, Result[R]]) -> Result[R]:
    """Run the generator in time slices.

    The first slice runs immediately. When the generator returns in it, its result is returned.
    Otherwise the result is not executed before the generator has returned.
    """
    try:
        pause = next(work)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    result = run(_remaining_slices(work, pause))
    # A task that is cancelled before its first step does not close the work.
    result.on_done(lambda _: work.close())
    return result


def begin(work: Generator[Pause, None, None], name: str) -> None:
    """Run the generator in time slices. The first slice runs immediately.

    Args:
        work: The work. An exception ends it, and is logged as a defect.
        name: The work in the log line about a defect.
    """

    def whole() -> Generator[Pause, None, Result[None]]:
        yield from work
        return Result(None)

    def log_defect(done: Result[None]) -> None:
        if done.error is not None and not isinstance(done.error, Abandoned):
            logger.error("bug in %s. Report the traceback", name, exc_info=done.error)

    try:
        sliced(whole()).on_done(log_defect)
    except Exception as error:  # noqa: BLE001 - of the first slice
        log_defect(Result.failed(error))


async def _remaining_slices(work: Generator[Pause, None, Result[R]], pause: Pause) -> Result[R]:
    try:
        while True:
            if pause is not None:
                await asyncio.wait((pause,))
                pause = next(work)
            with postponed_full_collections():
                while pause is None:
                    await end_slice()
                    pause = next(work)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    finally:
        work.close()
