"""ListOffsets, versions 1-10: offsets for a timestamp, and the special ones.

Special timestamps: -1 latest (the high watermark), -2 earliest, -3 the record with the largest
timestamp (version 7), -4 earliest on local disk (8; without tiered storage the same as -2), -5
latest in tiered storage (9; none: -1). Another negative timestamp, or one in a version that does
not know it, is UNSUPPORTED_VERSION. Lookups that read records from disk run off the loop. There
are no transactions yet, so the last stable offset, which read_committed asks for, is the high
watermark.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.errors import ErrorCode, KafkaError
from odradek.log.timestamps import offset_for_timestamp, offset_of_max_timestamp
from odradek.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from odradek.broker.context import RequestContext, Services
    from odradek.cluster.partition import Partition
    from odradek.protocol.messages.list_offsets_request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
    )

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
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Answers at once unless a lookup has to read records."""
    counts = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    lookups: list[tuple[Partition, ListOffsetsPartition, ListOffsetsPartitionResponse]] = []
    topics = []
    for topic in request.topics:
        answers = []
        for each in topic.partitions:
            answer = ListOffsetsPartitionResponse(each.partition_index)
            answers.append(answer)
            try:
                if counts[topic.name, each.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                _check_timestamp(each.timestamp, context.api_version)
                partition = services.replica_manager.partition(topic.name, each.partition_index)
                partition.check_leader_epoch(each.current_leader_epoch)
                if not _answer_at_once(partition, each.timestamp, request.replica_id, answer):
                    lookups.append((partition, each, answer))
            except KafkaError as error:
                answer.error_code = int(error.code)
        topics.append(ListOffsetsTopicResponse(topic.name, answers))
    response = ListOffsetsResponse(topics=topics)
    if lookups:
        return _look_up(services, lookups, response, context.api_version)
    return _without_epochs(response, context.api_version)


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and SPECIAL_FROM_VERSION.get(timestamp, version + 1) > version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _answer_at_once(
    partition: Partition, timestamp: int, replica_id: int, answer: ListOffsetsPartitionResponse
) -> bool:
    """Fills in what needs no reading; False when records must be read."""
    log = partition.log
    if timestamp == LATEST:
        to_client = replica_id == LATEST
        answer.offset = log.high_watermark if to_client else log.log_end_offset
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = partition.earliest_epoch
    else:
        return timestamp == LATEST_TIERED
    return True


async def _look_up(
    services: Services,
    lookups: list[tuple[Partition, ListOffsetsPartition, ListOffsetsPartitionResponse]],
    response: ListOffsetsResponse,
    version: int,
) -> ListOffsetsResponse:
    """Reads off the loop, one partition after the other; an offset beyond what is committed is
    none.
    """
    loop = asyncio.get_running_loop()
    for partition, wanted, answer in lookups:
        log = partition.log
        high_watermark = log.high_watermark
        try:
            if wanted.timestamp == MAX_TIMESTAMP:
                lookup = partial(offset_of_max_timestamp, log)
            else:
                lookup = partial(offset_for_timestamp, log, wanted.timestamp)
            found = await loop.run_in_executor(services.unpacker, lookup)
        except OSError as error:
            logger.warning("offset lookup in %s failed: %s", log.topic_partition, error)
            answer.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            continue
        if found is not None and found[1] < high_watermark:
            answer.timestamp, answer.offset, answer.leader_epoch = found
    return _without_epochs(response, version)


def _without_epochs(response: ListOffsetsResponse, version: int) -> ListOffsetsResponse:
    """Versions that have no place for leader epochs do without."""
    if version < LEADER_EPOCH_VERSION:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_epoch = -1
    return response
