"""The controller's checks of AlterPartition. Rule I4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.controller.alter_partition import (
    AlterPartition,
    AlterPartitionResult,
    alter_partition,
    check_sender,
    find_partition,
)
from odradek.controller.election import ElectionPolicy
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.image import (
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionImage,
    TopicImage,
)

ONE, TWO, THREE = (BrokerId(each) for each in (1, 2, 3))
BROKERS = {
    each: BrokerRegistration(each, "", 0, epoch=100 + each)
    for each in (ONE, TWO, THREE, BrokerId(4))
}
PARTITION = PartitionImage(0, ONE, 7, 20, (ONE, TWO, THREE), (ONE, TWO))
EXPANSION = AlterPartition(
    ONE, 101, 7, 20, ((ONE, -1), (TWO, 102), (THREE, 103)), LeaderRecoveryState.RECOVERED
)
RECOVERING = LeaderRecoveryState.RECOVERING


def decide(
    request: AlterPartition,
    partition: PartitionImage = PARTITION,
    brokers: dict[BrokerId, BrokerRegistration] = BROKERS,
) -> AlterPartitionResult:
    return alter_partition(
        partition,
        request,
        brokers,
        lambda broker: not brokers[broker].fenced,
        ElectionPolicy(min_insync_replicas=2),
    )


def test_i4_expansion_is_committed() -> None:
    result = decide(EXPANSION)
    assert (result.error, result.changed) == (ErrorCode.NONE, True)
    assert result.partition == replace(PARTITION, isr=(ONE, TWO, THREE), partition_epoch=21)


def test_i4_shrink_below_the_minimum_fills_the_elr() -> None:
    result = decide(replace(EXPANSION, isr=((ONE, 101),)))
    assert result.partition == replace(PARTITION, isr=(ONE,), elr=(TWO,), partition_epoch=21)


def test_i4_equal_isr_is_no_change() -> None:
    result = decide(replace(EXPANSION, isr=((TWO, 102), (ONE, 101))))
    assert result == AlterPartitionResult(ErrorCode.NONE, PARTITION)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"leader_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 21}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 6}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"broker_id": TWO}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 19}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ((ONE, 101), (BrokerId(4), 104))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((ONE, 101), (ONE, 101))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((TWO, 102), (THREE, 103))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        # Of two faults, the earlier check decides.
        ({"leader_epoch": 6, "partition_epoch": 21}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 6, "broker_id": TWO}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 6, "partition_epoch": 19}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"broker_id": TWO, "partition_epoch": 19}, ErrorCode.INVALID_REQUEST),
        ({"partition_epoch": 19, "isr": ()}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ((TWO, 99), (THREE, 99))}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_i4_refused_request_changes_nothing(changes: dict[str, Any], error: ErrorCode) -> None:
    assert decide(replace(EXPANSION, **changes)) == AlterPartitionResult(error, PARTITION)


@pytest.mark.parametrize(
    ("state", "isr", "requested", "error"),
    [
        (RECOVERING, (ONE,), RECOVERING, ErrorCode.NONE),
        (RECOVERING, (ONE, TWO), RECOVERING, ErrorCode.INVALID_REQUEST),
        (RECOVERING, (ONE, TWO), LeaderRecoveryState.RECOVERED, ErrorCode.NONE),
        (LeaderRecoveryState.RECOVERED, (ONE,), RECOVERING, ErrorCode.INVALID_REQUEST),
    ],
)
def test_i4_recovering_leader_is_alone_in_its_isr(
    state: LeaderRecoveryState,
    isr: tuple[BrokerId, ...],
    requested: LeaderRecoveryState,
    error: ErrorCode,
) -> None:
    before = replace(PARTITION, isr=(ONE,), leader_recovery_state=state)
    members = tuple((each, BROKERS[each].epoch) for each in isr)
    request = replace(EXPANSION, isr=members, leader_recovery_state=requested)
    assert decide(request, before).error is error


@pytest.mark.parametrize(
    "change", [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": 104}]
)
def test_i4_member_that_is_not_eligible_is_refused(change: dict[str, Any]) -> None:
    """Fencing matrix: an old incarnation of a broker (KIP-903)."""
    brokers = {**BROKERS, THREE: replace(BROKERS[THREE], **change)}
    assert decide(EXPANSION, brokers=brokers).error is ErrorCode.INELIGIBLE_REPLICA


def test_i4_member_without_a_broker_epoch_must_be_in_the_isr_already() -> None:
    request = replace(EXPANSION, isr=((ONE, -1), (TWO, -1), (THREE, 103)))
    assert decide(request).error is ErrorCode.NONE
    request = replace(EXPANSION, isr=((ONE, -1), (TWO, 102), (THREE, -1)))
    assert decide(request).error is ErrorCode.INELIGIBLE_REPLICA


def test_i4_refused_replica_voids_copies_of_the_request() -> None:
    """The leader reverts. A copy that arrives when the replica is eligible must not be accepted."""
    brokers = {**BROKERS, THREE: replace(BROKERS[THREE], fenced=True)}
    refused = decide(EXPANSION, brokers=brokers)
    assert refused.changed
    assert refused.partition == replace(PARTITION, partition_epoch=21)
    assert decide(EXPANSION, refused.partition).error is ErrorCode.INVALID_UPDATE_VERSION


def test_i4_old_process_of_the_leader_is_refused() -> None:
    """Fencing matrix: an old incarnation of a broker."""
    assert check_sender(BROKERS, ONE, 101) is ErrorCode.NONE
    assert check_sender(BROKERS, ONE, 100) is ErrorCode.STALE_BROKER_EPOCH
    assert check_sender(BROKERS, ONE, -1) is ErrorCode.STALE_BROKER_EPOCH
    assert check_sender(BROKERS, BrokerId(9), 5) is ErrorCode.STALE_BROKER_EPOCH


def test_i4_topic_that_was_created_again_is_unknown() -> None:
    """Fencing matrix: a topic that was deleted and created again."""
    topic_id = Uuid(b"n" * 16)
    topics = {topic_id: TopicImage(TopicName("t"), topic_id, (PARTITION,))}
    assert find_partition(topics, topic_id, 0) == PARTITION
    assert find_partition(topics, Uuid(b"o" * 16), 0) is ErrorCode.UNKNOWN_TOPIC_ID
    assert find_partition(topics, topic_id, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert find_partition(topics, topic_id, -1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_i4_leader_that_may_not_lead_is_replaced() -> None:
    brokers = {**BROKERS, ONE: replace(BROKERS[ONE], fenced=True)}
    request = replace(EXPANSION, isr=((ONE, 101), (TWO, 102)))
    assert decide(request, brokers=brokers).error is ErrorCode.INELIGIBLE_REPLICA


def test_i4_member_that_is_not_registered_is_refused() -> None:
    brokers = {broker: each for broker, each in BROKERS.items() if broker != THREE}
    assert decide(EXPANSION, brokers=brokers).error is ErrorCode.INELIGIBLE_REPLICA


def test_i4_leader_without_its_directory_is_replaced_and_the_change_is_written() -> None:
    """The leader is live, but its log directory has failed."""
    policy = ElectionPolicy(min_insync_replicas=2)
    result = alter_partition(PARTITION, EXPANSION, BROKERS, lambda broker: broker != ONE, policy)
    assert (result.error, result.changed) == (ErrorCode.NEW_LEADER_ELECTED, True)
    assert result.partition is not None
    assert (result.partition.leader, result.partition.leader_epoch) == (TWO, 8)
