"""Verification of new transactions in a log (KIP-890, rule T7).

Before the first transactional batch of a producer is appended, the coordinator is asked whether the
transaction includes the partition. A guard is created before that request, and must still be valid
when the batch is appended. A marker, or the first batch of another request, invalidates it. A late
response therefore never opens a new transaction (``VerificationGuard``).

With transaction version 2 a producer begins its next transaction while the markers of the last one
are written. Such a marker carries the epoch of the next transaction, and leaves a guard of that
epoch valid (KAFKA-18654). The end of that transaction would have a higher epoch.

While a verification is open, the lowest sequence of its batches is remembered, and a higher one may
not be appended first. Otherwise a retry of the lower one would be a gap forever (KAFKA-14920).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from odradek.records.control import EndTransactionMarker

VerificationGuard = int
NO_GUARD: VerificationGuard = 0
"""A guard that opens no transaction: only an open transaction may be written to."""
NOT_VERIFIED: VerificationGuard = -1
"""A guard that opens all transactions, for ``transaction.partition.verification.enable=false``."""

_guards = count(1)


class Origin(NamedTuple):
    """The origin of a batch that is not an ordinary batch of a client (``AppendOrigin``).

    Attributes:
        coordinator: The broker wrote the batch. It may be a marker or have no sequence.
        marker: The content of a control batch.
        transaction_version: Decides how the epoch of a marker is compared.
    """

    guard: VerificationGuard = NO_GUARD
    coordinator: bool = False
    marker: EndTransactionMarker | None = None
    transaction_version: int = 1


CLIENT = Origin()


@dataclass(slots=True)
class Verification:
    """One open verification.

    Attributes:
        started_ms: The time of the first request for it.
        epoch_bump: Each transaction has its own epoch, so its sequences begin at 0.
    """

    guard: VerificationGuard
    started_ms: int
    epoch: int
    lowest_sequence: int
    epoch_bump: bool


class Verifications:
    """The open verifications of one log, by producer id. They are kept in memory only."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._open)

    def start(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        now_ms: int,
        epoch_bump: bool = False,
    ) -> VerificationGuard:
        """Return the guard for the append. It is shared by all requests of an open verification."""
        existing = self._open.get(producer_id)
        if existing is None:
            existing = Verification(next(_guards), now_ms, epoch, sequence, epoch_bump)
            self._open[producer_id] = existing
        elif epoch > existing.epoch:
            existing.epoch, existing.lowest_sequence = epoch, sequence
        elif epoch == existing.epoch and sequence < existing.lowest_sequence:
            existing.lowest_sequence = sequence
        return existing.guard

    def passes(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Return whether `guard` opens a transaction now."""
        if guard == NOT_VERIFIED:
            return True
        existing = self._open.get(producer_id)
        return existing is not None and existing.guard == guard

    def get(self, producer_id: int) -> Verification | None:
        """Return the open verification of a producer, or None."""
        return self._open.get(producer_id)

    def end(self, producer_id: int) -> None:
        """Invalidate the guard of a producer, because a batch was appended."""
        self._open.pop(producer_id, None)

    def end_transaction(self, producer_id: int, marker_epoch: int) -> None:
        """Invalidate the guard of a producer, because a marker was appended.

        The guard stays valid if it is for the transaction that follows the ended one.
        """
        existing = self._open.get(producer_id)
        if existing is not None and not (existing.epoch_bump and existing.epoch == marker_epoch):
            del self._open[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove verifications whose batches never arrived."""
        for producer_id in [
            each for each, v in self._open.items() if now_ms - v.started_ms >= expiration_ms
        ]:
            del self._open[producer_id]
