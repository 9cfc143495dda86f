"""OffsetFetch, versions 1-9: return the committed offsets of a group.

With null topics (from version 2 on) the response has all offsets that the group has committed. A
partition without a committed offset has offset -1 and no error. The same holds for every partition
of a group that does not exist. From version 8 on a request has several groups (KIP-709). Before
version 2 the error of a group is the error of each partition.

With `require_stable` (from version 7 on), offsets that an open transaction may still change are
UNSTABLE_OFFSET_COMMIT until the transaction's marker is written (KIP-447). The member id and epoch
of version 9 are for groups of the consumer protocol (KIP-848). The error is UNKNOWN_MEMBER_ID or
STALE_MEMBER_EPOCH if no member has them.

The response has the offsets that are committed to the log. A commit that waits for the disk
(``log.flush.interval.messages``) is not visible before the flush. As in Kafka,
`require_stable` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from odradek.broker.requests.elements import each, each_partition
from odradek.coordinator.coordinator_result import response_code
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import NO_OFFSET
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.results import Result, gather

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.group.offsets.offset_store import CommittedOffset, OffsetStore

GROUPS_FROM = 8
GROUP_ERROR_FROM = 2

P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


class _Offsets(NamedTuple):
    """Reads one offset of a group, and tests whether it may still change, in any time slice.

    A mapping of all offsets would show commits that are appended between two slices and are not
    committed.
    """

    committed: Callable[[str, int], CommittedOffset | None]
    is_pending: Callable[[str, int], bool]


class _Topic(NamedTuple):
    """A topic in the response of a group."""

    group: OffsetFetchResponseGroup
    offsets: _Offsets
    name: str
    indexes: Iterable[int]


def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> Result[OffsetFetchResponse]:
    """Return the committed offsets. Each one is read in its own time slice."""
    version = context.api_version

    def read(_: object) -> Result[OffsetFetchResponse]:
        if version >= GROUPS_FROM:
            return _groups(services, request)
        return _single_group(services, version, request)

    if not request.require_stable:
        return read(None)
    group_ids = [group.group_id for group in request.groups] or [request.group_id]
    committed = gather([services.groups.offsets.all_committed(each) for each in group_ids])
    return committed.chain(read, executed=True)


def _groups(services: Services, request: OffsetFetchRequest) -> Result[OffsetFetchResponse]:
    """Return the response of version 8 and later."""

    def finish(topic: _Topic, partitions: list[OffsetFetchResponsePartitions]) -> None:
        topic.group.topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))

    def read(
        opened: list[tuple[OffsetFetchResponseGroup, list[_Topic]]],
    ) -> Result[OffsetFetchResponse]:
        topics = each_partition(
            [topic for _, topics in opened for topic in topics],
            lambda topic: topic.indexes,
            partial(_partition, OffsetFetchResponsePartitions),
            finish,
        )
        return topics.then(lambda _: OffsetFetchResponse(groups=[group for group, _ in opened]))

    opened = each(
        lambda group: _open(services, group, request.require_stable),
        request.groups,
        lambda opened: len(opened[1]),
    )
    return opened.chain(read)


def _single_group(
    services: Services, version: int, request: OffsetFetchRequest
) -> Result[OffsetFetchResponse]:
    """Return the response of versions before 8."""
    topics = request.topics
    requested = None
    if topics is not None:
        requested = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ]
    group, opened = _open(
        services,
        OffsetFetchRequestGroup(request.group_id, topics=requested),
        request.require_stable,
    )
    if group.error_code:
        return _failed(request, version, group.error_code)

    def finish(
        topic: _Topic, partitions: list[OffsetFetchResponsePartition]
    ) -> OffsetFetchResponseTopic:
        return OffsetFetchResponseTopic(topic.name, partitions)

    responses = each_partition(
        opened,
        lambda topic: topic.indexes,
        partial(_partition, OffsetFetchResponsePartition),
        finish,
    )
    return responses.then(lambda topics: OffsetFetchResponse(topics=topics))


def _open(
    services: Services, group: OffsetFetchRequestGroup, stable: bool
) -> tuple[OffsetFetchResponseGroup, list[_Topic]]:
    """Return the response for a group without its topics, and the topics to read."""
    response = OffsetFetchResponseGroup(group_id=group.group_id)
    try:
        store = _store(services, group.group_id, group.member_id, group.member_epoch)
    except KafkaError as error:
        response.error_code = response_code(error.code)
        return response, []
    offsets = _offsets(store, group.group_id, stable)
    requested = _requested(group.topics, partial(store.committed_of_group, group.group_id))
    return response, [_Topic(response, offsets, name, indexes) for name, indexes in requested]


def _store(
    services: Services, group_id: str, member_id: str | None, member_epoch: int
) -> OffsetStore:
    shard = services.groups.shards.of(group_id)
    services.groups.offsets.finish_before_use()
    group = shard.committed_group(group_id)
    if isinstance(group, ConsumerGroup):
        code = group.validate_fetch(member_id, member_epoch)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
    return shard.offsets


def _offsets(store: OffsetStore, group_id: str, stable: bool) -> _Offsets:
    committed = partial(store.committed, group_id)
    if not stable or not store.has_open_transactions(group_id):
        return _Offsets(committed, lambda topic, index: False)
    return _Offsets(committed, partial(store.is_pending, group_id))


def _requested(
    topics: Sequence[OffsetFetchRequestTopics] | None,
    committed: Callable[[], Mapping[str, Mapping[int, CommittedOffset]]],
) -> Iterable[tuple[str, Iterable[int]]]:
    """Return the requested topics and partitions, or all with a committed offset."""
    if topics is None:
        return [(name, list(indexes)) for name, indexes in committed().items()]
    return [(topic.name, topic.partition_indexes) for topic in topics]


def _partition(kind: type[P], topic: _Topic, index: int) -> P:
    """Return the result of one partition in the format of the version, which is `kind`."""
    offsets = topic.offsets
    if offsets.is_pending(topic.name, index):
        return kind(
            partition_index=index,
            committed_offset=NO_OFFSET,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
    value = offsets.committed(topic.name, index)
    if value is None:
        return kind(partition_index=index, committed_offset=NO_OFFSET)
    return kind(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _failed(request: OffsetFetchRequest, version: int, code: int) -> Result[OffsetFetchResponse]:
    """Return the error of a group in the format of the versions before 8."""
    if version >= GROUP_ERROR_FROM:
        return Result(OffsetFetchResponse(error_code=code))
    topics = each_partition(
        request.topics or (),
        lambda topic: topic.partition_indexes,
        lambda _, index: OffsetFetchResponsePartition(
            partition_index=index, committed_offset=NO_OFFSET, error_code=code
        ),
        lambda topic, partitions: OffsetFetchResponseTopic(topic.name, partitions),
    )
    return topics.then(lambda topics: OffsetFetchResponse(topics=topics))
