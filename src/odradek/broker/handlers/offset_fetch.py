"""OffsetFetch, versions 1-9: how far a group has read.

Null topics (from version 2 on) ask for all that the group has committed. A partition without a
committed offset has offset -1 and no error; so has every partition of a group that does not exist.
From version 8 on several groups are asked for at once (KIP-709). Before version 2 a group's error
stands at each partition.

`require_stable` (from version 7 on) holds offsets back that an open transaction may still change:
UNSTABLE_OFFSET_COMMIT, until its marker has arrived (KIP-447). The member id and epoch of version 9
belong to groups of the consumer protocol (KIP-848): UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH when
they are not, or are no longer, a member's.

Answered when what it tells is committed (``log.flush.interval.messages`` may have it wait for the
disk); in Kafka that is so with `require_stable`, and without it the offset before is told at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.response_codes import response_code
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.slicing import Turns, begun

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.group.offsets.offset_store import CommittedOffset
    from odradek.protocol.messages.offset_fetch_request import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )

GROUPS_FROM = 8
GROUP_ERROR_FROM = 2
NO_OFFSET = -1

Answer = OffsetFetchResponse | asyncio.Future[OffsetFetchResponse]
Writes = set[asyncio.Future[None]]
P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


class _Offsets(NamedTuple):
    """What a group has committed, and which of it may not be told yet."""

    committed: Mapping[str, Mapping[int, CommittedOffset]]
    is_pending: Callable[[str, int], bool]


@begun
async def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> Answer:
    """The answer, or a future of it while the disk is waited for. What it says of a partition is
    true in its turn."""
    writes: Writes = set()
    response = await _response(services, context, request, writes)
    if not writes:
        return response
    return asyncio.ensure_future(_committed(services, context, request, response, writes))


async def _committed(
    services: Services,
    context: RequestContext,
    request: OffsetFetchRequest,
    response: OffsetFetchResponse,
    writes: Writes,
) -> OffsetFetchResponse:
    """The answer, when those writes are committed; a new one, when one of them could not be."""
    await asyncio.wait(writes)  # which leaves them alone when this is cancelled
    if not any(write.cancelled() or write.exception() for write in writes):
        return response
    again: Any = handle(services, context, request)
    while not isinstance(again, OffsetFetchResponse):
        again = await again
    return again


async def _response(
    services: Services, context: RequestContext, request: OffsetFetchRequest, writes: Writes
) -> OffsetFetchResponse:
    """The answer; `writes` takes in what has to be committed before it may be told."""
    stable = request.require_stable
    turns = Turns()
    if context.api_version >= GROUPS_FROM:
        groups = [await _group(services, each, stable, turns, writes) for each in request.groups]
        return OffsetFetchResponse(groups=groups)
    try:
        offsets = _offsets(services, request.group_id, stable)
    except KafkaError as error:
        return await _failed(request, context.api_version, response_code(error.code))
    response = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=await turns.map(
                    partial(_partition, OffsetFetchResponsePartition, offsets, name), indexes
                ),
            )
            for name, indexes in _asked(request.topics, offsets)
        ]
    )
    _wait_for(services, request.group_id, writes)
    return response


def _wait_for(services: Services, group_id: str, writes: Writes) -> None:
    write = services.groups.uncommitted(group_id)
    if write is not None:
        writes.add(write)


async def _group(
    services: Services,
    group: OffsetFetchRequestGroup,
    stable: bool,
    turns: Turns,
    writes: Writes,
) -> OffsetFetchResponseGroup:
    await turns.take()
    try:
        offsets = _offsets(services, group.group_id, stable, group.member_id, group.member_epoch)
    except KafkaError as error:
        code = response_code(error.code)
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    response = OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=await turns.map(
                    partial(_partition, OffsetFetchResponsePartitions, offsets, name), indexes
                ),
            )
            for name, indexes in _asked(group.topics, offsets)
        ],
    )
    _wait_for(services, group.group_id, writes)
    return response


def _offsets(
    services: Services,
    group_id: str,
    stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> _Offsets:
    shard = services.groups.shard_of(group_id)
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        code = group.validate_fetch(member_id, member_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
    store = shard.offsets
    if not stable or not store.has_open_transactions(group_id):
        return _Offsets(store.of_group(group_id), lambda topic, index: False)
    return _Offsets(store.of_group(group_id), partial(store.is_pending, group_id))


def _asked(
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
    offsets: _Offsets,
) -> Iterable[tuple[str, Iterable[int]]]:
    """The topics and partitions to answer: those asked for, or all that there are."""
    if topics is None:
        return [(name, list(indexes)) for name, indexes in offsets.committed.items()]
    return [(topic.name, topic.partition_indexes) for topic in topics]


def _partition(kind: type[P], offsets: _Offsets, topic: str, index: int) -> P:
    """One partition's answer in either of the two equal forms that the versions have."""
    if offsets.is_pending(topic, index):
        return kind(
            partition_index=index,
            committed_offset=NO_OFFSET,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    value = offsets.committed.get(topic, {}).get(index)
    if value is None:
        return kind(partition_index=index, committed_offset=NO_OFFSET)
    return kind(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


async def _failed(
    request: OffsetFetchRequest, version: int, code: ErrorCode
) -> OffsetFetchResponse:
    """A group that cannot be read, in the form of the versions before 8."""
    if version >= GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=code)
    turns = Turns()

    def failed(index: int) -> OffsetFetchResponsePartition:
        return OffsetFetchResponsePartition(
            partition_index=index, committed_offset=NO_OFFSET, error_code=code
        )

    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=await turns.map(failed, topic.partition_indexes),
            )
            for topic in request.topics or ()
        ]
    )
