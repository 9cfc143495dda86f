"""Conversion of futures to results, for the fake logs of tests."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from odradek.results import Abandoned, PendingResult, Result

T = TypeVar("T")


def of_future(future: asyncio.Future[T]) -> Result[T]:
    """Return an executed result with the value or the error of `future`.

    `cancel` cancels the future. A cancelled future fails the result with `Abandoned`.
    """
    result: PendingResult[T] = PendingResult(on_cancel=future.cancel)

    def finish(done: asyncio.Future[T]) -> None:
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
