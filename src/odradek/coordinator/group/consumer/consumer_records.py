"""The records of consumer groups, in Kafka's schemas of ``__consumer_offsets``, and their replay.

The key types are:

- 3: the epoch of the group, with a hash of its topics.
- 4: the topics of the group. Brokers before 4.1 wrote them. They are read and ignored.
- 5: the metadata of a member.
- 6: the epoch of the target assignment.
- 7: the target assignment of a member.
- 8: the current assignment of a member.
- 16: the topics that a regular expression matched.

A null value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from odradek.coordinator.coordinator_result import CoordinatorRecord
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup, Resolved
from odradek.coordinator.group.consumer.consumer_member import (
    LEAVE_EPOCH,
    NO_PARTITIONS,
    Assignment,
    ClassicMember,
    ConsumerMember,
    MemberState,
)
from odradek.ids import Uuid
from odradek.protocol.codec import Message
from odradek.protocol.messages import (
    consumer_group_current_member_assignment_value as current_value,
)
from odradek.protocol.messages import consumer_group_member_metadata_value as member_value
from odradek.protocol.messages import consumer_group_target_assignment_member_value as target_value
from odradek.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from odradek.protocol.messages.consumer_group_member_metadata_key import (
    ConsumerGroupMemberMetadataKey,
)
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from odradek.protocol.messages.consumer_group_partition_metadata_key import (
    ConsumerGroupPartitionMetadataKey,
)
from odradek.protocol.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from odradek.protocol.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from odradek.protocol.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

NO_EPOCH = -1

Key = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)


class TopicPartitions(Protocol):
    """The partitions of one topic in an assignment. Four messages have their own class for it."""

    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partitions(self) -> Sequence[int]: ...


def _record(key: Key, value: Message | None) -> CoordinatorRecord:
    return CoordinatorRecord(key, value, 0)


# -- writing ---------------------------------------------------------------------------------------


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of the group's epoch and of the hash of its topics."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(ConsumerGroupMetadataKey(group_id), value)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's metadata."""
    classic = None
    if member.classic is not None:
        classic = member_value.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                member_value.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    value = member_value.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return _record(ConsumerGroupMemberMetadataKey(group_id, member.member_id), value)


def target_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """Return the record of the target assignment's epoch: the last record of a new assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return _record(ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Return the record of a member's target assignment."""
    value = target_value.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            target_value.TopicPartition(topic_id, sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    return _record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's current assignment and epoch."""
    value = current_value.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_stored(member.assigned),
        partitions_pending_revocation=_stored(member.pending_revocation),
    )
    return _record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def _stored(assignment: Assignment) -> list[current_value.TopicPartitions]:
    return [
        current_value.TopicPartitions(topic_id, sorted(partitions))
        for topic_id, partitions in assignment.items()
    ]


def regex_record(group_id: str, regex: str, resolved: Resolved) -> CoordinatorRecord:
    """Return the record of the topics that a regular expression matched."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.time_ms
    )
    return _record(ConsumerGroupRegularExpressionKey(group_id, regex), value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Return the tombstone of an expression that no member uses any longer."""
    return _record(ConsumerGroupRegularExpressionKey(group_id, regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that remove a member."""
    return [
        _record(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        _record(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        _record(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(
    group: ConsumerGroup, renamed: tuple[str, str] | None = None
) -> list[CoordinatorRecord]:
    """Return the records that remove a group.

    `renamed` is (old id, new id) of a static member whose records are in the log under the new id
    already.
    """
    group_id = group.group_id
    ids = [*group.members]
    if renamed is not None:
        ids = [renamed[1] if each == renamed[0] else each for each in ids]
    return [
        *(_record(ConsumerGroupCurrentMemberAssignmentKey(group_id, each), None) for each in ids),
        *(_record(ConsumerGroupTargetAssignmentMemberKey(group_id, each), None) for each in ids),
        _record(ConsumerGroupTargetAssignmentMetadataKey(group_id), None),
        *(_record(ConsumerGroupMemberMetadataKey(group_id, each), None) for each in ids),
        *(regex_tombstone(group_id, regex) for regex in group.regexes),
        _record(ConsumerGroupMetadataKey(group_id), None),
    ]


def creation_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the records that create `group`."""
    group_id, members = group.group_id, list(group.members.values())
    return [
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, group.epoch, group.metadata_hash),
        *(
            target_record(group_id, member_id, target)
            for member_id, target in group.targets.items()
        ),
        target_epoch_record(group_id, group.target_epoch),
        *(current_record(group_id, member) for member in members),
    ]


# -- reading ---------------------------------------------------------------------------------------


def replay(group: ConsumerGroup, key: Key, value: Message | None) -> None:
    """Apply one record to its group. The shard handles the tombstone of the group itself."""
    if value is None:
        _replay_tombstone(group, key)
    else:
        _replay_value(group, key, value)


def _replay_tombstone(group: ConsumerGroup, key: Key) -> None:
    match key:
        case ConsumerGroupMemberMetadataKey():
            group.drop_member(key.member_id)
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.target_epoch = NO_EPOCH
        case ConsumerGroupTargetAssignmentMemberKey():
            group.targets.pop(key.member_id, None)
        case ConsumerGroupCurrentMemberAssignmentKey():
            _replay_current_tombstone(group, key.member_id)
        case ConsumerGroupRegularExpressionKey():
            group.regexes.pop(key.regular_expression, None)


def _replay_value(group: ConsumerGroup, key: Key, value: Message) -> None:
    match key, value:
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ConsumerGroupMemberMetadataKey(), member_value.ConsumerGroupMemberMetadataValue():
            _replay_member(group, key.member_id, value)
        case (
            ConsumerGroupTargetAssignmentMetadataKey(),
            ConsumerGroupTargetAssignmentMetadataValue(),
        ):
            group.target_epoch = value.assignment_epoch
        case (
            ConsumerGroupTargetAssignmentMemberKey(),
            target_value.ConsumerGroupTargetAssignmentMemberValue(),
        ):
            # Removed first, so that the new target is the last one in the order of the dict.
            group.targets.pop(key.member_id, None)
            group.targets[key.member_id] = read_assignment(value.topic_partitions)
        case (
            ConsumerGroupCurrentMemberAssignmentKey(),
            current_value.ConsumerGroupCurrentMemberAssignmentValue(),
        ):
            _replay_current(group, key.member_id, value)
        case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
            group.regexes.pop(key.regular_expression, None)
            resolved = Resolved(frozenset(value.topics), value.version, value.timestamp)
            group.regexes[key.regular_expression] = resolved
        case ConsumerGroupPartitionMetadataKey(), _:
            pass  # Brokers before 4.1 wrote the topics of a group here.
        case _:
            raise AssertionError(f"{key} has the value {value}")


def _replay_member(
    group: ConsumerGroup, member_id: str, value: member_value.ConsumerGroupMemberMetadataValue
) -> None:
    classic = None
    if value.classic_member_metadata is not None:
        stored = value.classic_member_metadata
        classic = ClassicMember(
            stored.session_timeout_ms,
            tuple((each.name, each.metadata) for each in stored.supported_protocols),
        )
    known = group.members.get(member_id) or ConsumerMember(member_id)
    group.put_member(
        replace(
            known,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=classic,
        )
    )


def _replay_current_tombstone(group: ConsumerGroup, member_id: str) -> None:
    # The tombstone of the member itself follows. Until then it has no partitions.
    known = group.members.get(member_id)
    if known is not None:
        group.put_member(
            replace(
                known,
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                state=MemberState.STABLE,
                assigned=NO_PARTITIONS,
                pending_revocation=NO_PARTITIONS,
            )
        )


def _replay_current(
    group: ConsumerGroup,
    member_id: str,
    value: current_value.ConsumerGroupCurrentMemberAssignmentValue,
) -> None:
    states = {int(state): state for state in MemberState}
    known = group.members.get(member_id) or ConsumerMember(member_id)
    group.put_member(
        replace(
            known,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=states.get(value.state, MemberState.UNKNOWN),
            assigned=read_assignment(value.assigned_partitions),
            pending_revocation=read_assignment(value.partitions_pending_revocation),
        )
    )


def read_assignment(stored: Sequence[TopicPartitions]) -> Assignment:
    """Return the assignment of a record or a request. Topics without partitions are left out."""
    return {each.topic_id: frozenset(each.partitions) for each in stored if each.partitions}
