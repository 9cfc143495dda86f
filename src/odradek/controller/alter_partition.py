"""The controller's checks of AlterPartition, and the change that follows. Pure decisions (rule I4).

The order of the checks and the error codes are those of Kafka's ``ReplicationControlManager``.
There is one addition. INELIGIBLE_REPLICA also raises the partition epoch. The leader reverts to its
committed ISR then, and an earlier copy of its request that is still in flight must not be accepted
later, when the replica is eligible again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from odradek.controller.election import Acceptable, ElectionPolicy, changed_partition
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, Uuid
from odradek.metadata.image import (
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionImage,
    TopicImage,
)


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """The change of one partition in an AlterPartition request.

    Attributes:
        broker_id, broker_epoch: The sender.
        isr: The new ISR as (broker id, broker epoch). An epoch of -1 is permitted only for a member
            of the current ISR.
    """

    broker_id: BrokerId
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The decision on one partition.

    Attributes:
        error: NONE, or the reason of the refusal.
        partition: The partition after the request, for the response. None if it does not exist.
        changed: Whether the controller has to write `partition`.
    """

    error: ErrorCode
    partition: PartitionImage | None = None
    changed: bool = False


def check_sender(
    brokers: Mapping[BrokerId, BrokerRegistration], broker_id: BrokerId, broker_epoch: int
) -> ErrorCode:
    """Return STALE_BROKER_EPOCH unless the sender is the broker that is registered now."""
    registration = brokers.get(broker_id)
    if registration is None or registration.epoch != broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def find_partition(
    topics_by_id: Mapping[Uuid, TopicImage], topic_id: Uuid, partition: int
) -> PartitionImage | ErrorCode:
    topic = topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic.partitions[partition]


def alter_partition(
    partition: PartitionImage,
    request: AlterPartition,
    brokers: Mapping[BrokerId, BrokerRegistration],
    acceptable: Acceptable,
    policy: ElectionPolicy,
) -> AlterPartitionResult:
    """Decide on a leader's new ISR. The sender and the topic id are checked already."""
    error = _check_request(partition, request)
    if not error:
        error = _check_members(partition, request, brokers)
    if error is ErrorCode.INELIGIBLE_REPLICA:
        fenced = replace(partition, partition_epoch=partition.partition_epoch + 1)
        return AlterPartitionResult(error, fenced, changed=True)
    if error:
        return AlterPartitionResult(error, partition)
    # An equal set is no change, in whatever order the request has it.
    members = [broker for broker, _ in request.isr]
    isr = partition.isr if set(members) == set(partition.isr) else tuple(members)
    changed = changed_partition(
        partition,
        acceptable,
        policy,
        isr=isr,
        leader_recovery_state=request.leader_recovery_state,
    )
    if changed is None:
        return AlterPartitionResult(ErrorCode.NONE, partition)
    if changed.leader_epoch != partition.leader_epoch:
        # The leader may not lead any longer. The new election has taken its change into account.
        return AlterPartitionResult(ErrorCode.NEW_LEADER_ELECTED, changed, changed=True)
    return AlterPartitionResult(ErrorCode.NONE, changed, changed=True)


def _check_request(partition: PartitionImage, request: AlterPartition) -> ErrorCode:
    """Check the epochs, the sender and the members of the request."""
    if (
        request.leader_epoch > partition.leader_epoch
        or request.partition_epoch > partition.partition_epoch
    ):
        # This controller is behind the leader: another one is active.
        return ErrorCode.NOT_CONTROLLER
    if request.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if request.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [broker for broker, _ in request.isr]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in members:
        return ErrorCode.INVALID_REQUEST
    recovering = LeaderRecoveryState.RECOVERING
    if request.leader_recovery_state is recovering and (
        len(members) > 1 or partition.leader_recovery_state is not recovering
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _check_members(
    partition: PartitionImage,
    request: AlterPartition,
    brokers: Mapping[BrokerId, BrokerRegistration],
) -> ErrorCode:
    """Refuse members that are fenced, shut down, or are not the process that has fetched."""
    for broker, epoch in request.isr:
        registration = brokers.get(broker)
        if registration is None or registration.fenced or registration.in_controlled_shutdown:
            return ErrorCode.INELIGIBLE_REPLICA
        if epoch == UNKNOWN_BROKER_EPOCH:
            if broker not in partition.isr:
                return ErrorCode.INELIGIBLE_REPLICA
        elif epoch != registration.epoch:
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
