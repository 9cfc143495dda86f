"""The rules about coordinators: each is violated once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
    to_record,
)
from odradek.ids import TopicName, TopicPartition
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.records.batch import parse_header
from odradek.records.control import EndTransactionMarker, build_marker
from tests.simulation.coordinator_logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Commit,
    Entry,
    LogRecord,
    OffsetsLog,
    TransactionLog,
    check_groups,
    ends_another,
)
from tests.simulation.coordinator_model import CoordinatorModel, CoordinatorObserver
from tests.simulation.invariants import PartitionModel

KEY = ("group", "topic", 0)
PLACE = ("topic", 0)


def metadata(state: int, *, epoch: int = 3, partitions: int = 1) -> TransactionMetadata:
    named = frozenset(TopicPartition(TopicName("topic"), number) for number in range(partitions))
    return TransactionMetadata("id", 7, epoch, 15_000, TransactionState(state), partitions=named)


def transaction(
    offset: int, state: int, *, epoch: int = 3, leader_epoch: int = 0, partitions: int = 1
) -> LogRecord:
    key, value, _ = to_record(metadata(state, epoch=epoch, partitions=partitions), 2)
    return LogRecord(offset, leader_epoch, -1, None, key, value)


def commit(offset: int, position: int, producer_id: int = -1, text: str = "a") -> LogRecord:
    value = OffsetCommitValue(offset=position, metadata=text)
    return LogRecord(offset, 0, producer_id, None, OffsetCommitKey(*KEY), value)


def marker(offset: int, producer_id: int, *, committed: bool) -> LogRecord:
    return LogRecord(offset, 0, producer_id, committed, None, None)


def transactions(*states: int) -> tuple[TransactionLog, list[str]]:
    log, problems = TransactionLog(), list[str]()
    for offset, state in enumerate(states):
        problems += log.add(transaction(offset, state))
    return log, problems


def offsets(*records: LogRecord) -> OffsetsLog:
    log = OffsetsLog()
    for record in records:
        log.add(record)
    return log


@pytest.mark.parametrize(
    "states",
    [
        (PREPARE_COMMIT, PREPARE_ABORT),
        (PREPARE_COMMIT, COMPLETE_ABORT),
        (PREPARE_ABORT, COMPLETE_COMMIT),
        (PREPARE_ABORT, ONGOING),
        (COMPLETE_COMMIT,),
    ],
)
def test_an_outcome_that_changes_is_reported(states: tuple[int, ...]) -> None:
    _, problems = transactions(ONGOING, *states)
    assert problems


def test_outcomes_are_found_by_producer_epoch_and_place_in_the_log() -> None:
    log, problems = transactions(ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)
    assert not problems
    assert log.has_outcome("id", (7, 3), True, 0, 2)
    assert log.has_outcome("id", (7, 2), True, 0, 2), "version 2 has incremented the epoch"
    assert not log.has_outcome("id", (7, 3), True, 0, 1), "not committed when it was sent"
    assert not log.has_outcome("id", (7, 3), True, 3, 9), "of an earlier transaction"
    assert not log.has_outcome("id", (7, 3), False, 0, 3)
    assert not log.has_outcome("id", (8, 3), True, 0, 3)
    assert not log.open()
    assert transactions(ONGOING)[0].open() == ["id"]
    assert transactions(ONGOING, PREPARE_ABORT)[0].open() == ["id"]


def test_transactions_of_a_coordinator_equal_a_replay_of_its_log() -> None:
    log, _ = transactions(ONGOING)
    later = [transaction(1, PREPARE_COMMIT)]
    assert not [*log.check({"id": metadata(ONGOING)}, [])]
    assert not [*log.check({"id": metadata(PREPARE_COMMIT)}, later)]
    for actual in ({}, {"id": metadata(ONGOING, epoch=4)}, {"id": metadata(ONGOING, partitions=2)}):
        assert [*log.check(actual, [])]
    assert [*log.check({"id": metadata(ONGOING)}, later)]
    assert [*log.check({"id": metadata(ONGOING), "other": metadata(ONGOING)}, [])]


def test_a_marker_ends_another_transaction_if_its_outcome_is_not_decided() -> None:
    entry = Entry(0, 0, ONGOING, 7, 3, 15_000, frozenset({PLACE}))
    assert ends_another(entry, (7, 3), PLACE)
    assert not ends_another(None, (7, 3), PLACE)
    assert not ends_another(entry._replace(state=PREPARE_COMMIT), (7, 3), PLACE)
    assert not ends_another(entry, (7, 2), PLACE)
    assert not ends_another(entry, (7, 3), ("topic", 1))


def test_a_later_commit_wins_over_a_transaction_that_is_committed_after_it() -> None:
    log = offsets(commit(0, 5, producer_id=7), commit(1, 4), marker(2, 7, committed=True))
    assert log.newest == {KEY: Commit(1, 4, "a")}
    log = offsets(commit(0, 4), commit(1, 5, producer_id=7))
    assert log.newest == {KEY: Commit(0, 4, "a")}
    log.add(marker(2, 7, committed=True))
    assert log.newest == {KEY: Commit(1, 5, "a")}
    log.add(commit(3, 6, producer_id=7))
    log.add(marker(4, 7, committed=False))
    assert log.newest == {KEY: Commit(1, 5, "a")}
    assert not log.pending


def test_a_tombstone_removes_committed_and_pending_offsets() -> None:
    tombstone = commit(2, 0)._replace(value=None)
    log = offsets(commit(0, 4), commit(1, 5, producer_id=7), tombstone)
    log.add(marker(3, 7, committed=True))
    assert not log.newest


def test_offsets_of_a_coordinator_equal_a_replay_of_its_log() -> None:
    log = offsets(commit(0, 4))
    assert not [*log.check({KEY: Commit(0, 4, "a")})]
    assert [*log.check({})]
    assert [*log.check({KEY: Commit(0, 5, "a")})]
    assert [*log.check({KEY: Commit(0, 4, "a"), ("g", "t", 1): Commit(0, 4, "a")})]


def test_groups_of_a_coordinator_equal_a_replay_of_their_records() -> None:
    stable = ClassicGroup("classic", GroupState.STABLE, generation_id=3)
    consumers = ConsumerGroup("consumer", epoch=2, target_epoch=2)
    groups = {"classic": stable, "consumer": consumers}
    assert not [*check_groups(groups, groups)]
    assert not [*check_groups({}, {"simple": ClassicGroup("simple")})]
    joining = ClassicGroup("classic", GroupState.COMPLETING_REBALANCE, generation_id=4)
    assert not [*check_groups(groups, {**groups, "classic": joining})]
    for other in (
        ClassicGroup("classic", GroupState.STABLE, generation_id=4),
        ConsumerGroup("consumer", epoch=3, target_epoch=2),
    ):
        assert [*check_groups(groups, {**groups, other.group_id: other})]
    assert [*check_groups(groups, {})]
    assert [*check_groups({}, groups)]


@dataclass
class Scene:
    """A model with one partition of each internal topic, and what it has reported."""

    model: CoordinatorModel
    internal: PartitionModel
    problems: list[str]
    counts: Counter[str]

    def commit_records(self, topic: str, *records: LogRecord) -> None:
        for number in range(2):
            log: Any = self.model.log(topic, number)
            for record in records:
                if topic == TRANSACTION_STATE:
                    self.model._add(log, record, self.internal)
                else:
                    log.add(record)
            log.end = self.internal.high_watermark


@pytest.fixture
def scene() -> Scene:
    problems, counts, internal = list[str](), Counter[str](), PartitionModel()
    internal.leaders = {0: 1, 1: 2, 2: 1}
    internal.high_watermark = 10
    internal.rises = [(1, 1), (5, 10)]
    model = CoordinatorModel(
        problems.append, lambda what: counts.update([what]), lambda *_: internal
    )
    return Scene(model, internal, problems, counts)


def test_an_answered_outcome_was_committed_in_the_step_of_the_response(scene: Scene) -> None:
    scene.commit_records(TRANSACTION_STATE, transaction(0, ONGOING), transaction(1, PREPARE_COMMIT))
    scene.model.outcome_sent("id", (7, 3), True, 0, 5)
    assert not scene.problems
    scene.model.outcome_sent("id", (7, 3), True, 0, 4)
    scene.model.outcome_sent("id", (7, 3), False, 0, 5)
    assert len(scene.problems) == 2


def test_an_answered_commit_was_committed_and_never_goes_back(scene: Scene) -> None:
    scene.commit_records(CONSUMER_OFFSETS, commit(0, 4), commit(1, 5, text="b"))
    scene.model.commit_sent(KEY, 4, "a", 1)
    scene.model.commit_sent(KEY, 5, "b", 5)
    assert scene.model.answered(KEY) == 1
    scene.model.fetch_sent(KEY, 5, "b", 1, 5)
    assert not scene.problems
    for report in (
        lambda: scene.model.commit_sent(KEY, 5, "b", 1),
        lambda: scene.model.commit_sent(KEY, 5, "c", 5),
        lambda: scene.model.fetch_sent(KEY, 5, "b", 1, 1),
        lambda: scene.model.fetch_sent(KEY, 4, "a", 1, 5),
        lambda: scene.model.fetch_sent(KEY, -1, "", 1, 5),
    ):
        report()
        assert scene.problems.pop()
        assert not scene.problems


def test_the_offsets_of_a_decided_transaction_never_go_back(scene: Scene) -> None:
    scene.commit_records(CONSUMER_OFFSETS, commit(0, 4), commit(1, 5, producer_id=7, text="b"))
    scene.model.commit_decided(KEY, 5, "b")
    scene.model.fetch_sent(KEY, 4, "a", scene.model.answered(KEY), 5)
    assert scene.problems


def test_a_marker_that_ends_another_transaction_is_reported(scene: Scene) -> None:
    batch = bytes(build_marker(7, 3, EndTransactionMarker(True, 0), 0))
    scene.commit_records(TRANSACTION_STATE, transaction(0, ONGOING), transaction(1, PREPARE_COMMIT))
    scene.model.marker("topic", 0, parse_header(batch), batch)
    assert not scene.problems
    scene.commit_records(
        TRANSACTION_STATE, transaction(2, COMPLETE_COMMIT), transaction(3, ONGOING)
    )
    scene.model.marker("topic", 0, parse_header(batch), batch)
    assert not scene.problems, "the same marker, after an unclean election"
    later = parse_header(batch)._replace(base_offset=1)
    scene.model.marker("topic", 0, later, batch)
    assert scene.problems


def test_only_a_marker_that_an_unclean_election_has_removed_leaves_a_transaction_open(
    scene: Scene,
) -> None:
    batch = bytes(build_marker(7, 3, EndTransactionMarker(True, 0), 0))
    ended = parse_header(batch)._replace(base_offset=20, partition_leader_epoch=4)
    first = ended._replace(base_offset=10)

    def is_lost(producer_id: int = 7, number: int = 0, at: int = 10, epoch: int = 4) -> bool:
        begun = first._replace(base_offset=at, partition_leader_epoch=epoch)
        return scene.model.has_lost_marker("topic", number, producer_id, begun)

    scene.internal.unclean_epoch = 5
    assert not is_lost(), "no marker was committed"
    scene.model.marker("topic", 0, ended, batch)
    assert is_lost()
    assert is_lost(at=11, epoch=3)
    assert scene.counts["transactions left open by a lost marker"] == 1
    assert not is_lost(producer_id=8), "of another producer"
    assert not is_lost(number=1), "in another partition"
    assert not is_lost(at=21), "begun after the marker"
    assert not is_lost(epoch=5), "begun after the election"
    scene.internal.unclean_epoch = 4
    assert not is_lost(), "the marker was appended after the election"
    scene.internal.unclean_epoch = 9
    scene.model.marker("topic", 0, ended._replace(base_offset=15, partition_leader_epoch=9), batch)
    assert not is_lost(), "a later marker"
    assert not scene.problems


def test_transactions_that_another_broker_completes_are_counted(scene: Scene) -> None:
    what = "transactions completed by another coordinator"
    for first, last, expected in ((0, 0, 0), (0, 2, 0), (0, 1, 2)):
        scene.commit_records(
            TRANSACTION_STATE,
            transaction(0, ONGOING, leader_epoch=first),
            transaction(1, PREPARE_COMMIT, leader_epoch=first),
            transaction(2, COMPLETE_COMMIT, leader_epoch=last),
        )
        assert scene.counts[what] == expected
    assert not scene.problems


def test_a_log_is_read_again_after_an_unclean_election(scene: Scene) -> None:
    scene.commit_records(TRANSACTION_STATE, transaction(0, ONGOING))
    assert scene.model.end(TRANSACTION_STATE, 0, scene.internal) == 10
    scene.internal.unclean_elections = 1
    assert scene.model.end(TRANSACTION_STATE, 0, scene.internal) == 0
    assert scene.model.transactions[0].current("id") is None


@pytest.fixture
def coordinators() -> Any:
    """A broker that serves one partition of ``__transaction_state`` with an empty shard."""
    runtime = SimpleNamespace(
        _shards={0: SimpleNamespace(transactions={})},
        _lifecycles={0: SimpleNamespace(leader_epoch=0, _log_end_offset=10)},
    )
    return SimpleNamespace(made_transactions=SimpleNamespace(runtime=runtime), made_groups=None)


@pytest.fixture
def observer(scene: Scene) -> Iterator[CoordinatorObserver]:
    machine: Any = SimpleNamespace(host="broker-1", node_id=1)
    scene.internal.epoch = 0
    yield CoordinatorObserver(
        machine,
        scene.model,
        scene.problems.append,
        lambda what: scene.counts.update([what]),
        lambda *_: scene.internal,
    )


def test_a_coordinator_serves_what_is_committed_only(
    scene: Scene, observer: CoordinatorObserver, coordinators: Any
) -> None:
    observer.step(coordinators)
    observer.step(coordinators)
    assert not scene.problems
    assert scene.counts == {"coordinator loads of transactions": 1}
    observer.ended()
    scene.internal.high_watermark = 9
    observer.step(coordinators)
    assert "serves what it has loaded below 10" in scene.problems[0]
    assert observer.serves(coordinators, TRANSACTION_STATE, 0)
    assert not observer.serves(coordinators, TRANSACTION_STATE, 1)
    assert not observer.serves(coordinators, CONSUMER_OFFSETS, 0)


def test_a_coordinator_that_lacks_a_transaction_of_its_log_is_reported(
    scene: Scene, observer: CoordinatorObserver, coordinators: Any
) -> None:
    observer.replay(coordinators, lambda *_: [])
    assert not scene.problems
    scene.commit_records(TRANSACTION_STATE, transaction(0, ONGOING))
    observer.replay(coordinators, lambda *_: None)
    assert not scene.problems, "the log cannot be read"
    observer.replay(coordinators, lambda *_: [])
    assert "a replay of the log has" in scene.problems.pop()
    scene.internal.epoch = 1
    observer.replay(coordinators, lambda *_: [])
    assert not scene.problems, "another broker has succeeded it"
