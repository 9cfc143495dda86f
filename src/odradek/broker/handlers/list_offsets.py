"""ListOffsets, versions 1-10: offsets for a timestamp, and the special ones.

Special timestamps: -1 latest (the high watermark, or with read_committed the last stable offset),
-2 earliest, -3 the record with the largest timestamp (version 7), -4 earliest on local disk (8;
without tiered storage the same as -2), -5 latest in tiered storage (9; none: -1). Another negative
timestamp, or one in a version that does not know it, is UNSUPPORTED_VERSION.

Lookups read files in threads and compare records in slices on the event loop. An offset at or
behind the latest offset is not returned. A partition that is named twice is answered once, with
INVALID_REQUEST.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.errors import ErrorCode, KafkaError
from odradek.log.timestamps import offset_for_timestamp, offset_of_max_timestamp
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.replication.delayed_fetch import CONSUMER
from odradek.replication.partition import READ_COMMITTED, FetchIsolation
from odradek.result_tasks import in_task
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.list_offsets_request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )
    from odradek.replication.partition import Partition

    _Lookup = tuple[Partition, ListOffsetsPartition, int, ListOffsetsPartitionResponse]

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

SPECIAL_FROM_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
}
LEADER_EPOCH_VERSION = 4


def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> Result[ListOffsetsResponse]:
    """Answer immediately unless a look-up has to read records."""
    named: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()

    def note(topic: ListOffsetsTopic, requested: ListOffsetsPartition) -> None:
        key = (topic.name, requested.partition_index)
        (repeated if key in named else named).add(key)

    noted = each_partition(
        request.topics, lambda topic: topic.partitions, note, lambda topic, _: None
    )
    return noted.chain(lambda _: _answered(services, context, request, repeated))


def _answered(
    services: Services,
    context: RequestContext,
    request: ListOffsetsRequest,
    repeated: set[tuple[str, int]],
) -> Result[ListOffsetsResponse]:
    version = context.api_version
    lookups: list[_Lookup] = []

    def answer_for(
        topic: ListOffsetsTopic, requested: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(requested.partition_index)
        try:
            if (topic.name, requested.partition_index) in repeated:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            _check_timestamp(requested.timestamp, version)
            partition = services.replica_manager.partition(topic.name, requested.partition_index)
            partition.check_leader_epoch(requested.current_leader_epoch)
            latest = _latest_offset(partition, request)
            if not _answer_at_once(partition, requested.timestamp, latest, answer):
                lookups.append((partition, requested, latest, answer))
        except KafkaError as error:
            answer.error_code = int(error.code)
        return answer

    def response(
        answered: list[tuple[str, list[ListOffsetsPartitionResponse]]],
    ) -> Result[ListOffsetsResponse]:
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for name, answers in answered:
            by_index = topics.setdefault(name, {})
            by_index.update((answer.partition_index, answer) for answer in answers)
        response = ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name, list(answers.values()))
                for name, answers in topics.items()
            ]
        )
        if lookups:
            return _look_up(services, lookups, response, version)
        return Result(_without_epochs(response, version))

    answered = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        answer_for,
        lambda topic, answers: (topic.name, answers),
    )
    return answered.chain(response)


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and SPECIAL_FROM_VERSION.get(timestamp, version + 1) > version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _latest_offset(partition: Partition, request: ListOffsetsRequest) -> int:
    """The end of what the client may read (``Partition.fetchOffsetForTimestamp``)."""
    if request.replica_id != CONSUMER:
        return partition.end_offset(FetchIsolation.LOG_END)
    if request.isolation_level == READ_COMMITTED:
        return partition.end_offset(FetchIsolation.COMMITTED)
    return partition.end_offset(FetchIsolation.HIGH_WATERMARK)


def _answer_at_once(
    partition: Partition, timestamp: int, latest: int, answer: ListOffsetsPartitionResponse
) -> bool:
    """Fills in what needs no reading; False when records must be read."""
    if timestamp == LATEST:
        answer.offset = latest
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = partition.log_start_offset
        answer.leader_epoch = partition.earliest_epoch
    else:
        return timestamp == LATEST_TIERED
    return True


@in_task
async def _look_up(
    services: Services,
    lookups: list[_Lookup],
    response: ListOffsetsResponse,
    version: int,
) -> Result[ListOffsetsResponse]:
    """Search one partition after the other. An offset at or behind the latest offset is none."""
    for partition, requested, latest, answer in lookups:
        log = partition.log
        try:
            if requested.timestamp == MAX_TIMESTAMP:
                lookup = offset_of_max_timestamp(log)
            else:
                lookup = offset_for_timestamp(log, requested.timestamp)
            found = await services.timestamp_lookups.run(lookup)
        except OSError as error:
            code = partition.error or ErrorCode.KAFKA_STORAGE_ERROR
            logger.warning("offset lookup in %s failed: %s", log.topic_partition, error)
            answer.error_code = int(code)
            continue
        if partition.error:
            # Deleted in the meantime: what was read may be of a new topic of this name.
            answer.error_code = int(partition.error)
        elif found is not None and found[1] < latest:
            answer.timestamp, answer.offset, answer.leader_epoch = found
    return Result(_without_epochs(response, version))


def _without_epochs(response: ListOffsetsResponse, version: int) -> ListOffsetsResponse:
    """Versions that have no place for leader epochs do without."""
    if version < LEADER_EPOCH_VERSION:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_epoch = -1
    return response
