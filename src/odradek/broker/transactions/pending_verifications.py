"""Verifications that wait for one coordinator, at most one for each transactional id. Pure.

A second verification of a transactional id means that its producer has connected again, because the
requests of one connection are executed one after the other. The rules are those of Kafka
(``AddPartitionsToTxnManager.addTxnData``):

- The new one has a higher epoch: the former producer is fenced.
- It has the same epoch: the former request has no client any longer. It fails with an error that
  every client tries again.
- It has a lower epoch: the new one is of a fenced producer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from odradek.broker.transactions.peer_queue import LIMITS, Entry, Part, PeerQueue, QueueLimits
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition

TRANSACTION_BYTES = 24
"""Bytes of a transaction in a request, without its id and its partitions."""


class Verification(Entry):
    """Partitions of one transaction to be verified, or to be added to it.

    Attributes:
        add: Whether the partitions are added (transaction.version 2).
    """

    __slots__ = ("add", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> None:
        header_bytes = TRANSACTION_BYTES + len(transactional_id.encode("utf-8", "replace"))
        super().__init__(transactional_id, partitions, header_bytes)
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.add = add

    def fail(self, code: ErrorCode) -> None:
        """Give all partitions the same code. No response changes them any longer."""
        self.is_cancelled = True
        self.codes = dict.fromkeys(self.partitions, code)


V = TypeVar("V", bound=Verification)


class PendingVerifications(Generic[V]):
    """The verifications for one coordinator. Owned by its shell.

    Args:
        limits: The limits of requests.
    """

    def __init__(self, limits: QueueLimits = LIMITS) -> None:
        self._queue: PeerQueue[V] = PeerQueue(limits)
        self._by_id: dict[str, V] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and no request is in flight."""
        return self._queue.is_idle

    def add(self, verification: V) -> V | None:
        """Add a verification. Return the one that fails because of it, which may be the same."""
        existing = self._by_id.get(verification.transactional_id)
        if existing is not None and existing.producer_epoch > verification.producer_epoch:
            verification.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
            return verification
        if not self._queue.add(verification):
            verification.fail(ErrorCode.NETWORK_EXCEPTION)
            return verification
        self._by_id[verification.transactional_id] = verification
        if existing is not None:
            fenced = existing.producer_epoch < verification.producer_epoch
            existing.fail(
                ErrorCode.INVALID_PRODUCER_EPOCH if fenced else ErrorCode.NETWORK_EXCEPTION
            )
        return existing

    def take(self) -> list[Part[V]]:
        """Return the parts of the next request: `PeerQueue.take`."""
        parts = self._queue.take()
        for entry, _ in parts:
            if entry.taken == len(entry.partitions):
                self._forget(entry)
        return parts

    def cancel(self, verification: V) -> None:
        """Drop a verification whose codes are not needed."""
        verification.is_cancelled = True
        self._forget(verification)

    def responded(
        self,
        parts: Sequence[Part[V]],
        codes: Mapping[Hashable, Mapping[TopicPartition, ErrorCode]],
        otherwise: ErrorCode,
    ) -> list[V]:
        """End a request: `PeerQueue.responded`."""
        return self._queue.responded(parts, codes, otherwise)

    def _forget(self, verification: V) -> None:
        if self._by_id.get(verification.transactional_id) is verification:
            del self._by_id[verification.transactional_id]
