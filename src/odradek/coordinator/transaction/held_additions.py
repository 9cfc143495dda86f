"""AddPartitionsToTxn and AddOffsetsToTxn of a producer whose last transaction is being completed.

A producer begins its next transaction as soon as EndTxn has succeeded. The markers of the last one
are then still being written, mostly for some milliseconds. Kafka responds with
CONCURRENT_TRANSACTIONS, and its clients wait 20 ms before they ask again. Here such a request is
held until the state of its transactional id has changed, and decided again. After `HELD_MS` it gets
Kafka's response.

The request counts as executed, so later requests of its connection do not wait. A closed connection
drops the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from odradek.coordinator.shard_lifecycle import Transition
from odradek.coordinator.transaction.transaction_decisions import TransactionResponse
from odradek.environment.timers import Timer, Timers
from odradek.errors import ErrorCode
from odradek.results import PendingResult, Result

HELD_MS = 100
"""Milliseconds after which a held request gets CONCURRENT_TRANSACTIONS."""

HELD_MAX = 10_000
"""Maximum number of held requests. Further ones get the response at once."""

Decided = Result[TransactionResponse]


class _Held:
    """One request.

    Attributes:
        decide: Decides about the request again, and writes the record of the decision.
        result: The result of the request.
        timer: The end of `HELD_MS`.
    """

    __slots__ = ("decide", "result", "timer", "transactional_id")

    result: PendingResult[TransactionResponse]
    timer: Timer

    def __init__(self, transactional_id: str, decide: Callable[[], Decided]) -> None:
        self.transactional_id = transactional_id
        self.decide = decide


class HeldAdditions:
    """The held requests by their transactional id. Owned by the event loop."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._held: dict[str, dict[_Held, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def first_decided(self, transactional_id: str, decide: Callable[[], Decided]) -> Decided:
        """Return the result of `decide()`, or hold the request that it finds concurrent."""
        result = decide()
        if not _is_concurrent(result) or self._count >= HELD_MAX:
            return result
        held = _Held(transactional_id, decide)
        held.result = PendingResult(on_cancel=partial(self._drop, held))
        held.timer = self._timers.call_later(HELD_MS / 1000, self._expired, held)
        self._held.setdefault(transactional_id, {})[held] = None
        self._count += 1
        return held.result

    def changed(self, transactional_id: str) -> None:
        """Decide about the requests again, in the next iteration of the event loop."""
        if transactional_id in self._held:
            asyncio.get_running_loop().call_soon(self._decide_again, transactional_id)

    def deciding_again(self) -> Transition:
        """Decide about all requests again, because a shard was dropped. Yield after each id."""
        for transactional_id in tuple(self._held):
            self._decide_again(transactional_id)
            yield 1

    def _decide_again(self, transactional_id: str) -> None:
        for held in tuple(self._held.get(transactional_id, ())):
            if held not in self._held.get(transactional_id, ()):
                continue  # the response to another one has closed its connection
            result = held.decide()
            if not _is_concurrent(result):
                self._drop(held)
                held.result.follow(result)

    def _expired(self, held: _Held) -> None:
        self._drop(held)
        held.result.complete(TransactionResponse(ErrorCode.CONCURRENT_TRANSACTIONS))

    def _drop(self, held: _Held) -> None:
        held.timer.cancel()
        same = self._held[held.transactional_id]
        del same[held]
        self._count -= 1
        if not same:
            del self._held[held.transactional_id]


def _is_concurrent(result: Decided) -> bool:
    return result.completed and result.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
