"""The connection between results and asyncio: coroutines as results, results in coroutines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from odradek.results import Abandoned, PendingResult, Result

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

_tasks: set[asyncio.Task[None]] = set()
"""The running tasks. An event loop holds only weak references to its tasks."""


def run(coroutine: Coroutine[Any, Any, Result[T]]) -> Result[T]:
    """Run the coroutine as a task.

    The result follows the result that the coroutine returns. It is not executed before the
    coroutine has ended. Until then `cancel` cancels the task. A cancelled task fails with
    `Abandoned`.
    """

    async def follow() -> None:
        try:
            ended = await coroutine
        except Exception as error:  # noqa: BLE001 - raised by `get`
            result.fail(error)
        else:
            result.follow(ended)

    def end(task: asyncio.Task[None]) -> None:
        _tasks.discard(task)
        if task.cancelled():
            coroutine.close()  # it may have been cancelled before its first step
            result.fail(Abandoned())

    task = asyncio.get_running_loop().create_task(follow())
    result: PendingResult[T] = PendingResult(executed=False, on_cancel=task.cancel)
    _tasks.add(task)
    task.add_done_callback(end)
    return result


def in_task(function: Callable[P, Coroutine[Any, Any, Result[T]]]) -> Callable[P, Result[T]]:
    """Decorate a coroutine function so that it returns a result: see `run`."""

    @wraps(function)
    def start(*args: P.args, **kwargs: P.kwargs) -> Result[T]:
        return run(function(*args, **kwargs))

    return start


async def wait(result: Result[T]) -> T:
    """Return the value of `result`, or raise its error.

    If the waiting task is cancelled, the result is cancelled, too.
    """
    if not result.done:
        done = asyncio.get_running_loop().create_future()

        def wake(_: Result[T]) -> None:
            if not done.done():
                done.set_result(None)

        result.on_done(wake)
        try:
            await done
        except asyncio.CancelledError:
            result.cancel()
            raise
    return result.get()


async def wait_executed(result: Result[T]) -> None:
    """Return when `result` is executed.

    When the waiting task is cancelled, the result is cancelled, too.
    """
    if not result.executed:
        executed = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not executed.done():
                executed.set_result(None)

        result.on_executed(wake)
        try:
            await executed
        except asyncio.CancelledError:
            result.cancel()
            raise


async def shielded(work: asyncio.Future[T], name: str) -> T:
    """Await work that continues if the waiting task is cancelled.

    `asyncio.shield` alone leaves a later failure to the garbage collector, which reports it with a
    traceback at an arbitrary moment.

    Args:
        work: The work, which is running.
        name: The work in the log line about a failure that no task awaits.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(partial(_log_failure, name))
        raise


def _log_failure(name: str, work: asyncio.Future[Any]) -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        logger.warning("%s failed after its caller was cancelled: %r", name, error)
