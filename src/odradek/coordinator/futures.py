"""Futures of what follows from the result of others: an answer, from the commit of its records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def mapped(future: asyncio.Future[A], then: Callable[[A], B]) -> asyncio.Future[B]:
    """A future of `then(result)`; it fails as `future` or `then` does."""
    return mapped_done(future, lambda done: then(done.result()))


def mapped_done(
    future: asyncio.Future[A], then: Callable[[asyncio.Future[A]], B]
) -> asyncio.Future[B]:
    """A future of `then(done)`; `then` runs even if nobody waits any more. What it raises fails the
    future: a request that is never answered would hold up its whole connection.
    """
    result: asyncio.Future[B] = future.get_loop().create_future()

    def finish(done: asyncio.Future[A]) -> None:
        try:
            value = then(done)
        except asyncio.CancelledError:
            result.cancel()
        except Exception as error:
            if result.done():
                raise
            result.set_exception(error)
        else:
            if not result.done():
                result.set_result(value)

    future.add_done_callback(finish)
    return result
