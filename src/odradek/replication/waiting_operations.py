"""The operations that wait for events of one partition: fetches, produce requests, deletions.

They register here. The partition reports events to them, in the order of their registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from odradek.replication.fetch_data import FetchIsolation, WaitingFetch
from odradek.replication.offset_queue import OffsetQueue

if TYPE_CHECKING:
    from odradek.errors import ErrorCode
    from odradek.ids import BrokerId
    from odradek.log.unified_log import UnifiedLog

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)


class WaitingOperation(Protocol[P_contra]):
    """A request that waits until an offset of the partition has reached a value."""

    def resolve(self, partition: P_contra, error: ErrorCode) -> None: ...


class FetchingFollower(Protocol[P_contra]):
    """The fetch session of a follower. It notes the partitions that have news for the follower."""

    @property
    def replica_id(self) -> BrokerId: ...

    @property
    def last_fetch_ms(self) -> int:
        """The time of the last fetch, in which only partitions with news are visited."""

    def appended(self, partition: P_contra, size_bytes: int) -> None:
        """Note an append, which completes the follower's delayed fetch."""

    def changed(self, partition: P_contra) -> None:
        """Note a change of high watermark or log start, which completes no fetch (KAFKA-9952)."""

    def interrupt(self, partition: P_contra) -> None:
        """Note a change of leadership or an error, which completes the delayed fetch."""

    def moved_back(self, partition: P_contra, offset: int) -> None:
        """Note that a session of the follower has fetched from this offset, below its last one."""


class WaitingOperations(Generic[P]):
    """Base class of `Partition`, which is `P`. It has the log and the operations."""

    __slots__ = (
        "_committed_fetches",
        "_deletions",
        "_fetches",
        "_flushed_produces",
        "_produces",
        "_stable_offset_seen",
        "followers",
        "log",
    )

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        # Dictionaries, because the order of a set depends on addresses.
        self._fetches: dict[WaitingFetch, None] = {}
        # Fetches of committed records. They wait for the last stable offset to advance.
        self._committed_fetches: dict[WaitingFetch, None] = {}
        self._stable_offset_seen = 0
        # The fetch sessions of followers with this partition.
        self.followers: dict[FetchingFollower[P], None] = {}
        # Produce requests that wait for the high watermark, or only for a flush.
        self._produces: OffsetQueue[WaitingOperation[P]] = OffsetQueue()
        self._flushed_produces: OffsetQueue[WaitingOperation[P]] = OffsetQueue()
        # DeleteRecords requests, which wait for the low watermark.
        self._deletions: OffsetQueue[WaitingOperation[P]] = OffsetQueue()

    def watch_fetch(self, fetch: WaitingFetch, isolation: FetchIsolation) -> None:
        """Report to `fetch` the bytes that become readable, and other reasons to read again."""
        if isolation is FetchIsolation.COMMITTED:
            self._stable_offset_seen = self.log.last_stable_offset
            self._committed_fetches[fetch] = None
        else:
            self._fetches[fetch] = None

    def unwatch_fetch(self, fetch: WaitingFetch) -> None:
        self._fetches.pop(fetch, None)
        self._committed_fetches.pop(fetch, None)

    def watch_follower(self, follower: FetchingFollower[P]) -> None:
        """Report news to the fetch session of a follower."""
        self.followers[follower] = None

    def unwatch_follower(self, follower: FetchingFollower[P]) -> None:
        self.followers.pop(follower, None)

    def last_fetch_ms(self, replicas: tuple[BrokerId, ...], visited_ms: int) -> int:
        """Return the time of the last fetch by a session of these replicas.

        A session visits only partitions with news. `visited_ms` is the time of the last visit.
        """
        for follower in self.followers:
            if follower.replica_id in replicas and follower.last_fetch_ms > visited_ms:
                visited_ms = follower.last_fetch_ms
        return visited_ms

    def unwatch_produce(self, produce: WaitingOperation[P]) -> None:
        self._produces.remove(produce)
        self._flushed_produces.remove(produce)

    def watch_low_watermark(self, deletion: WaitingOperation[P], offset: int) -> None:
        """Resolve `deletion` when the log starts of all replicas that are alive reach `offset`."""
        self._deletions.add(deletion, offset)

    def unwatch_low_watermark(self, deletion: WaitingOperation[P]) -> None:
        self._deletions.remove(deletion)
