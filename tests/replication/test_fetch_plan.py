"""The plan of a follower's fetches as a state machine, with a model of the leader's sessions."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicPartition, Uuid
from odradek.log.state.leader_epochs import LeaderEpochFileCache
from odradek.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID
from odradek.replication import fetch_session_handler
from odradek.replication.fetch_plan import (
    BEHIND_RESPONSES_MAX,
    CATCH_UP_BYTES_MAX,
    CATCH_UP_WAIT_MAX_MS,
    SHORT_BACKOFF_MS,
    FetcherSettings,
    FetchPlan,
)
from odradek.replication.fetch_session_handler import (
    FetchRequestParts,
    FetchSessionHandler,
    InvalidFetchResponse,
)
from odradek.replication.followed_replica import FollowedReplica, ReplicaKey, ReplicaPhase

SETTINGS = FetcherSettings(backoff_ms=100)
PARTITIONS = 4
PARTITIONS_A_REQUEST_MAX = 3


class Log:
    """The positions of a log."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.log_start_offset = 0
        self.epochs = LeaderEpochFileCache()


class OnePartition:
    def __init__(self, number: int, log: Log) -> None:
        self.topic_partition = TopicPartition(f"t{number % 2}", number)
        self.topic_id = Uuid(bytes([number % 2]) * 16)
        self.log = log


def replica_of(number: int, log: Log | None = None, epoch: int = 1) -> FollowedReplica:
    partition: Any = OnePartition(number, log or Log())
    return FollowedReplica(partition, BrokerId(1), epoch)


class LeaderSession:
    """The leader's end of one session, as `FetchSessionCache` has it."""

    def __init__(self) -> None:
        self.id = INVALID_SESSION_ID
        self.epoch = 0
        self.positions: dict[ReplicaKey, tuple[int, int]] = {}
        self.ids = 0

    def receive(self, parts: FetchRequestParts, has_room: bool) -> tuple[int, ErrorCode]:
        """Apply a request. Return session id and error of the response."""
        named = {
            (topic.topic_id, each.partition): (each.current_leader_epoch, each.fetch_offset)
            for topic in parts.topics
            for each in topic.partitions
        }
        forgotten = [
            (topic.topic_id, each) for topic in parts.forgotten for each in topic.partitions
        ]
        assert len(named) + len(forgotten) <= PARTITIONS_A_REQUEST_MAX
        if parts.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            assert not forgotten
            if parts.session_id == self.id:
                self.id = INVALID_SESSION_ID
            self.positions = named
            if parts.session_epoch == FINAL_EPOCH:
                assert not named
                return INVALID_SESSION_ID, ErrorCode.NONE
            if has_room:
                self.ids += 1
                self.id, self.epoch = self.ids, 1
            return self.id if has_room else INVALID_SESSION_ID, ErrorCode.NONE
        if parts.session_id != self.id or self.id == INVALID_SESSION_ID:
            return INVALID_SESSION_ID, ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if parts.session_epoch != self.epoch:
            return INVALID_SESSION_ID, ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self.epoch += 1
        self.positions.update(named)
        for key in forgotten:
            del self.positions[key]  # a KeyError: forgotten without being known
        return self.id, ErrorCode.NONE

    def evict(self) -> None:
        self.id = INVALID_SESSION_ID


class Connection:
    """One session of the follower, its model at the leader, and the response in flight."""

    def __init__(self, session: FetchSessionHandler) -> None:
        self.session = session
        self.leader = LeaderSession()
        self.in_flight: tuple[int, ErrorCode] | None = None


class FetchPlanMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.now_ms = 0.0
        self.plan = FetchPlan(SETTINGS)
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.replicas: dict[int, FollowedReplica] = {}
        self.connections = [Connection(self.plan.in_sync), Connection(self.plan.catch_up)]

    # --- events of the metadata and of the logs ---

    @rule(number=st.integers(0, PARTITIONS - 1), epoch=st.integers(1, 3))
    def follow(self, number: int, epoch: int) -> None:
        if number in self.replicas:
            self.plan.stop(self.replicas[number])
        self.replicas[number] = replica_of(number, self.logs[number], epoch)
        self.plan.resume(self.replicas[number])

    @rule(
        number=st.integers(0, PARTITIONS - 1),
        change=st.sampled_from(["stop", "pause", "back off", "resume"]),
        cut=st.integers(0, 3),
    )
    def change(self, number: int, change: str, cut: int) -> None:
        """Stop a replica, or pause it for a truncation, or back off after an error."""
        replica = self.replicas.get(number)
        if replica is None:
            return
        if change == "stop":
            self.plan.stop(self.replicas.pop(number))
        elif replica.phase is ReplicaPhase.PAUSED and change == "resume":
            self.truncated(replica, cut)
        elif replica.phase is ReplicaPhase.FETCHING and change == "pause":
            self.plan.pause(replica)
        elif replica.phase is ReplicaPhase.FETCHING and change == "back off":
            self.plan.back_off(replica, self.now_ms, is_expected=bool(cut % 2))

    def truncated(self, replica: FollowedReplica, cut: int) -> None:
        log = replica.log
        assert isinstance(log, Log)
        self.plan.truncate(replica)
        log.log_end_offset = max(0, log.log_end_offset - cut)
        self.plan.pause(replica)
        self.plan.resume(replica)

    @rule(delay_ms=st.integers(1, SETTINGS.backoff_ms))
    def wait(self, delay_ms: int) -> None:
        self.now_ms += delay_ms
        while (replica := self.plan.wake(self.now_ms)) is not None:
            assert replica.key not in self.plan.catch_up and replica.key not in self.plan.in_sync
            self.plan.resume(replica)
        assert self.plan.wake_ms is None or self.plan.wake_ms > self.now_ms

    # --- requests and responses ---

    @rule(which=st.integers(0, 1), has_room=st.integers(0, 3))
    def send(self, which: int, has_room: int) -> None:
        it = self.connections[which]
        parts = self.plan.next_request(it.session)
        if parts is None:
            return
        assert it.in_flight is None
        it.in_flight = it.leader.receive(parts, has_room > 0)
        wait_ms, max_bytes = self.plan.limits(it.session, parts)
        if which:
            assert wait_ms <= CATCH_UP_WAIT_MAX_MS
            assert max_bytes <= CATCH_UP_BYTES_MAX
        assert parts.is_complete or not wait_ms
        if parts.is_complete and it.in_flight[1] is ErrorCode.NONE:
            self.check_leader(it)

    def check_leader(self, it: Connection) -> None:
        """The leader knows exactly the partitions that are fetched, and their positions."""
        expected = {
            key: (replica.leader_epoch, replica.log.log_end_offset)
            for key, replica in it.session.fetched.items()
        }
        assert it.leader.positions == expected

    @rule(which=st.integers(0, 1), data=st.data())
    def exchange(self, which: int, data: st.DataObject) -> None:
        self.send(which, 1)
        self.respond(which, data)

    @rule(which=st.integers(0, 1), data=st.data())
    def respond(self, which: int, data: st.DataObject) -> None:
        it = self.connections[which]
        if it.in_flight is None:
            return
        (session_id, error), it.in_flight = it.in_flight, None
        it.session.responded(session_id, error)
        if error is ErrorCode.NONE:
            self.plan.responded(it.session)
            known = sorted(it.leader.positions)
            for key in data.draw(
                st.lists(st.sampled_from(known), unique=True) if known else st.just([])
            ):
                self.respond_partition(it, key, data)
        it.session.ended()

    def respond_partition(self, it: Connection, key: ReplicaKey, data: st.DataObject) -> None:
        sent = it.session.sent(*key)
        replica = sent.replica
        if not sent.is_current():
            it.session.changed(key)
            return
        log = replica.log
        epoch, offset = it.leader.positions[key]
        assert (epoch, offset) == (replica.leader_epoch, log.log_end_offset)
        assert replica.phase is ReplicaPhase.FETCHING
        count = data.draw(st.integers(0, 2))
        assert isinstance(log, Log)
        log.log_end_offset += count
        behind = data.draw(st.integers(0, 1))
        if count and data.draw(st.booleans()):
            self.plan.hold(replica, it.session)  # the flush of `flush.messages`
            self.plan.position_changed(replica)
            other = next(each.session for each in self.connections if each is not it)
            assert key not in other
            assert key in it.session
        elif count:
            self.plan.fetched(replica, log.log_end_offset + behind, has_records=True)
            self.plan.position_changed(replica)
        else:
            self.plan.fetched(replica, log.log_end_offset + behind, has_records=False)

    @rule(which=st.integers(0, 1), evicts=st.booleans())
    def lose(self, which: int, evicts: bool) -> None:
        """Lose the session at the leader, or the response in flight."""
        it = self.connections[which]
        if evicts:
            it.leader.evict()
        elif it.in_flight is not None:
            it.in_flight = None
            it.session.lost()
            it.session.ended()

    # --- always ---

    @invariant()
    def each_replica_is_fetched_where_its_phase_and_lag_say(self) -> None:
        if not hasattr(self, "plan"):
            return
        in_sync, catch_up = self.plan.in_sync, self.plan.catch_up
        for replica in self.replicas.values():
            key = replica.key
            where = (key in in_sync, key in catch_up)
            if replica.phase is not ReplicaPhase.FETCHING:
                assert where == (False, False), replica
            elif replica.is_in_sync:
                assert where[0], replica
            else:
                assert where == (False, True), replica
        fetched = {replica.key for replica in self.replicas.values()}
        assert {*in_sync.fetched, *catch_up.fetched} <= fetched
        for replica in (*in_sync.fetched.values(), *catch_up.fetched.values()):
            assert replica in self.replicas.values(), "a stopped replica is fetched"

    def teardown(self) -> None:
        """After any events, all replicas are fetched and in sync at the end."""
        if not hasattr(self, "plan"):
            return
        for replica in self.replicas.values():
            if replica.phase is ReplicaPhase.PAUSED:
                self.truncated(replica, 0)
        self.wait(SETTINGS.backoff_ms)
        for _ in range(4 * PARTITIONS):
            for it in self.connections:
                if it.in_flight is None and (parts := self.plan.next_request(it.session)):
                    it.in_flight = it.leader.receive(parts, True)
                if it.in_flight is not None:
                    self.respond_to_all(it)
        assert all(replica.is_in_sync for replica in self.replicas.values())
        assert len(self.plan.in_sync) == len(self.replicas)
        assert len(self.plan.catch_up) == 0
        if self.replicas:
            self.check_leader(self.connections[0])
        catch_up = self.connections[1].leader
        assert catch_up.id == INVALID_SESSION_ID or not catch_up.positions

    def respond_to_all(self, it: Connection) -> None:
        """Respond that the follower has everything."""
        assert it.in_flight is not None
        (session_id, error), it.in_flight = it.in_flight, None
        it.session.responded(session_id, error)
        if error is ErrorCode.NONE:
            self.plan.responded(it.session)
            for key in list(it.leader.positions):
                sent = it.session.sent(*key)
                if sent.is_current():
                    end = sent.replica.log.log_end_offset
                    self.plan.fetched(sent.replica, end, has_records=False)
                else:
                    it.session.changed(key)
        it.session.ended()


def test_leader_and_follower_agree_on_their_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = PARTITIONS_A_REQUEST_MAX
    monkeypatch.setattr(fetch_session_handler, "PARTITIONS_A_REQUEST_MAX", limit)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        FetchPlanMachine,
        settings=settings(max_examples=150, stateful_step_count=50, deadline=None),
    )


# --- single decisions ---


def request(plan: FetchPlan, session: FetchSessionHandler) -> FetchRequestParts:
    parts = plan.next_request(session)
    assert parts is not None
    return parts


def respond(session: FetchSessionHandler, session_id: int = 1) -> None:
    session.responded(session_id, ErrorCode.NONE)
    session.ended()


def named(parts: FetchRequestParts) -> list[int]:
    return [each.partition for topic in parts.topics for each in topic.partitions]


def test_partitions_above_the_limit_follow_in_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_session_handler, "PARTITIONS_A_REQUEST_MAX", 2)
    plan = FetchPlan(SETTINGS)
    for number in (0, 2, 4, 6, 8):
        plan.resume(replica_of(number))
    session = plan.catch_up
    requests = []
    for _ in range(3):
        parts = request(plan, session)
        requests.append((named(parts), plan.limits(session, parts)[0]))
        plan.responded(session)
        respond(session)
    assert requests == [([0, 2], 0), ([4, 6], 0), ([8], 0)]
    assert plan.limits(session, request(plan, session))[0] == CATCH_UP_WAIT_MAX_MS


def test_full_requests_without_a_session_name_all_partitions_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_session_handler, "PARTITIONS_A_REQUEST_MAX", 2)
    session = FetchSessionHandler(100)
    for number in (0, 2, 4):
        session.add(replica_of(number))
    found = []
    for _ in range(3):
        parts = session.next_request()
        assert parts is not None
        assert parts.session_epoch == INITIAL_EPOCH
        found.append(named(parts))
        respond(session, INVALID_SESSION_ID)
    assert found == [[0, 2], [4, 0], [2, 4]]


def test_adjacent_partitions_of_a_topic_share_an_entry() -> None:
    session = FetchSessionHandler(100)
    for number in (0, 2, 1, 3):
        session.add(replica_of(number))
    parts = session.next_request()
    assert parts is not None
    assert [len(topic.partitions) for topic in parts.topics] == [2, 2]


def test_epoch_of_a_session_begins_again_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_handler, "EPOCH_MAX", 3)
    session = FetchSessionHandler(100)
    session.add(replica_of(0))
    epochs = []
    for _ in range(6):
        parts = session.next_request()
        assert parts is not None
        epochs.append(parts.session_epoch)
        respond(session)
    assert epochs == [0, 1, 2, 3, 1, 2]


def test_response_of_another_session_is_invalid() -> None:
    session = FetchSessionHandler(100)
    session.add(replica_of(0))
    assert session.next_request() is not None
    respond(session, 1)
    assert session.next_request() is not None
    with pytest.raises(InvalidFetchResponse):
        session.responded(2, ErrorCode.NONE)
    with pytest.raises(InvalidFetchResponse):
        session.sent(Uuid(bytes(16)), 9)


def test_replica_leaves_the_replicas_in_sync_after_consecutive_responses_only() -> None:
    plan, replica = FetchPlan(SETTINGS), replica_of(0)
    plan.resume(replica)
    plan.fetched(replica, 0, has_records=False)
    for _ in range(3):
        for _ in range(BEHIND_RESPONSES_MAX - 1):
            plan.fetched(replica, 10, has_records=True)
        plan.fetched(replica, 10, has_records=False)
        assert replica.is_in_sync
        plan.fetched(replica, 0, has_records=True)
    for _ in range(BEHIND_RESPONSES_MAX):
        plan.fetched(replica, 10, has_records=True)
    assert not replica.is_in_sync


def test_stopped_replica_is_not_fetched_after_its_backoff() -> None:
    plan, stopped, other = FetchPlan(SETTINGS), replica_of(0), replica_of(1)
    for each in (stopped, other):
        plan.resume(each)
    plan.back_off(stopped, 0)
    plan.back_off(other, 40)
    plan.stop(stopped)
    assert plan.wake_ms == 40 + SETTINGS.backoff_ms
    assert plan.wake(1_000) is other
    assert plan.wake(1_000) is None
    assert stopped.phase is ReplicaPhase.STOPPED
    assert not plan.catch_up.fetched
    plan.resume(other)
    assert list(plan.catch_up.fetched.values()) == [other]
    assert plan.wake_ms is None


def test_short_delay_ends_before_a_longer_one_that_began_earlier() -> None:
    plan, first, second = FetchPlan(SETTINGS), replica_of(0), replica_of(1)
    for each in (first, second):
        plan.resume(each)
    plan.back_off(first, 0)
    plan.back_off(second, 10, is_expected=True)
    assert plan.wake_ms == 10 + SHORT_BACKOFF_MS
    assert plan.wake(10 + SHORT_BACKOFF_MS) is second
    assert plan.wake(10 + SHORT_BACKOFF_MS) is None
    assert plan.wake_ms == SETTINGS.backoff_ms
    assert plan.wake(SETTINGS.backoff_ms) is first


def test_fetches_of_a_session_that_has_ended_are_freed_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_session_handler, "ELEMENTS_PER_SLICE", 2)
    session = FetchSessionHandler(100)
    for number in range(5):
        session.add(replica_of(number))
    assert session.next_request() is not None
    respond(session)
    session.lost()
    assert session.next_request() is not None
    assert sum(map(len, session.ended_sessions)) == 5
    assert len(list(session.freeing())) == 2
    assert not session.ended_sessions
    assert session.knows((Uuid(bytes(16)), 0)), "a fetch of the new session"


def test_replica_that_was_stopped_in_its_backoff_is_freed() -> None:
    plan, replica = FetchPlan(SETTINGS), replica_of(0)
    plan.resume(replica)
    plan.back_off(replica, 0)
    plan.stop(replica)
    assert plan.wake_ms is None
    freed = weakref.ref(replica.partition)
    del replica
    assert freed() is None


def test_paused_replica_does_not_keep_the_leader_from_waiting() -> None:
    plan, paused, other = FetchPlan(SETTINGS), replica_of(0), replica_of(1)
    for each in (paused, other):
        plan.resume(each)
    request(plan, plan.catch_up)
    plan.pause(paused)
    plan.responded(plan.catch_up)
    respond(plan.catch_up)
    assert plan.limits(plan.catch_up, request(plan, plan.catch_up))[0] == CATCH_UP_WAIT_MAX_MS


def test_f11_response_to_a_fetch_before_a_pause_is_void_at_an_equal_position() -> None:
    plan, replica = FetchPlan(SETTINGS), replica_of(0)
    plan.resume(replica)
    request(plan, plan.catch_up)
    before = plan.catch_up.sent(*replica.key)
    assert before.is_current()
    plan.pause(replica)
    plan.resume(replica)
    assert before.position == replica.position
    assert not before.is_current()
    respond(plan.catch_up)
    request(plan, plan.catch_up)
    assert plan.catch_up.sent(*replica.key).is_current()


def test_replica_that_was_paused_in_sync_begins_again_in_catch_up() -> None:
    plan, replica = FetchPlan(SETTINGS), replica_of(0)
    plan.resume(replica)
    plan.fetched(replica, 0, has_records=False)
    request(plan, plan.in_sync)
    respond(plan.in_sync)
    for _ in range(BEHIND_RESPONSES_MAX - 1):
        plan.fetched(replica, 10, has_records=True)
    plan.pause(replica)
    assert (replica.is_in_sync, replica.responses_behind) == (False, 0)
    plan.resume(replica)
    assert (replica.key in plan.in_sync, replica.key in plan.catch_up) == (False, True)
    request(plan, plan.catch_up)
    plan.position_changed(replica)
    respond(plan.catch_up)
    assert named(request(plan, plan.catch_up)) == [0]


def test_replica_that_was_never_fetched_does_not_keep_the_leader_from_waiting() -> None:
    plan, paused, other = FetchPlan(SETTINGS), replica_of(0), replica_of(1)
    for each in (paused, other):
        plan.resume(each)
    plan.pause(paused)
    request(plan, plan.catch_up)
    plan.responded(plan.catch_up)
    respond(plan.catch_up)
    assert plan.limits(plan.catch_up, request(plan, plan.catch_up))[0] == CATCH_UP_WAIT_MAX_MS


def test_each_replica_wakes_when_its_own_backoff_is_over() -> None:
    plan, first, second = FetchPlan(SETTINGS), replica_of(0), replica_of(1)
    for each in (first, second):
        plan.resume(each)
    plan.back_off(first, 0)
    plan.back_off(second, 40)
    assert plan.wake(SETTINGS.backoff_ms - 1) is None
    assert plan.wake(SETTINGS.backoff_ms) is first
    assert plan.wake(SETTINGS.backoff_ms) is None
    assert plan.wake(SETTINGS.backoff_ms + 40) is second


@pytest.mark.parametrize("configured", [CATCH_UP_BYTES_MAX - 1, CATCH_UP_BYTES_MAX + 1])
def test_partition_in_catch_up_has_at_most_the_bytes_of_a_response(configured: int) -> None:
    plan = FetchPlan(FetcherSettings(partition_max_bytes=configured))
    sizes = []
    for session in (plan.in_sync, plan.catch_up):
        session.add(replica_of(0))
        sizes.append(request(plan, session).topics[0].partitions[0].partition_max_bytes)
    assert sizes == [configured, min(configured, CATCH_UP_BYTES_MAX)]
