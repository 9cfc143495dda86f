"""Fetch sessions of followers: their epochs, their owners, and their limits."""

from __future__ import annotations

from itertools import count

import pytest

from odradek.broker.requests.fetch_sessions import FetchPartition
from odradek.broker.requests.follower_sessions import (
    FOLLOWER_PARTITIONS_MAX,
    SESSIONS_PER_FOLLOWER_MAX,
    FollowerSession,
    FollowerSessions,
)
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.replication.fetch_data import FetchPartitionData

A, B = BrokerId(2), BrokerId(3)
TOPIC = Uuid(bytes(16))


def requested(*partitions: int, offset: int = 0) -> list[FetchPartition]:
    return [FetchPartition(TOPIC, each, offset, 100, 5) for each in partitions]


class Followers:
    def __init__(self) -> None:
        numbers = count(1)
        self.sessions = FollowerSessions(ManualClock(), lambda *_: next(numbers))

    def open(
        self, replica: BrokerId = A, epoch: int = 70, *, keep: bool = True, partitions: int = 3
    ) -> FollowerSession:
        names = requested(*range(partitions))
        return self.sessions.open(replica, epoch, True, names, keep=keep)

    def find(
        self,
        session_id: int,
        epoch: int = 1,
        replica: BrokerId = A,
        broker_epoch: int = 70,
        by_id: bool = True,
    ) -> FollowerSession:
        return self.sessions.find(session_id, epoch, replica, broker_epoch, by_id)

    def refused(self, *args: object, **options: object) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.find(*args, **options)  # type: ignore[arg-type]
        return caught.value.code


def visited(session: FollowerSession) -> list[int]:
    return [target.partition for target in session.news.take()]


def test_full_fetch_visits_all_partitions_and_an_incremental_one_those_that_it_names() -> None:
    followers = Followers()
    session = followers.open()
    assert visited(session) == [0, 1, 2]
    found = followers.find(session.id)
    assert found is session
    followers.sessions.use(found, requested(1, 7, offset=4), [(TOPIC, 0)])
    assert visited(session) == [1, 7]
    assert sorted(number for _, number in session.partitions) == [1, 2, 7]
    assert session.partitions[TOPIC, 1].fetch_offset == 4
    assert followers.sessions.partition_count == 3


def test_a_response_includes_uncommitted_records_which_are_copied() -> None:
    followers = Followers()
    session = followers.open()
    target = session.partitions[TOPIC, 0]
    assert session.includes(target, FetchPartitionData(high_watermark=5))
    assert not session.includes(target, FetchPartitionData(high_watermark=5))
    assert session.includes(target, FetchPartitionData(high_watermark=5, copied=b"records"))


def test_session_epoch_counts_the_requests() -> None:
    followers = Followers()
    session = followers.open()
    for epoch in (1, 2, 3):
        followers.sessions.use(followers.find(session.id, epoch), [], [])
    for wrong in (3, 5):
        assert followers.refused(session.id, wrong) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_session_belongs_to_one_process_of_one_follower() -> None:
    followers = Followers()
    session = followers.open()
    not_found = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert followers.refused(session.id, 1, B) is not_found
    assert followers.refused(session.id, 1, A, 71) is not_found
    assert followers.refused(session.id + 1) is not_found
    code = followers.refused(session.id, by_id=False)
    assert code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_new_process_closes_the_sessions_of_the_old_one() -> None:
    followers = Followers()
    old, other = followers.open(), followers.open(B)
    followers.open(A, 71)
    assert followers.refused(old.id) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert followers.find(other.id, replica=B) is other
    # A late request of the old process does not close the sessions of the new one.
    new = followers.open(A, 71)
    followers.open(A, 70)
    assert followers.find(new.id, broker_epoch=71) is new


def test_further_session_closes_the_one_that_was_unused_for_longest() -> None:
    followers = Followers()
    sessions = [followers.open() for _ in range(SESSIONS_PER_FOLLOWER_MAX)]
    followers.sessions.use(sessions[0], [], [])
    followers.open()
    assert followers.find(sessions[0].id, 2) is sessions[0]
    assert followers.refused(sessions[1].id) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(followers.sessions.sessions) == SESSIONS_PER_FOLLOWER_MAX


def test_session_that_is_not_kept_has_no_id() -> None:
    followers = Followers()
    assert followers.open(keep=False).id == 0
    assert followers.sessions.sessions == {}


def test_too_many_partitions_get_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.requests.follower_sessions.FOLLOWER_PARTITIONS_MAX", 4)
    assert FOLLOWER_PARTITIONS_MAX > 4
    followers = Followers()
    session = followers.open()
    assert followers.open(B).id == 0
    with pytest.raises(KafkaError) as caught:
        followers.sessions.use(session, requested(8, 9), [])
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert followers.sessions.partition_count == 0
    assert followers.open(B).id != 0


def test_forgotten_partition_is_not_visited() -> None:
    followers = Followers()
    session = followers.open()
    followers.sessions.use(session, [], [(TOPIC, 1), (TOPIC, 9)])
    assert visited(session) == [0, 2]
