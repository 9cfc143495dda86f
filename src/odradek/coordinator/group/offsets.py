"""Committed offsets of a shard: who may commit what, what is stored, what a fetch sees.

Kafka's rules (``OffsetMetadataManager``, ``ClassicGroup.validateOffsetCommit``). The store changes
by `OffsetStore.replay` alone, live and at load time; a commit only makes records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.coordinator.group.records import offset_commit_tombstone
from odradek.coordinator.group.state import ClassicGroup, GroupState
from odradek.coordinator.runtime import CoordinatorRecord
from odradek.errors import ErrorCode
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue

NO_OFFSET = -1
# OffsetCommit from this version on names a group that does not exist as such (KIP-848).
GROUP_ID_NOT_FOUND_FROM = 9

PartitionOffsets = dict[int, OffsetCommitValue]
TopicOffsets = dict[str, PartitionOffsets]


def validate_commit(
    group: ClassicGroup | None, request: OffsetCommitRequest, version: int
) -> ErrorCode:
    """Whether the sender may commit offsets of this group.

    A negative generation comes from an administrator or from a consumer that assigns its partitions
    itself: it may commit to a group that has no members, or that does not exist yet.
    """
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return ErrorCode.NONE
        if version >= GROUP_ID_NOT_FOUND_FROM:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


class OffsetStore:
    """group -> topic -> partition -> the committed value. Owned by its shard."""

    __slots__ = ("_by_group",)

    def __init__(self) -> None:
        self._by_group: dict[str, TopicOffsets] = {}

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Stores one committed offset, or forgets it (a tombstone)."""
        topics = self._by_group.get(key.group)
        if value is None:
            if topics is None or key.topic not in topics:
                return
            topics[key.topic].pop(key.partition, None)
            if not topics[key.topic]:
                del topics[key.topic]
            if not topics:
                del self._by_group[key.group]
            return
        if topics is None:
            topics = self._by_group[key.group] = {}
        partitions = topics.get(key.topic)
        if partitions is None:
            partitions = topics[key.topic] = {}
        partitions[key.partition] = value

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """All offsets of a group by topic and partition; empty when it has none."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        topics = self._by_group.get(group_id)
        return None if topics is None else topics.get(topic, {}).get(partition)

    def tombstones(self, topics: Iterable[str]) -> list[CoordinatorRecord]:
        """The records that forget every offset of these (deleted) topics, in all groups."""
        return [
            offset_commit_tombstone(group_id, topic, partition)
            for group_id, by_topic in self._by_group.items()
            for topic in topics
            for partition in by_topic.get(topic, ())
        ]
