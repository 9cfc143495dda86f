"""What the handlers of the transaction APIs share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from odradek.coordinator.futures import mapped
from odradek.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.coordinator.transaction.transaction_coordinator import Answer, Outcome

T = TypeVar("T")
Reply: TypeAlias = T | asyncio.Future[T] | Coroutine[Any, Any, T]


def reply(answer: Answer, respond: Callable[[Outcome], T]) -> Reply[T]:
    """`respond(outcome)`, now or as late as the answer comes."""
    if isinstance(answer, tuple):
        return respond(answer)
    if asyncio.isfuture(answer):
        return mapped(answer, respond)
    return _after(answer, respond)


async def _after(answer: Coroutine[Any, Any, Outcome], respond: Callable[[Outcome], T]) -> T:
    return respond(await answer)


def code_for(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Clients before version `fenced_from` of an API do not know PRODUCER_FENCED (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
