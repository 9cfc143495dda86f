"""Calls of coordinators that return no results yet: a value, a future, or a coroutine of these."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from odradek.result_tasks import run
from odradek.results import Abandoned, PendingResult, Result


def as_result(reply: Any) -> Result[Any]:
    """Return the result that `reply` stands for."""
    if isinstance(reply, Result):
        return reply
    if asyncio.isfuture(reply):
        return result_of_future(reply)
    if asyncio.iscoroutine(reply):
        return run(_ended(reply))
    return Result(reply)


def result_of_future(future: asyncio.Future[Any], *, shared: bool = False) -> Result[Any]:
    """Return an executed result with the value of the future. A shared one is not cancelled."""
    result: PendingResult[Any] = PendingResult(on_cancel=None if shared else future.cancel)

    def finish(done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            result.fail(Abandoned())
            return
        error = done.exception()
        if isinstance(error, Exception):
            result.fail(error)
        else:
            result.complete(done.result())

    future.add_done_callback(finish)
    return result


async def _ended(coroutine: Coroutine[Any, Any, Any]) -> Result[Any]:
    return as_result(await coroutine)
