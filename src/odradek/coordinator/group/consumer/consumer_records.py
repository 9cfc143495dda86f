"""The records of consumer groups, in Kafka's schemas of ``__consumer_offsets``.

`ConsumerGroup.replay` applies them.

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

from odradek.coordinator.coordinator_result import CoordinatorRecord
from odradek.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    GroupRecordKey,
    Resolved,
)
from odradek.coordinator.group.consumer.consumer_member import (
    Assignment,
    ConsumerMember,
)
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


def _record(key: GroupRecordKey, value: Message | None) -> CoordinatorRecord:
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
