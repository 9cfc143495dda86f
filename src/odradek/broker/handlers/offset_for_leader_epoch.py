"""OffsetForLeaderEpoch, versions 2-4: return the end offset of a leader epoch in the log.

The response has the largest epoch in the log that is not above the requested one, and the offset
after the last record of that epoch. Both are -1 if the log has no such epoch. KIP-101, KIP-279,
KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.errors import KafkaError
from odradek.ids import TopicPartition
from odradek.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.offset_for_leader_epoch_request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )


def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Result[OffsetForLeaderEpochResponse]:
    """Look each partition up in the leader epochs of its log. No record is read."""
    topics = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda topic, partition: _end_offset(services, topic.topic, partition),
        lambda topic, partitions: OffsetForLeaderTopicResult(topic.topic, partitions),
    )
    return topics.then(lambda topics: OffsetForLeaderEpochResponse(topics=topics))


def _end_offset(
    services: Services, topic: str, requested: OffsetForLeaderPartition
) -> EpochEndOffset:
    result = EpochEndOffset(partition=requested.partition)
    try:
        result.leader_epoch, result.end_offset = services.replica_manager.end_offset_for_epoch(
            TopicPartition(topic, requested.partition),
            requested.current_leader_epoch,
            requested.leader_epoch,
        )
    except KafkaError as error:
        result.error_code = int(error.code)
    return result
