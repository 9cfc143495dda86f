"""Who may begin a transaction in a log (KIP-890): only whom the coordinator has vouched for.

Before the first transactional batch of a producer is appended the coordinator is asked whether
the transaction has the partition. The guard made when the question leaves must still be there when
the batch is appended: a marker written in between, or the first batch of another request, takes it
away, so that an old answer never opens a new transaction (``VerificationGuard``). While the
question is open the lowest sequence that was seen is kept, and a higher one may not be appended
first: it would make the lower one, sent again, a gap for ever (KAFKA-14920).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from odradek.records.control import EndTransactionMarker

VerificationGuard = int
NO_GUARD: VerificationGuard = 0
"""Opens nothing: only a transaction that is open already may be written to."""
NOT_VERIFIED: VerificationGuard = -1
"""Opens everything: for ``transaction.partition.verification.enable=false``."""

_guards = count(1)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a batch comes from that is not a plain one of a client (``AppendOrigin``).

    `coordinator`: it is the broker's own, and may be a marker or have no sequence. `marker` is what
    a control batch says, `transaction_version` how its epoch is to be taken.
    """

    guard: VerificationGuard = NO_GUARD
    coordinator: bool = False
    marker: EndTransactionMarker | None = None
    transaction_version: int = 1


CLIENT = Origin()


@dataclass(slots=True)
class Verification:
    """One open question; `started_ms` is when it was first asked.

    `epoch_bump`: each transaction has its own epoch, so that its sequences begin at 0.
    """

    guard: VerificationGuard
    started_ms: int
    epoch: int
    lowest_sequence: int
    epoch_bump: bool


class Verifications:
    """The open questions of one log, by producer id. Never written down."""

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
        """The guard to append with: a new one, or that of the question that is open."""
        found = self._open.get(producer_id)
        if found is None:
            found = Verification(next(_guards), now_ms, epoch, sequence, epoch_bump)
            self._open[producer_id] = found
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, sequence
        elif epoch == found.epoch and sequence < found.lowest_sequence:
            found.lowest_sequence = sequence
        return found.guard

    def passes(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether `guard` opens a transaction now."""
        if guard == NOT_VERIFIED:
            return True
        found = self._open.get(producer_id)
        return found is not None and found.guard == guard

    def get(self, producer_id: int) -> Verification | None:
        """The open question about a producer."""
        return self._open.get(producer_id)

    def end(self, producer_id: int) -> None:
        """A batch or a marker was appended: guards given out before are worth nothing."""
        self._open.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets questions whose batches never came."""
        for producer_id in [
            each for each, v in self._open.items() if now_ms - v.started_ms >= expiration_ms
        ]:
            del self._open[producer_id]
