"""Fetch sessions of followers (KIP-227), which visit only the partitions with news.

The sessions of consumers cannot evict them, and they have their own limits. A session belongs to
one process of a follower: replica id and broker epoch cannot change in it. A follower uses few
sessions at the same time, one for each connection. It opens a new one after each lost response, so
a session that it no longer uses is closed when it opens further ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.broker.requests.fetch_sessions import FetchPartition, FetchSession, PartitionKey
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.fetch_session import EPOCH_MAX
from odradek.replication.follower_news import FollowerNews

if TYPE_CHECKING:
    from odradek.environment.clock import Clock
    from odradek.ids import BrokerId

SESSIONS_PER_FOLLOWER_MAX = 4
"""Maximum number of sessions of one follower. A further one closes the one that was unused for
longest.
"""
FOLLOWER_PARTITIONS_MAX = 500_000
"""Maximum number of partitions in all sessions. A fetch that would exceed it gets no session, and
names all of its partitions each time.
"""


class FollowerSession(FetchSession):
    """The session of a follower. Its news are those of the requested partitions."""

    def __init__(
        self, session_id: int, uses_topic_ids: bool, now_ms: float, news: FollowerNews
    ) -> None:
        super().__init__(session_id, uses_topic_ids, now_ms, now_ms)
        self.news = news

    def update(
        self, requested: Iterable[FetchPartition], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Add or change the requested partitions, which are visited, and remove the forgotten."""
        requested = list(requested)
        super().update(requested, ())
        for each in requested:
            self.news.visit(self.partitions[each.topic, each.partition])
        for key in forgotten:
            known = self.partitions.pop(key, None)
            if known is not None:
                self.news.forget(known)

    def close(self) -> None:
        """Stop watching the partitions."""
        self.news.close()


class FollowerSessions:
    """The sessions of all followers. Used on the event loop only."""

    def __init__(self, clock: Clock, random_int: Callable[[int, int], int]) -> None:
        self._clock = clock
        self._random_int = random_int
        # In the order of their last use, the least recently used first.
        self.sessions: dict[int, FollowerSession] = {}
        self.partition_count = 0

    def open(
        self,
        replica_id: BrokerId,
        broker_epoch: int,
        uses_topic_ids: bool,
        requested: list[FetchPartition],
        *,
        keep: bool,
    ) -> FollowerSession:
        """Open a session for a full fetch.

        Args:
            replica_id, broker_epoch: The follower.
            uses_topic_ids: Whether the request names topics by id.
            requested: The partitions of the request.
            keep: Whether later requests may use the session. Otherwise, and without room for it,
                its id is 0 and the caller closes it after the response.
        """
        if keep:
            self._make_room(replica_id, broker_epoch)
        keep = keep and self.partition_count + len(requested) <= FOLLOWER_PARTITIONS_MAX
        news = FollowerNews(replica_id, broker_epoch)
        session_id = self._new_id() if keep else 0
        session = FollowerSession(session_id, uses_topic_ids, self._clock.monotonic_ms(), news)
        session.update(requested, ())
        if keep:
            self.sessions[session_id] = session
            self.partition_count += len(session.partitions)
        return session

    def find(
        self,
        session_id: int,
        epoch: int,
        replica_id: BrokerId,
        broker_epoch: int,
        uses_topic_ids: bool,
    ) -> FollowerSession:
        """Return the session of an incremental fetch.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, also for the session of another process.
                INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self.sessions.get(session_id)
        if (
            session is None
            or session.news.replica_id != replica_id
            or session.news.broker_epoch != broker_epoch
        ):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def use(
        self,
        session: FollowerSession,
        requested: list[FetchPartition],
        forgotten: list[PartitionKey],
    ) -> None:
        """Count a request of the session, and apply its partitions.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, because the sessions have too many partitions.
        """
        before = len(session.partitions)
        session.update(requested, forgotten)
        self.partition_count += len(session.partitions) - before
        if self.partition_count > FOLLOWER_PARTITIONS_MAX or session.has_long_names:
            self.close(session.id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.last_used_ms = self._clock.monotonic_ms()
        self.sessions[session.id] = self.sessions.pop(session.id)

    def close(self, session_id: int) -> None:
        """Close a session. Does nothing if there is none."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)
            session.close()

    def _make_room(self, replica_id: BrokerId, broker_epoch: int) -> None:
        """Close the sessions of earlier processes of the follower, and the least recently used."""
        own = [each for each in self.sessions.values() if each.news.replica_id == replica_id]
        current = []
        for each in own:
            if each.news.broker_epoch == broker_epoch:
                current.append(each)
            elif each.news.broker_epoch < broker_epoch:
                self.close(each.id)
        for each in current[: max(len(current) - SESSIONS_PER_FOLLOWER_MAX + 1, 0)]:
            self.close(each.id)

    def _new_id(self) -> int:
        session_id = self._random_int(1, EPOCH_MAX)
        while session_id in self.sessions:
            session_id = self._random_int(1, EPOCH_MAX)
        return session_id
