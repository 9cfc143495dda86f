"""Which partitions of one leader are fetched, on which connection, and when again. Pure.

A follower has two fetch sessions with each leader. Replicas in sync share one, so that large
responses to others do not delay them. Catch-up is for the others. Its responses are small, and its
requests wait shortly, so that another replica need not wait for the end of a long poll.

::

    follow, resume --> catch-up --log end at the leader's high watermark--> in sync
                          ^                                                   |
                          '-- BEHIND_RESPONSES_MAX responses with records ----'
                              that end below the high watermark

The lag of a replica is not known before the first response, so it begins in catch-up. A replica
that moves to the replicas in sync stays in catch-up until the other session has named it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass

from odradek.replication.fetch_session_handler import (
    FetchRequestParts,
    FetchSessionHandler,
    SentPartition,
)
from odradek.replication.followed_replica import FollowedReplica, ReplicaKey, ReplicaPhase

CATCH_UP_BYTES_MAX = 524_288
"""Maximum size of a response on the catch-up connection. It is received and appended in about a
millisecond, for which the replicas in sync have to wait.
"""

CATCH_UP_WAIT_MAX_MS = 50
"""Maximum time that a leader waits for records on the catch-up connection."""

SHORT_BACKOFF_MS = 50
"""Delay after an error that lasts until leader and follower have the same metadata."""

SHORT_BACKOFFS_MAX = 5
"""Short delays of a replica in one leader epoch. Further ones are `replica.fetch.backoff.ms`."""

BEHIND_RESPONSES_MAX = 2
"""Consecutive responses with records after which a replica that is still behind is out of sync."""


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """Kafka's configs of a follower. The defaults are Kafka's.

    Attributes:
        min_bytes: replica.fetch.min.bytes.
        wait_max_ms: replica.fetch.wait.max.ms, how long a leader waits for `min_bytes`.
        partition_max_bytes: replica.fetch.max.bytes, for each partition of a response.
        response_max_bytes: replica.fetch.response.max.bytes.
        backoff_ms: replica.fetch.backoff.ms, after an error.
        timeout_ms: replica.socket.timeout.ms, the limit of a request.
    """

    min_bytes: int = 1
    wait_max_ms: int = 500
    partition_max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000


class FetchPlan:
    """The replicas of one leader. Owned by its `ReplicaFetcher`."""

    def __init__(self, settings: FetcherSettings) -> None:
        self._settings = settings
        self.in_sync = FetchSessionHandler(settings.partition_max_bytes)
        self.catch_up = FetchSessionHandler(min(settings.partition_max_bytes, CATCH_UP_BYTES_MAX))
        # Replicas whose lag is not known: the leader responds at once.
        self._new: dict[ReplicaKey, None] = {}
        # Replicas in both sessions.
        self._moving: dict[ReplicaKey, None] = {}
        # The times at which the backoffs end. They are in order, because each delay is constant. A
        # dictionary would pass over its removed entries at each look at the first one.
        self._backing_off: OrderedDict[FollowedReplica, float] = OrderedDict()
        self._backing_off_shortly: OrderedDict[FollowedReplica, float] = OrderedDict()

    # --- replicas ---

    def resume(self, replica: FollowedReplica) -> None:
        """Fetch a replica that is new or was paused."""
        assert replica.phase is ReplicaPhase.PAUSED
        replica.phase = ReplicaPhase.FETCHING
        self._new[replica.key] = None
        self.catch_up.add(replica)

    def pause(self, replica: FollowedReplica) -> None:
        """Do not fetch the replica until `resume`. Responses to earlier fetches are void."""
        self._withdraw(replica)
        replica.phase = ReplicaPhase.PAUSED

    def truncate(self, replica: FollowedReplica) -> None:
        """Keep a paused replica waiting for the end of a truncation. Then it is paused again."""
        assert replica.phase is ReplicaPhase.PAUSED
        replica.phase = ReplicaPhase.TRUNCATING

    def back_off(
        self, replica: FollowedReplica, now_ms: float, *, is_expected: bool = False
    ) -> None:
        """Do not fetch the replica before `replica.fetch.backoff.ms` has passed.

        Args:
            is_expected: The leader has not the metadata of the follower yet, or the reverse. The
                first `SHORT_BACKOFFS_MAX` of these delays in a leader epoch are short, because
                requests with acks=all wait for the follower.
        """
        self._withdraw(replica)
        replica.phase = ReplicaPhase.BACKING_OFF
        backoff_ms = self._settings.backoff_ms
        if is_expected and replica.short_backoffs < SHORT_BACKOFFS_MAX:
            replica.short_backoffs += 1
            self._backing_off_shortly[replica] = now_ms + min(SHORT_BACKOFF_MS, backoff_ms)
        else:
            self._backing_off[replica] = now_ms + backoff_ms

    def stop(self, replica: FollowedReplica) -> None:
        """Never fetch the replica again."""
        self._withdraw(replica)
        replica.phase = ReplicaPhase.STOPPED

    def end(self, replica: FollowedReplica) -> None:
        """Stop a replica after the last request of all connections, and keep no reference to it."""
        self.stop(replica)
        self.in_sync.forget(replica.key)
        self.catch_up.forget(replica.key)

    def _withdraw(self, replica: FollowedReplica) -> None:
        replica.generation += 1
        replica.is_in_sync = False
        replica.responses_behind = 0
        key = replica.key
        self.in_sync.remove(key)
        self.catch_up.remove(key)
        self._new.pop(key, None)
        self._moving.pop(key, None)
        self._backing_off.pop(replica, None)
        self._backing_off_shortly.pop(replica, None)

    def releasing(self) -> Generator[None, None, None]:
        """Drop all fetches of both sessions in time slices, after the last request of both."""
        yield from self.in_sync.releasing()
        yield from self.catch_up.releasing()

    @property
    def wake_ms(self) -> float | None:
        """The time at which `wake` is due, or None."""
        later_ms = next(iter(self._backing_off.values()), None)
        soon_ms = next(iter(self._backing_off_shortly.values()), later_ms)
        return soon_ms if later_ms is None or soon_ms is None else min(soon_ms, later_ms)

    def wake(self, now_ms: float) -> FollowedReplica | None:
        """Return a replica whose backoff is over, or None. It is paused until `resume`."""
        wake_ms = self.wake_ms
        if wake_ms is None or wake_ms > now_ms:
            return None
        shortly = self._backing_off_shortly
        is_short = next(iter(shortly.values()), None) == wake_ms
        replica, _ = (shortly if is_short else self._backing_off).popitem(last=False)
        replica.phase = ReplicaPhase.PAUSED
        return replica

    # --- requests ---

    def next_request(self, session: FetchSessionHandler) -> FetchRequestParts | None:
        """Return the next request of one of the sessions, or None."""
        parts = session.next_request()
        if self._moving and parts is not None and session is self.in_sync:
            for key in session.named:
                if key in self._moving and session.knows(key):
                    del self._moving[key]
                    self.catch_up.remove(key)
        return parts

    def next_single(self, session: FetchSessionHandler) -> SentPartition | None:
        """Begin the next request of replicas in sync if it names one of them, and nothing else.

        Return None otherwise. `next_request` returns the request then.
        """
        if session is not self.in_sync or self._moving:
            return None
        return session.next_single()

    def limits(self, session: FetchSessionHandler, parts: FetchRequestParts) -> tuple[int, int]:
        """Return the leader's maximum wait in milliseconds, and the maximum size of its response.

        The leader does not wait if a replica's lag is not known, or if the request is not complete.
        """
        settings = self._settings
        wait_ms, max_bytes = settings.wait_max_ms, settings.response_max_bytes
        if session is self.catch_up:
            wait_ms = 0 if self._new else min(wait_ms, CATCH_UP_WAIT_MAX_MS)
            max_bytes = min(max_bytes, CATCH_UP_BYTES_MAX)
        return (wait_ms if parts.is_complete else 0), max_bytes

    # --- responses ---

    def responded(self, session: FetchSessionHandler) -> None:
        """Note that a response arrived. The lag of the replicas in its request counts as known."""
        if self._new and session is self.catch_up:
            for key in session.named:
                self._new.pop(key, None)

    def fetched(
        self, replica: FollowedReplica, leader_high_watermark: int, *, has_records: bool
    ) -> None:
        """Assign the replica to a connection by its lag, after a response was applied to it."""
        key = replica.key
        if replica.log.log_end_offset >= leader_high_watermark:
            replica.responses_behind = 0
            if not replica.is_in_sync:
                replica.is_in_sync = True
                self._moving[key] = None
                self.in_sync.add(replica)
        elif has_records and replica.is_in_sync:
            replica.responses_behind += 1
            if replica.responses_behind >= BEHIND_RESPONSES_MAX:
                replica.responses_behind = 0
                replica.is_in_sync = False
                self._moving.pop(key, None)
                self.in_sync.remove(key)
                self.catch_up.add(replica)

    def position_changed(self, replica: FollowedReplica) -> None:
        """Name the replica in the next request, because its log end or log start has changed."""
        key = replica.key
        if replica.is_in_sync:
            self.in_sync.changed(key)
            if not self._moving or key not in self._moving:
                return
        self.catch_up.changed(key)

    def hold(self, replica: FollowedReplica, session: FetchSessionHandler) -> None:
        """Fetch the replica in `session` only, which is busy until the replica's log is flushed.

        Otherwise the other session could fetch from the new log end before the flush. `session` may
        have dropped the replica since its request, because the replica moved.
        """
        replica.is_in_sync = session is self.in_sync
        self._moving.pop(replica.key, None)
        (self.catch_up if replica.is_in_sync else self.in_sync).remove(replica.key)
        session.add(replica)
