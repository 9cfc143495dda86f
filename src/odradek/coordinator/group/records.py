"""The records of a group shard, in Kafka's schemas of ``__consumer_offsets``.

Two kinds are written now: OffsetCommitKey/Value (key type 1) and GroupMetadataKey/Value (key type
2). OffsetCommitValue is written in version 3, or in version 1 when the client named a retention
time, as that alone has an expire timestamp; GroupMetadataValue in version 3. A null value is a
tombstone.
"""

from __future__ import annotations

from odradek.coordinator.group.state import ClassicGroup
from odradek.coordinator.runtime import CoordinatorRecord
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue

GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1


def group_metadata_record(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """The durable part of `group`, with each member's bytes of `assignments` (none: empty)."""
    protocol = group.protocol_name
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=b"" if protocol is None else member.protocols[protocol],
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    key = GroupMetadataKey(group=group.group_id)
    return CoordinatorRecord(key, value, GROUP_METADATA_VALUE_VERSION)


def group_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """The end of a classic group."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None, GROUP_METADATA_VALUE_VERSION)


def offset_commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Removes one committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, None, OFFSET_COMMIT_VALUE_VERSION)


def offset_commit_record(key: OffsetCommitKey, value: OffsetCommitValue) -> CoordinatorRecord:
    """One committed offset; a value with an expire timestamp needs the version that has one."""
    version = OFFSET_COMMIT_VALUE_VERSION
    if value.expire_timestamp != -1:
        version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY
    return CoordinatorRecord(key, value, version)
