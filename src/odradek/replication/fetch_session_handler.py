"""The follower's end of an incremental fetch session (KIP-227). Pure.

The leader remembers the partitions of the session. A request names a partition only if its
position has changed, or if it is no longer fetched. A response names a partition only if it has
records, an error, a diverging epoch, or another high watermark or log start. The session belongs to
one connection, on which one request at a time is in flight.

The rules are those of Kafka's ``FetchSessionHandler``:

- Epoch 0 requests a new session with all partitions, and closes the session whose id it names.
- Epoch -1 closes the session, when no partition is left.
- A response without a session id: the leader has no room. The next request is a full one again.
- FETCH_SESSION_ID_NOT_FOUND, another session error or a lost response: a full request follows.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
)
from odradek.protocol.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic
from odradek.replication.followed_replica import FollowedReplica, ReplicaKey, ReplicaPhase
from odradek.replication.follower_decisions import accepts_response
from odradek.slicing import ELEMENTS_PER_SLICE

if TYPE_CHECKING:
    from odradek.ids import Uuid

PARTITIONS_A_REQUEST_MAX = 125
"""Maximum number of partitions in a request, which bounds the time slices in which it is made,
encoded and decoded. It is made in 0.3 ms, or in 3 ms if the partitions are not in the processor's
caches. The others follow in the next request.
"""


LONG_REQUEST_MIN = 50
"""Number of partitions above which a request is the last one that is made in its time slice."""


class InvalidFetchResponse(Exception):
    """The response does not belong to the session. It costs the connection."""


class SentPartition:
    """A partition in the leader's session: the last fetch that named it."""

    __slots__ = ("generation", "log_start_offset", "position", "replica")

    def __init__(self, replica: FollowedReplica) -> None:
        self.replica = replica
        self.generation = replica.generation
        self.position = replica.position
        self.log_start_offset = replica.log.log_start_offset

    def is_current(self) -> bool:
        """Return whether a response to the fetch may change the follower (rule F11)."""
        replica = self.replica
        return (
            replica.phase is ReplicaPhase.FETCHING
            and replica.generation == self.generation
            and accepts_response(self.position, replica.position)
        )


class FetchRequestParts:
    """The parts of a request that depend on the session."""

    __slots__ = ("forgotten", "is_complete", "session_epoch", "session_id", "topics")

    def __init__(self, session_id: int, session_epoch: int) -> None:
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics: list[FetchTopic] = []
        self.forgotten: list[ForgottenTopic] = []
        self.is_complete = True
        """False: further partitions wait for the next request, so the leader must not wait."""


class FetchSessionHandler:
    """The partitions that are fetched on one connection, and the leader's view of them.

    Args:
        partition_max_bytes: Maximum size of the records of a partition in a response.
    """

    def __init__(self, partition_max_bytes: int) -> None:
        self._partition_max_bytes = partition_max_bytes
        self.is_busy = False
        """A request is in flight, or its response is processed."""
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._fetched: dict[ReplicaKey, FollowedReplica] = {}
        self._known: dict[ReplicaKey, SentPartition] = {}
        self.ended_sessions: list[dict[ReplicaKey, SentPartition]] = []
        """The fetches of sessions that have ended. The owner runs `freeing` if there are any."""
        # Compared with `_known` by the next request. A dictionary, for its order.
        self._changed: dict[ReplicaKey, None] = {}
        self.named: Collection[ReplicaKey] = ()
        """The partitions that the last request named."""
        self.is_long = False
        """The last request named more than `LONG_REQUEST_MIN` partitions, or there were more."""

    # --- partitions ---

    def __len__(self) -> int:
        return len(self._fetched)

    def __contains__(self, key: ReplicaKey) -> bool:
        return key in self._fetched

    @property
    def fetched(self) -> Mapping[ReplicaKey, FollowedReplica]:
        """The partitions that are fetched."""
        return self._fetched

    def knows(self, key: ReplicaKey) -> bool:
        """Return whether the leader's session has the partition, as of the last request."""
        return key in self._known

    def add(self, replica: FollowedReplica) -> None:
        """Fetch the partition from the next request on."""
        self._fetched[replica.key] = replica
        self._changed[replica.key] = None

    def remove(self, key: ReplicaKey) -> None:
        """Do not fetch the partition from the next request on."""
        if self._fetched.pop(key, None) is not None:
            self._changed[key] = None

    def forget(self, key: ReplicaKey) -> None:
        """Drop the last fetch of a partition. The leader's session keeps the partition."""
        self._known.pop(key, None)

    def releasing(self) -> Generator[None, None, None]:
        """Drop all fetches in time slices, after the last request."""
        self._end_known()
        return self.freeing()

    def freeing(self) -> Generator[None, None, None]:
        """Free the fetches of sessions that have ended, in time slices."""
        left = ELEMENTS_PER_SLICE
        while self.ended_sessions:
            known = self.ended_sessions.pop()
            while known:
                if not left:
                    left = ELEMENTS_PER_SLICE
                    yield
                left -= 1
                known.popitem()

    def changed(self, key: ReplicaKey) -> None:
        """Name the partition in the next request, because its position has changed."""
        self._changed[key] = None

    # --- requests ---

    @property
    def is_due(self) -> bool:
        """Whether `next_request` may return a request."""
        return not self.is_busy and bool(self._fetched or self._changed)

    def next_request(self) -> FetchRequestParts | None:
        """Return the next request, or None if one is in flight or nothing is fetched."""
        if self.is_busy:
            return None
        if not self._fetched:
            return self._close_session()
        self.is_busy = True
        if self._epoch == INITIAL_EPOCH:
            self._begin_session()
        parts = FetchRequestParts(self._session_id, self._epoch)
        changed = self._changed
        count = len(changed)
        self.is_long = count > LONG_REQUEST_MIN
        if count <= PARTITIONS_A_REQUEST_MAX:
            self._changed, self.named = {}, changed
            self._name(changed, parts)
            return parts
        self.named = named = list(islice(changed, PARTITIONS_A_REQUEST_MAX))
        for key in named:
            del changed[key]
            if self._epoch == INITIAL_EPOCH and key in self._fetched:
                # Without a session, the next full request begins with the others.
                self._fetched[key] = self._fetched.pop(key)
        self._name(named, parts)
        parts.is_complete = False
        return parts

    def next_single(self) -> SentPartition | None:
        """Begin an incremental request that names one partition. Return its fetch.

        Return None if the next request has another form, or one is in flight. `next_request`
        returns it then.
        """
        changed = self._changed
        if self.is_busy or self._epoch == INITIAL_EPOCH or len(changed) != 1:
            return None
        (key,) = changed
        replica = self._fetched.get(key)
        if replica is None:
            return None
        self.is_busy, self.is_long = True, False
        self._changed, self.named = {}, changed
        sent = self._known[key] = SentPartition(replica)
        return sent

    @property
    def session(self) -> tuple[int, int]:
        """The session id and the epoch of the next request, or of the one in flight."""
        return self._session_id, self._epoch

    def _close_session(self) -> FetchRequestParts | None:
        """Return the request that closes a session without partitions."""
        if self._session_id == INVALID_SESSION_ID:
            return None
        self.is_busy = True
        parts = FetchRequestParts(self._session_id, FINAL_EPOCH)
        parts.is_complete = False
        self._session_id, self._epoch = INVALID_SESSION_ID, INITIAL_EPOCH
        self._end_known()
        self._changed.clear()
        self.named = ()
        return parts

    def _begin_session(self) -> None:
        self._end_known()
        self._changed = dict.fromkeys(self._fetched)

    def _end_known(self) -> None:
        """Forget the partitions of the leader's session."""
        if self._known:
            self.ended_sessions.append(self._known)
            self._known = {}

    def _name(self, keys: Iterable[ReplicaKey], parts: FetchRequestParts) -> None:
        """Add the partitions to the request. Adjacent partitions of a topic share an entry."""
        fetched, known, topics = self._fetched, self._known, parts.topics
        last_topic = forgotten_topic = None
        for key in keys:
            topic_id, number = key
            replica = fetched.get(key)
            if replica is None:
                if known.pop(key, None) is not None:
                    if topic_id != forgotten_topic:
                        parts.forgotten.append(ForgottenTopic("", topic_id, []))
                        forgotten_topic = topic_id
                    parts.forgotten[-1].partitions.append(number)
                continue
            sent = known[key] = SentPartition(replica)
            leader_epoch, offset, last_epoch = sent.position
            start, limit = sent.log_start_offset, self._partition_max_bytes
            named = FetchPartition(number, leader_epoch, offset, last_epoch, start, limit)
            if topic_id == last_topic:
                topics[-1].partitions.append(named)
            else:
                topics.append(FetchTopic("", topic_id, [named]))
                last_topic = topic_id

    # --- responses ---

    def sent(self, topic_id: Uuid, partition: int) -> SentPartition:
        """Return the fetch of a partition in a response.

        Raises:
            InvalidFetchResponse: The session does not have the partition.
        """
        sent = self._known.get((topic_id, partition))
        if sent is None:
            raise InvalidFetchResponse(f"partition {partition} of an unknown topic or session")
        return sent

    def sent_to(self, topic_id: Uuid, partition: int) -> SentPartition | None:
        """Return the fetch of a partition, None if the session does not have the partition."""
        return self._known.get((topic_id, partition))

    def responded(self, session_id: int, error_code: int) -> None:
        """Note the session in a response, before its partitions are processed.

        Raises:
            InvalidFetchResponse: The session is another one.
        """
        if error_code:
            self.lost()
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = INVALID_SESSION_ID
        elif self._epoch == INITIAL_EPOCH or session_id == INVALID_SESSION_ID:
            self._session_id = session_id
            self._epoch = INITIAL_EPOCH if session_id == INVALID_SESSION_ID else 1
        elif session_id != self._session_id:
            raise InvalidFetchResponse(f"session {session_id} instead of {self._session_id}")
        else:
            self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1

    def lost(self) -> None:
        """Begin a new session with the next request. The old one is closed by it."""
        self._epoch = INITIAL_EPOCH

    def ended(self) -> None:
        """Allow the next request: the response is processed, or lost."""
        self.is_busy = False
