"""The partitions of a follower's fetch session that have news for the follower.

A follower fetches thousands of partitions with one session, and few of them change between two
fetches. The partitions report their changes, and a fetch visits only the partitions with news. Its
cost does not depend on the number of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.replication.fetch_data import FollowerTarget, WaitingFetch
from odradek.replication.partition import Partition
from odradek.replication.replication_state import NEVER_MS

if TYPE_CHECKING:
    from odradek.ids import BrokerId, Uuid


class SessionTarget(FollowerTarget, Protocol):
    """The request for one partition of a follower's fetch. `topic` is a name or a topic id.

    It is compared by identity. The session changes its fields with each request that names it.
    """

    topic: str | Uuid
    partition: int
    max_bytes: int


class FollowerNews:
    """The news of one session. It watches partitions from their first visit until `close`.

    Attributes:
        broker_epoch: The broker epoch of the follower, which cannot change in a session.
        last_fetch_ms: The monotonic time of the last fetch.
        waiting: The delayed fetch of the session, if there is one.
        unread_bytes: The bytes that were appended since the last call of `take`.
        is_interrupted: Whether a partition changed its leader or failed since then.
    """

    __slots__ = (
        "_changed",
        "_is_closed",
        "_partitions",
        "_targets",
        "broker_epoch",
        "is_interrupted",
        "last_fetch_ms",
        "replica_id",
        "unread_bytes",
        "waiting",
    )

    def __init__(self, replica_id: BrokerId, broker_epoch: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.last_fetch_ms = NEVER_MS
        self.waiting: WaitingFetch | None = None
        self.unread_bytes = 0
        self.is_interrupted = False
        self._is_closed = False
        self._changed: dict[SessionTarget, None] = {}
        self._targets: dict[Partition, SessionTarget] = {}
        self._partitions: dict[SessionTarget, Partition] = {}

    # --- calls of the session ---

    def visit(self, target: SessionTarget) -> None:
        """Visit the target with the next fetch."""
        self._changed[target] = None

    def visit_last(self, target: SessionTarget) -> None:
        """Visit the target after all others, because it has returned records."""
        self._changed.pop(target, None)
        self._changed[target] = None

    def take(self) -> list[SessionTarget]:
        """Return the targets to visit now. Changes from now on count for the next call."""
        changed, self._changed = self._changed, {}
        self.unread_bytes = 0
        self.is_interrupted = False
        return list(changed)

    def watch(self, target: SessionTarget, partition: Partition | None) -> None:
        """Watch the partition of a target. None: the broker has no such partition."""
        known = self._partitions.get(target)
        if known is partition or self._is_closed:
            return
        if known is not None:
            self._unwatch(target, known)
        if partition is not None:
            self._partitions[target] = partition
            self._targets[partition] = target
            partition.watch_follower(self)

    def forget(self, target: SessionTarget) -> None:
        """Stop watching a target, which leaves the session."""
        self._changed.pop(target, None)
        self.watch(target, None)

    def close(self) -> None:
        """Stop watching for good, and complete the delayed fetch."""
        self._is_closed = True
        for target, partition in tuple(self._partitions.items()):
            self._unwatch(target, partition)
        if self.waiting is not None:
            self.waiting.interrupt()

    def _unwatch(self, target: SessionTarget, partition: Partition) -> None:
        partition.unwatch_follower(self)
        del self._partitions[target], self._targets[partition]

    # --- reports of partitions ---

    def appended(self, partition: Partition, size_bytes: int) -> None:
        self.changed(partition)
        self.unread_bytes += size_bytes
        if self.waiting is not None:
            self.waiting.appended(size_bytes)

    def changed(self, partition: Partition) -> None:
        target = self._targets[partition]
        if target not in self._changed:
            replication = partition.replication
            if replication is not None:
                # The session visits only partitions with news, so earlier fetches are noted here.
                replication.state.follower_was_idle(self.replica_id, self.last_fetch_ms)
            self._changed[target] = None

    def interrupt(self, partition: Partition) -> None:
        self._changed[self._targets[partition]] = None
        self.is_interrupted = True
        if self.waiting is not None:
            self.waiting.interrupt()
