"""Removal of offsets and groups: retention, DeleteGroups, OffsetDelete. Pure decisions.

Kafka's rules (``OffsetMetadataManager.cleanupExpiredOffsets``, -deleteOffsets, -deleteAllOffsets
and ``GroupCoordinatorShard.cleanupGroupMetadata``, -deleteGroups). Each function reads a shard and
returns records. The replay of the records removes the offsets and groups. Offsets that an open
transaction may still commit do not expire, and neither does their group. DeleteGroups and
OffsetDelete remove them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from odradek.coordinator.coordinator_result import CoordinatorRecord
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import OffsetsAge
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.consumer_records import group_tombstones
from odradek.coordinator.group.group_records import (
    group_metadata_tombstone,
    offset_commit_tombstone,
)
from odradek.coordinator.group.group_shard import Group, GroupShard
from odradek.coordinator.group.offsets.offset_store import NO_EXPIRY, CommittedOffset
from odradek.errors import ErrorCode
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

OFFSETS_PER_PIECE = 100
"""Offsets that are checked, and whose tombstones are written, in one piece of a time slice."""


def expiring(
    shard: GroupShard, group_id: str, now_ms: int, retention_ms: int
) -> Iterator[list[CoordinatorRecord]]:
    """Find the expired offsets of a group in pieces, and whether the group is to be removed.

    A group without members is removed when it has no offsets left. Each piece is decided in the
    state at the time of its iteration, which may follow in a later time slice.

    Yields:
        The tombstones of a piece, possibly none. They are written before the next iteration.
    """
    topics = shard.offsets.of_group(group_id).items()
    keys = [(topic, partition) for topic, partitions in topics for partition in partitions]
    for first in range(0, len(keys), OFFSETS_PER_PIECE):
        piece = keys[first : first + OFFSETS_PER_PIECE]
        yield _expired_tombstones(shard, group_id, piece, now_ms, retention_ms)
    group = shard.groups.get(group_id)
    if (
        group is not None
        and not shard.offsets.of_group(group_id)
        and not shard.offsets.has_open_transactions(group_id)
        and group.validate_delete() is ErrorCode.NONE
    ):
        yield tombstones_of(group)


def _expired_tombstones(
    shard: GroupShard,
    group_id: str,
    keys: Iterable[tuple[str, int]],
    now_ms: int,
    retention_ms: int,
) -> list[CoordinatorRecord]:
    """Return the tombstones of those offsets that have expired."""
    group = shard.groups.get(group_id)
    age = OffsetsAge.NEVER if group is None else group.offsets_age()
    if group is None or age is OffsetsAge.NEVER:
        return []
    since = None
    if age is OffsetsAge.SINCE_EMPTY:
        assert isinstance(group, ClassicGroup)
        since = group.state_timestamp_ms
    expired = _expired(now_ms, retention_ms, since)
    tombstones: list[CoordinatorRecord] = []
    for topic, of_topic in groupby(keys, itemgetter(0)):
        if group.is_subscribed_to(topic):
            continue
        for _, partition in of_topic:
            value = shard.offsets.get(group_id, topic, partition)
            if (
                value is not None
                and expired(value)
                and not shard.offsets.is_pending(group_id, topic, partition)
            ):
                tombstones.append(offset_commit_tombstone(group_id, topic, partition))
    return tombstones


def _expired(
    now_ms: int, retention_ms: int, since_ms: int | None
) -> Callable[[CommittedOffset], bool]:
    """Return a function that reports whether an offset has expired.

    The retention time begins at `since_ms`, or at the commit of the offset when that is None. An
    expire timestamp, which old clients may request, has precedence.
    """

    def expired(value: CommittedOffset) -> bool:
        if value.expire_timestamp != NO_EXPIRY:
            return now_ms >= value.expire_timestamp
        base_ms = value.commit_timestamp if since_ms is None else since_ms
        return now_ms - base_ms >= retention_ms

    return expired


def tombstones_of(group: Group) -> list[CoordinatorRecord]:
    """Return the records that remove a group."""
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    return [group_metadata_tombstone(group.group_id)]


def delete_group(
    shard: GroupShard, group_id: str
) -> tuple[ErrorCode, Iterator[list[CoordinatorRecord]]]:
    """Return the code of DeleteGroups for one group, and the tombstones in pieces.

    The tombstones are those of its offsets and, in the last piece, of the group itself. Each piece
    is written before the next iteration. A group with members is not deleted.
    """
    group = shard.groups.get(group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_delete()
    return code, iter(()) if code else _group_tombstones(shard, group_id)


def _group_tombstones(shard: GroupShard, group_id: str) -> Iterator[list[CoordinatorRecord]]:
    while True:
        records = shard.offsets.group_tombstones(group_id, OFFSETS_PER_PIECE)
        if len(records) == OFFSETS_PER_PIECE:
            yield records
            continue
        group = shard.groups.get(group_id)
        yield records if group is None else [*records, *tombstones_of(group)]
        return


def delete_offsets(
    shard: GroupShard, request: OffsetDeleteRequest
) -> tuple[OffsetDeleteResponse, Iterator[list[CoordinatorRecord]]]:
    """Return the response of OffsetDelete, and its tombstones in pieces.

    The response is complete after the last piece. Each piece is written before the next iteration.
    A topic that a consumer of the group subscribes to gets GROUP_SUBSCRIBED_TO_TOPIC.
    """
    group = shard.groups.get(request.group_id)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_offset_delete()
    if group is None or code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=code), iter(())
    response = OffsetDeleteResponse()
    return response, _deleting_offsets(shard, group, request.topics, response)


def _deleting_offsets(
    shard: GroupShard,
    group: Group,
    topics: Sequence[OffsetDeleteRequestTopic],
    response: OffsetDeleteResponse,
) -> Iterator[list[CoordinatorRecord]]:
    records, left = list[CoordinatorRecord](), OFFSETS_PER_PIECE
    for topic in topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        deleted = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(deleted)
        left -= 1
        for first in range(0, len(topic.partitions), OFFSETS_PER_PIECE):
            if left <= 0:
                yield records
                records, left = [], OFFSETS_PER_PIECE
            piece = topic.partitions[first : first + OFFSETS_PER_PIECE]
            indexes = [each.partition_index for each in piece]
            deleted.partitions += [OffsetDeleteResponsePartition(each, code) for each in indexes]
            if not is_subscribed:
                records += _offset_tombstones(shard, group.group_id, topic.name, indexes)
            left -= len(piece)
    yield records


def _offset_tombstones(
    shard: GroupShard, group_id: str, topic: str, indexes: Iterable[int]
) -> list[CoordinatorRecord]:
    """Return tombstones for the partitions that have an offset, committed or pending."""
    offsets = shard.offsets
    return [
        offset_commit_tombstone(group_id, topic, index)
        for index in dict.fromkeys(indexes)
        if offsets.get(group_id, topic, index) is not None
        or offsets.is_pending(group_id, topic, index)
    ]
