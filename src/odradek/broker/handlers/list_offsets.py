"""ListOffsets, versions 1-10: return the offsets for timestamps, and special offsets.

Special timestamps:

- -1: the latest offset, which is the high watermark, or with read_committed the last stable offset.
- -2: the earliest offset.
- -3: the record with the largest timestamp (version 7 and later).
- -4: the earliest offset on the local disk (version 8 and later). It equals -2, because tiered
  storage is not implemented.
- -5: the latest offset in tiered storage (version 9 and later). It is always -1.

Any other negative timestamp, or a special one in an older version, is UNSUPPORTED_VERSION.

A new leader of a replicated partition returns OFFSET_NOT_AVAILABLE for the latest offset until its
high watermark has reached the start of its epoch (version 5 and later, before:
LEADER_NOT_AVAILABLE). Replica id -2 (tools) and replicas get the log end, and tools ask followers,
too. In a cluster, replicas ask on the inter-broker listener only. On another one, the id of a
replica is TOPIC_AUTHORIZATION_FAILED for each partition.

Lookups read files on threads and compare records in time slices on the event loop. An offset at or
after the latest offset is not returned. A partition that is requested twice has one result,
INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.broker.requests.fetch_requests import is_no_broker
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.replication.delayed_fetch import CONSUMER
from odradek.replication.fetch_data import READ_COMMITTED, FetchIsolation
from odradek.replication.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    OffsetLookup,
)
from odradek.result_tasks import in_task
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.log.timestamps import TimestampOffset
    from odradek.protocol.messages.list_offsets_request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

SPECIAL_FROM_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}
LEADER_EPOCH_VERSION = 4
OFFSET_NOT_AVAILABLE_VERSION = 5


def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> Result[ListOffsetsResponse]:
    """Return the offsets. The result is done immediately unless a lookup has to read records."""
    named: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()

    def note(topic: ListOffsetsTopic, requested: ListOffsetsPartition) -> None:
        key = (topic.name, requested.partition_index)
        (repeated if key in named else named).add(key)

    noted = each_partition(
        request.topics, lambda topic: topic.partitions, note, lambda topic, _: None
    )
    return noted.chain(lambda _: _respond(services, context, request, repeated))


def _respond(
    services: Services,
    context: RequestContext,
    request: ListOffsetsRequest,
    repeated: set[tuple[str, int]],
) -> Result[ListOffsetsResponse]:
    version = context.api_version
    isolation = _isolation(request)
    is_refused = is_no_broker(services, context, request.replica_id)
    lookups: list[tuple[OffsetLookup, ListOffsetsPartitionResponse]] = []

    def result_for(
        topic: ListOffsetsTopic, requested: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        result = ListOffsetsPartitionResponse(requested.partition_index)
        try:
            if (topic.name, requested.partition_index) in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            _check_timestamp(requested.timestamp, version)
            if is_refused:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            lookup = services.replica_manager.offset_lookup(
                TopicPartition(topic.name, requested.partition_index),
                requested.current_leader_epoch,
                requested.timestamp,
                isolation,
                replica_id=request.replica_id,
            )
            if (known := lookup.known()) is None:
                lookups.append((lookup, result))
            else:
                _set(result, known)
        except KafkaError as error:
            result.error_code = _code(error, version)
        return result

    def response(
        resolved: list[tuple[str, list[ListOffsetsPartitionResponse]]],
    ) -> Result[ListOffsetsResponse]:
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for name, results in resolved:
            by_index = topics.setdefault(name, {})
            by_index.update((result.partition_index, result) for result in results)
        response = ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name, list(results.values()))
                for name, results in topics.items()
            ]
        )
        if lookups:
            return _look_up(services, lookups, response, version)
        return Result(_without_epochs(response, version))

    resolved = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        result_for,
        lambda topic, results: (topic.name, results),
    )
    return resolved.chain(response)


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and SPECIAL_FROM_VERSION.get(timestamp, version + 1) > version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _isolation(request: ListOffsetsRequest) -> FetchIsolation:
    if request.replica_id != CONSUMER:
        return FetchIsolation.LOG_END
    if request.isolation_level == READ_COMMITTED:
        return FetchIsolation.COMMITTED
    return FetchIsolation.HIGH_WATERMARK


def _code(error: KafkaError, version: int) -> int:
    if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_VERSION:
        return int(ErrorCode.LEADER_NOT_AVAILABLE)
    return int(error.code)


def _set(result: ListOffsetsPartitionResponse, found: TimestampOffset) -> None:
    result.timestamp, result.offset, result.leader_epoch = found


@in_task
async def _look_up(
    services: Services,
    lookups: list[tuple[OffsetLookup, ListOffsetsPartitionResponse]],
    response: ListOffsetsResponse,
    version: int,
) -> Result[ListOffsetsResponse]:
    """Search one partition after the other."""
    for lookup, result in lookups:
        try:
            _set(result, await lookup.search(services.timestamp_lookups))
        except KafkaError as error:
            result.error_code = _code(error, version)
    return Result(_without_epochs(response, version))


def _without_epochs(response: ListOffsetsResponse, version: int) -> ListOffsetsResponse:
    """Reset the leader epochs if the version has no field for them."""
    if version < LEADER_EPOCH_VERSION:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_epoch = -1
    return response
