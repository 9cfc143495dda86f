"""OffsetFetch, versions 1-9: how far a group has read.

Null topics (from version 2 on) ask for all that the group has committed. A partition without a
committed offset has offset -1 and no error; so has every partition of a group that does not exist.
From version 8 on several groups are asked for at once (KIP-709). Before version 2 a group's error
stands at each partition.

`require_stable` (from version 7 on) holds offsets back that an open transaction may still change;
there are no transactional commits yet, so every offset is stable. The member id and epoch of
version 9 belong to KIP-848 groups and are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.coordinator.group.coordinator import response_code
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from odradek.broker.context import RequestContext, Services
    from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
    from odradek.protocol.messages.offset_fetch_request import (
        OffsetFetchRequest,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )

GROUPS_FROM = 8
GROUP_ERROR_FROM = 2
NO_OFFSET = -1

P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)
Offsets = Mapping[str, Mapping[int, "OffsetCommitValue"]]


def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """The answer, always at once."""
    if context.api_version >= GROUPS_FROM:
        return OffsetFetchResponse(
            groups=[_group(services, asked.group_id, asked.topics) for asked in request.groups]
        )
    try:
        offsets = _offsets(services, request.group_id)
    except KafkaError as error:
        return _failed(request, context.api_version, response_code(error.code))
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    _partition(OffsetFetchResponsePartition, offsets, name, index)
                    for index in indexes
                ],
            )
            for name, indexes in _asked(request.topics, offsets)
        ]
    )


def _group(
    services: Services, group_id: str, topics: Sequence[OffsetFetchRequestTopics] | None
) -> OffsetFetchResponseGroup:
    try:
        offsets = _offsets(services, group_id)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=response_code(error.code))
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    _partition(OffsetFetchResponsePartitions, offsets, name, index)
                    for index in indexes
                ],
            )
            for name, indexes in _asked(topics, offsets)
        ],
    )


def _offsets(services: Services, group_id: str) -> Offsets:
    return services.groups.shard_of(group_id).offsets.of_group(group_id)


def _asked(
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
    offsets: Offsets,
) -> Iterable[tuple[str, Iterable[int]]]:
    """The topics and partitions to answer: those asked for, or all that there are."""
    if topics is None:
        return list(offsets.items())
    return [(topic.name, topic.partition_indexes) for topic in topics]


def _partition(kind: type[P], offsets: Offsets, topic: str, index: int) -> P:
    """One partition's answer in either of the two equal forms that the versions have."""
    value = offsets.get(topic, {}).get(index)
    if value is None:
        return kind(partition_index=index, committed_offset=NO_OFFSET)
    return kind(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _failed(request: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    """A group that cannot be read, in the form of the versions before 8."""
    if version >= GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=NO_OFFSET, error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )
