"""Incremental fetch sessions (KIP-227): requests and responses name changed partitions only.

A session remembers, for each partition of a consumer, the parameters of the last request and the
offsets of the last response. Its epoch counts the requests, so that the broker detects a lost or
repeated one.

``max.incremental.fetch.session.cache.slots`` limits the number of sessions. When all slots are
taken, a new session replaces a session that was unused for two minutes. If there is none, it
replaces the smallest session that is older than two minutes, provided that it is smaller than the
new one. Otherwise the consumer gets no session (``kafka.server.FetchSessionCache``). A client
chooses the size of its session, so `PARTITIONS_MAX` limits the partitions of all sessions together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH
from odradek.protocol.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odradek.environment.clock import Clock
    from odradek.replication.fetch_data import FetchPartitionData

# A larger session never replaces a session younger than this. Any new session may replace a session
# that was unused for longer.
EVICTION_AGE_MS = 120_000

PARTITIONS_MAX = 500_000
"""Maximum number of partitions in all sessions, of some 300 bytes each. A fetch that would exceed
it gets no session.
"""
TOPIC_NAME_BYTES_MAX = 249
"""The longest name that a topic can have. A fetch with a longer name gets no session, because
sessions also keep the names of topics that do not exist, of up to 32 KB each.
"""

# A topic's name, or its id in requests from version 13 on.
PartitionKey = tuple[str | Uuid, int]


@dataclass(slots=True, eq=False)
class FetchPartition:
    """The parameters of a fetch for one partition, and in a session the offsets last returned.

    `high_watermark` and `log_start_offset` are -1 before the first response of the session.
    `follower_log_start_offset` is the log start of a follower, as of its last request.
    """

    topic: str | Uuid
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    follower_log_start_offset: int = -1

    def set_returned(self, data: FetchPartitionData) -> None:
        """Note the offsets that a response returns."""
        self.high_watermark = data.high_watermark
        self.log_start_offset = data.log_start_offset


@dataclass(slots=True, eq=False)
class FetchSession:
    """One consumer's session.

    The partitions are read in the order of `partitions`. A partition that returned records moves to
    the end, so that max.bytes does not starve the partitions behind it.
    """

    id: int
    uses_topic_ids: bool
    created_ms: float
    last_used_ms: float
    epoch: int = 1
    partitions: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    has_long_names: bool = False

    def update(
        self, requested: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Add or change the requested partitions, and remove the forgotten ones."""
        for new in requested:
            key = (new.topic, new.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = new
                if _is_long(new.topic):
                    self.has_long_names = True
            else:
                known.fetch_offset = new.fetch_offset
                known.max_bytes = new.max_bytes
                known.leader_epoch = new.leader_epoch
                known.last_fetched_epoch = new.last_fetched_epoch
                known.follower_log_start_offset = new.follower_log_start_offset
        for key in forgotten:
            self.partitions.pop(key, None)

    def includes(self, known: FetchPartition, data: FetchPartitionData) -> bool:
        """Return whether an incremental response contains the partition, and update the session.

        A partition with records moves to the end of the session.
        """
        region = data.region
        has_records = bool(data.copied) if region is None else region.length > 0
        changed = (
            has_records
            or known.high_watermark != data.high_watermark
            or known.log_start_offset != data.log_start_offset
            or bool(data.error)
            or data.diverging_epoch != UNDEFINED_EPOCH
        )
        # The response returns these values to the client. After an error they differ from the next
        # ones, so the partition is included again when the error is resolved.
        known.high_watermark = data.high_watermark
        known.log_start_offset = data.log_start_offset
        if has_records:
            self.move_to_end(known)
        return changed

    def move_to_end(self, partition: FetchPartition) -> None:
        """Read `partition` after all others next time, because it has returned records."""
        key = (partition.topic, partition.partition)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition


def _is_long(topic: str | Uuid) -> bool:
    return len(topic) > TOPIC_NAME_BYTES_MAX or (isinstance(topic, str) and not topic.isascii())


@dataclass(slots=True)
class FetchContext:
    """A fetch request after its session was looked up: an error, or the partitions to read.

    `session` is set for incremental requests. `create_session` is set when the response to a full
    request may open a session. `new_session_id` is the session that a follower's request has opened
    already.
    """

    error: ErrorCode
    partitions: list[FetchPartition]
    session: FetchSession | None = None
    create_session: bool = False
    new_session_id: int | None = None
    epoch: int = FINAL_EPOCH


class FetchSessionCache:
    """All sessions of the broker. Used on the event loop only."""

    def __init__(self, slots: int, clock: Clock, random_int: Callable[[int, int], int]) -> None:
        self._slots = slots
        self._clock = clock
        self._random_int = random_int
        # In the order of their last use, the least recently used first.
        self.sessions: dict[int, FetchSession] = {}
        self.partition_count = 0

    def context(
        self,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        requested: list[FetchPartition],
        forgotten: list[PartitionKey],
    ) -> FetchContext:
        """Look up the session of a request, and update it (``FetchManager.newContext``).

        Args:
            session_id: The session of the request, or 0.
            epoch: The epoch of the request: 0 requests a new session, -1 closes the session.
            uses_topic_ids: Whether the request names topics by id (version 13 and later).
            requested: The partitions in the request.
            forgotten: The partitions to remove from the session.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id:
                self._remove(session_id)
            if len(requested) > 1:
                # A partition that is requested twice is read once, with its last parameters.
                requested = list(
                    {(each.topic, each.partition): each for each in requested}.values()
                )
            return FetchContext(ErrorCode.NONE, requested, create_session=epoch == INITIAL_EPOCH)
        session = self.sessions.get(session_id)
        if session is None:
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        if session.epoch != epoch:
            return FetchContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [])
        before = len(session.partitions)
        session.update(requested, forgotten)
        self.partition_count += len(session.partitions) - before
        if not session.partitions:
            self._remove(session_id)
            return FetchContext(ErrorCode.NONE, [])
        if self.partition_count > PARTITIONS_MAX or session.has_long_names:
            self._remove(session_id)
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        self.use(session)
        return FetchContext(
            ErrorCode.NONE, list(session.partitions.values()), session, epoch=session.epoch
        )

    def use(self, session: FetchSession) -> None:
        """Count a request of the session, which is then the most recently used one."""
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.last_used_ms = self._clock.monotonic_ms()
        self.sessions[session.id] = self.sessions.pop(session.id)

    def create(self, partitions: list[FetchPartition], uses_topic_ids: bool) -> int:
        """Open a session for `partitions`. Return its id, or 0 if the cache has no room for it."""
        if any(_is_long(each.topic) for each in partitions):
            return INVALID_SESSION_ID
        now_ms = self._clock.monotonic_ms()
        while self.partition_count + len(partitions) > PARTITIONS_MAX:
            if not self._evict_stale(now_ms):
                return INVALID_SESSION_ID
        if len(self.sessions) >= self._slots and not self._evict(len(partitions), now_ms):
            return INVALID_SESSION_ID
        session_id = self._random_int(1, EPOCH_MAX)
        while session_id in self.sessions:
            session_id = self._random_int(1, EPOCH_MAX)
        session = FetchSession(session_id, uses_topic_ids, now_ms, now_ms)
        session.partitions = {(each.topic, each.partition): each for each in partitions}
        self.sessions[session_id] = session
        self.partition_count += len(session.partitions)
        return session_id

    def _remove(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _evict(self, size: int, now_ms: float) -> bool:
        """Evict one session in favour of a new one of `size` partitions.

        Return False if no session may be evicted.
        """
        if self._evict_stale(now_ms):
            return True
        old = [s for s in self.sessions.values() if now_ms - s.created_ms > EVICTION_AGE_MS]
        smallest = min(old, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            return False
        self._remove(smallest.id)
        return True

    def _evict_stale(self, now_ms: float) -> bool:
        """Evict the least recently used session, if it was unused for `EVICTION_AGE_MS`."""
        stalest = next(iter(self.sessions.values()), None)
        if stalest is None or now_ms - stalest.last_used_ms <= EVICTION_AGE_MS:
            return False
        self._remove(stalest.id)
        return True
