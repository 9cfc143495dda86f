"""Tests of the plans of elections, leader epochs and ISR changes that are requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from odradek.controller.alter_partition import AlterPartition
from odradek.controller.broker_plans import (
    counting_led,
    missing_partitions,
    planning_alter_partitions,
    planning_balance,
    planning_directories,
    planning_drain,
    planning_leader_epochs,
    planning_requested_elections,
    planning_topic_deletions,
    with_live_leaders,
)
from odradek.controller.election import Election, ElectionPolicy
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, PartitionImage
from odradek.metadata.image_records import partition_record
from odradek.metadata.records import MetadataRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_deletion_record import TopicDeletionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.controller.test_large_changes import counted

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
NONE = ErrorCode.NONE
POLICY = ElectionPolicy(min_insync_replicas=1)


def _policies(name: TopicName) -> ElectionPolicy:
    return POLICY


def _partition(number: int, leader: int = 1, isr: Sequence[int] = (1, 2, 3)) -> PartitionImage:
    replicas = tuple(map(BrokerId, (1, 2, 3)))
    return PartitionImage(number, BrokerId(leader), 4, 7, replicas, tuple(map(BrokerId, isr)))


def _image(*partitions: PartitionImage, fenced: Sequence[int] = ()) -> MetadataImage:
    """Return an image of topic a with these partitions, and topic b with one."""
    delta = MetadataDelta(MetadataImage())
    for name, topic_id in (("a", A), ("b", B)):
        delta.replay(TopicRecord(name, topic_id))
    for partition in partitions:
        delta.replay(partition_record(A, partition))
    delta.replay(partition_record(B, _partition(0)))
    for broker in (1, 2, 3):
        registration = BrokerRegistration(BrokerId(broker), "host", 9092, epoch=broker)
        delta.register(replace(registration, fenced=broker in fenced))
    return delta.apply(MetadataProvenance(BrokerId(1), 1, 1))


def _after(image: MetadataImage, records: Sequence[MetadataRecord]) -> Sequence[PartitionImage]:
    """Return the partitions of topic a after the records. Topic b stays as it is."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    after = delta.apply(MetadataProvenance(BrokerId(1), 1, 2))
    assert after.topics_by_id[B] == image.topics_by_id[B]
    return list(after.topics_by_id[A].partitions)


# --- AlterPartition ---


def _shrink(*isr: int, partition_epoch: int = 7) -> AlterPartition:
    members = tuple((BrokerId(each), each) for each in isr)
    return AlterPartition(BrokerId(1), 1, 4, partition_epoch, members)


def test_i4_results_of_a_request_are_in_its_order() -> None:
    image = _image(_partition(0), _partition(1))
    changes = [
        (A, 1, _shrink(1, 2)),
        (A, 2, _shrink(1)),
        (Uuid(b"x" * 16), 0, _shrink(1)),
        (A, 0, _shrink(1, partition_epoch=6)),
        (A, 1, _shrink(1)),
        (A, 0, _shrink(1)),
    ]
    plan = run_to_completion(planning_alter_partitions(image, changes, _policies))
    assert [each.error for each in plan.result] == [
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,  # it was in the request before
        ErrorCode.INVALID_REQUEST,
    ]
    assert plan.result[4].partition == _partition(1)
    first, second = _after(image, plan.records)
    assert first == _partition(0)
    assert second == plan.result[0].partition
    assert (second.isr, second.partition_epoch) == ((1, 2), 8)


def test_i4_isr_change_that_is_in_effect_writes_nothing() -> None:
    image = _image(_partition(0))
    changes = [(A, 0, _shrink(1, 2, 3))]
    plan = run_to_completion(planning_alter_partitions(image, changes, _policies))
    assert (plan.result[0].error, plan.records) == (NONE, [])


# --- directories ---


def test_directories_of_partitions_without_the_replica_are_refused() -> None:
    image = _image(_partition(0))
    directory = Uuid(b"d" * 16)
    requested = {(A, 0): directory, (A, 1): directory, (Uuid(b"x" * 16), 0): directory}
    planning = planning_directories(image, BrokerId(2), requested, _policies)
    plan = run_to_completion(planning)
    assert list(plan.result.values()) == [
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    (after,) = _after(image, plan.records)
    assert after.directories == (ZERO_UUID, directory, ZERO_UUID)
    other = run_to_completion(
        planning_directories(image, BrokerId(4), {(A, 0): directory}, _policies)
    )
    assert (other.result, other.records) == ({(A, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}, [])


def test_directory_that_is_assigned_already_changes_nothing() -> None:
    directories = tuple(Uuid(bytes([number]) * 16) for number in (1, 2, 3))
    image = _image(replace(_partition(0), directories=directories))
    planning = planning_directories(image, BrokerId(2), {(A, 0): directories[1]}, _policies)
    plan = run_to_completion(planning)
    assert (plan.result, plan.records) == ({(A, 0): NONE}, [])


# --- deletions ---


def test_deletion_waits_for_registered_brokers_only() -> None:
    stranger = replace(_partition(0), replicas=tuple(map(BrokerId, (1, 2, 4))))
    plan = run_to_completion(planning_topic_deletions(_image(stranger), [A, B]))
    assert plan.result == [None, None]
    (deletion,) = [each for each in plan.records if isinstance(each, TopicDeletionRecord)]
    assert (deletion.topic_id, list(deletion.brokers)) == (A, [1, 2])
    assert len(plan.records) == 3


# --- leader epochs of mirrored partitions ---


@pytest.mark.parametrize(("epoch", "after"), [(3, 4), (4, 4), (5, 5), (9, 9)])
def test_leader_epoch_is_raised_and_never_lowered(epoch: int, after: int) -> None:
    image = _image(_partition(0), _partition(1))
    plan = run_to_completion(planning_leader_epochs(image, {(A, 1): epoch, (A, 2): 9}))
    assert plan.result == {(A, 1): NONE, (A, 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    first, second = _after(image, plan.records)
    assert first == _partition(0)
    expected = replace(_partition(1), leader_epoch=after, partition_epoch=7 + (after > 4))
    assert second == expected


# --- ElectLeaders ---


def _elected(
    image: MetadataImage,
    election: Election,
    partitions: Sequence[tuple[str, int]] | None,
) -> tuple[dict[tuple[str, int], ErrorCode], Sequence[PartitionImage]]:
    requested = (
        None if partitions is None else [(TopicName(name), number) for name, number in partitions]
    )
    plan = run_to_completion(planning_requested_elections(image, election, requested, _policies))
    codes = {
        (str(name), number): NONE if error is None else error.code
        for (name, number), error in plan.result.items()
    }
    return codes, _after(image, plan.records)


LEADERS = (_partition(0, leader=2), _partition(1), _partition(2, leader=2, isr=(2, 3)))


def test_e2_preferred_elections_have_a_result_for_each_requested_partition() -> None:
    requested = [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("c", 0), ("a", 0)]
    codes, after = _elected(_image(*LEADERS), Election.PREFERRED, requested)
    assert codes == {
        ("a", 0): NONE,
        ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("a", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("c", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [each.leader for each in after] == [1, 1, 2]
    assert [each.leader_epoch for each in after] == [5, 4, 4]


def test_e2_elections_of_all_partitions_report_those_that_need_one() -> None:
    codes, after = _elected(_image(*LEADERS), Election.PREFERRED, None)
    assert codes == {("a", 0): NONE, ("a", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert [each.leader for each in after] == [1, 1, 2]


def test_text_of_an_unknown_partition_names_what_is_unknown() -> None:
    requested = [(TopicName("a"), 9), (TopicName("c"), 0)]
    planning = planning_requested_elections(
        _image(*LEADERS), Election.PREFERRED, requested, _policies
    )
    errors = run_to_completion(planning).result.values()
    assert [str(each) for each in errors if each is not None] == [
        "No such partition as a-9",
        "No such topic as c",
    ]


def test_e3_unclean_election_elects_a_replica_out_of_sync() -> None:
    image = _image(_partition(0, leader=NO_LEADER, isr=(1,)), _partition(1, leader=2), fenced=(1,))
    codes, after = _elected(image, Election.UNCLEAN, [("a", 0), ("a", 1)])
    assert codes == {("a", 0): NONE, ("a", 1): ErrorCode.ELECTION_NOT_NEEDED}
    assert [(each.leader, each.isr) for each in after] == [(2, (2,)), (2, (1, 2, 3))]


# --- balance, leaderships ---


def test_balance_gives_first_replicas_their_leaderships_where_they_are_available() -> None:
    image = _image(*LEADERS)
    after = _after(image, run_to_completion(planning_balance(image, _policies, 10)))
    assert [each.leader for each in after] == [1, 1, 2]
    fenced = _image(*LEADERS, fenced=(1,))
    assert run_to_completion(planning_balance(fenced, _policies, 10)) == []
    assert run_to_completion(planning_balance(image, _policies, 100)) == []


def test_leaderships_of_a_broker_are_counted() -> None:
    image = _image(*LEADERS)
    led = [run_to_completion(counting_led(image, BrokerId(broker))) for broker in (1, 2, 3)]
    assert led == [2, 2, 0]


# --- new partitions ---


@pytest.mark.parametrize(
    ("fenced", "leader", "isr"),
    [((), 1, [1, 2, 3]), ((1,), 2, [2, 3]), ((1, 2), 3, [3]), ((1, 2, 3), NO_LEADER, [1])],
)
def test_new_partition_has_a_live_leader_and_the_live_replicas_in_sync(
    fenced: Sequence[int], leader: int, isr: Sequence[int]
) -> None:
    image = _image(fenced=fenced)
    record = partition_record(A, _partition(0, leader=3))
    (found,) = run_to_completion(with_live_leaders([record], image, image.brokers))
    assert isinstance(found, PartitionRecord)
    assert (found.leader, list(found.isr)) == (leader, isr)


def test_new_partition_is_not_led_by_a_broker_that_stops_or_is_unknown() -> None:
    image = _image()
    brokers = dict(image.brokers)
    del brokers[BrokerId(1)]
    brokers[BrokerId(2)] = replace(brokers[BrokerId(2)], in_controlled_shutdown=True)
    record = partition_record(A, _partition(0))
    (found,) = run_to_completion(with_live_leaders([record], image, brokers))
    assert isinstance(found, PartitionRecord)
    assert (found.leader, list(found.isr)) == (3, [3])


def test_record_of_an_existing_partition_keeps_its_leader_and_its_isr() -> None:
    image = _image(_partition(0, leader=3, isr=(3,)))
    (before,) = image.topics_by_id[A].partitions
    changed, added = (partition_record(A, replace(before, partition=number)) for number in (0, 1))
    found = run_to_completion(with_live_leaders([changed, added], image, image.brokers))
    states = [(each.leader, each.isr) for each in found if isinstance(each, PartitionRecord)]
    assert states == [(3, [3]), (1, [1, 2, 3])]


def test_partitions_that_a_previous_controller_did_not_create_are_created() -> None:
    whole = _image(*(_partition(number) for number in range(4)))
    image = _image(_partition(0), _partition(1))
    planning = missing_partitions([whole.topics_by_id[A]], image, dict(image.brokers))
    assert len(_after(image, run_to_completion(planning))) == 4


# --- time slices ---


def test_requests_for_many_partitions_are_planned_in_time_slices() -> None:
    count = 4 * ELEMENTS_PER_SLICE
    image = _image(*(_partition(number, leader=2) for number in range(count)))
    numbers = range(count)
    plans = (
        planning_alter_partitions(image, [(A, n, _shrink(1)) for n in numbers], _policies),
        planning_directories(image, BrokerId(2), {(A, n): B for n in numbers}, _policies),
        planning_leader_epochs(image, {(A, n): 9 for n in numbers}),
        planning_requested_elections(image, Election.PREFERRED, None, _policies),
        counting_led(image, BrokerId(2)),
    )
    for plan in plans:
        assert counted(plan)[0] >= 4


def test_each_deleted_topic_ends_a_time_slice_of_the_plan() -> None:
    """The deletion names the brokers of all partitions."""
    image = _image(_partition(0))
    assert counted(planning_topic_deletions(image, [A, B]))[0] >= 2


# --- drained brokers ---


def _drained(image: MetadataImage, drained: bool = True) -> tuple[MetadataImage, list[int]]:
    """Drain broker 1, or end that. Return the image and the partitions that it still leads."""
    plan = run_to_completion(planning_drain(image, BrokerId(1), drained, _policies))
    assert plan.result.is_last
    remaining = [number for name, number in plan.result.remaining if name == "a"]
    return _drain_applied(image, plan.records), remaining


def _drain_applied(image: MetadataImage, records: Sequence[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(MetadataProvenance(BrokerId(1), 1, 2))


def _leaders(image: MetadataImage) -> list[int]:
    return [each.leader for each in image.topics_by_id[A].partitions]


def test_a_drained_broker_gives_its_leaderships_to_replicas_in_sync_and_stays_in_sync() -> None:
    image = _image(_partition(0), _partition(1, leader=3), _partition(2, isr=(1, 3)))
    after, remaining = _drained(image)
    assert _leaders(after) == [2, 3, 3]
    assert [each.isr for each in after.topics_by_id[A].partitions] == [(1, 2, 3), (1, 2, 3), (1, 3)]
    assert remaining == []
    assert after.brokers[BrokerId(1)].drained


def test_a_drained_broker_keeps_a_partition_that_no_other_replica_can_lead() -> None:
    image = _image(_partition(0, isr=(1,)), _partition(1, isr=(1, 2)), fenced=(2,))
    after, remaining = _drained(image)
    assert _leaders(after) == [1, 1]
    assert remaining == [0, 1]


def test_a_drained_broker_loses_a_leadership_when_another_replica_is_in_sync_again() -> None:
    image, _ = _drained(_image(_partition(0, isr=(1,))))
    policy = replace(POLICY, avoided=frozenset({BrokerId(1)}))
    grown = AlterPartition(BrokerId(1), 1, 4, 7, ((BrokerId(1), 1), (BrokerId(2), 2)))
    plan = run_to_completion(planning_alter_partitions(image, [(A, 0, grown)], lambda _: policy))
    assert plan.result[0].error is ErrorCode.NEW_LEADER_ELECTED
    (after,) = _after(image, plan.records)
    assert (after.leader, after.isr) == (2, (1, 2))


def test_a_drained_broker_is_no_preferred_leader_and_gets_no_new_partition() -> None:
    image, _ = _drained(_image(_partition(0)))
    policy = replace(POLICY, avoided=frozenset({BrokerId(1)}))
    planning = planning_requested_elections(image, Election.PREFERRED, None, lambda _: policy)
    assert run_to_completion(planning).records == []
    assert run_to_completion(planning_balance(image, lambda _: policy, 0)) == []
    record = partition_record(A, _partition(7))
    assert isinstance(record, PartitionRecord)
    run_to_completion(with_live_leaders([record], image, image.brokers))
    assert (record.leader, record.isr) == (2, [1, 2, 3])


def test_a_broker_that_is_no_longer_drained_gets_its_leaderships_back() -> None:
    image = _image(_partition(0), _partition(1, leader=3), _partition(2, leader=2, isr=(2, 3)))
    after, _ = _drained(_drained(image)[0], drained=False)
    assert _leaders(after) == [1, 1, 2]
    assert not after.brokers[BrokerId(1)].drained


def test_a_repeated_drain_writes_nothing() -> None:
    image, _ = _drained(_image(_partition(0)))
    plan = run_to_completion(planning_drain(image, BrokerId(1), True, _policies))
    assert plan.records == []


def test_a_drain_moves_few_leaderships_in_each_step() -> None:
    image = _image(*map(_partition, range(5)), _partition(5, isr=(1,)))
    moved = []
    for is_first in (True, False, False, False):
        step = planning_drain(image, BrokerId(1), True, _policies, moves_max=2, is_first=is_first)
        plan = run_to_completion(step)
        image = _drain_applied(image, plan.records)
        moved.append(sum(leader != 1 for leader in _leaders(image)))
        assert plan.result.is_last == (len(moved) == 4), "the third step moves one of topic b"
        assert image.brokers[BrokerId(1)].drained, "from the first step on"
    assert (moved, plan.result.remaining) == ([2, 4, 5, 5], [("a", 5)])


def test_the_end_of_a_drain_stops_its_further_steps() -> None:
    image, _ = _drained(_image(*map(_partition, range(3))), drained=False)
    plan = run_to_completion(planning_drain(image, BrokerId(1), True, _policies, is_first=False))
    assert plan.records == [] and plan.result.is_last


def test_an_unknown_broker_cannot_be_drained() -> None:
    with pytest.raises(KafkaError) as found:
        run_to_completion(planning_drain(_image(), BrokerId(9), True, _policies))
    assert found.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
