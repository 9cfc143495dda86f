"""OffsetForLeaderEpoch, versions 2-4: return the end offset of a leader epoch in the log.

The response has the largest epoch in the log that is not above the requested one, and the offset
after the last record of that epoch. Both are -1 if the log has no such epoch. KIP-101, KIP-279,
KIP-320. In a cluster, replicas ask on the inter-broker listener only. On another one, the id of a
replica is TOPIC_AUTHORIZATION_FAILED for each partition. Only the leader responds, also to replica
id -2 (tools). Requests of version 2, which has no replica id, are decoded with -2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.broker.requests.fetch_requests import is_no_broker
from odradek.errors import ErrorCode, KafkaError
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
    replica_id = request.replica_id
    is_refused = is_no_broker(services, context, replica_id)
    topics = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda topic, partition: _end_offset(
            services, topic.topic, partition, replica_id, is_refused=is_refused
        ),
        lambda topic, partitions: OffsetForLeaderTopicResult(topic.topic, partitions),
    )
    return topics.then(lambda topics: OffsetForLeaderEpochResponse(topics=topics))


def _end_offset(
    services: Services,
    topic: str,
    requested: OffsetForLeaderPartition,
    replica_id: int,
    *,
    is_refused: bool,
) -> EpochEndOffset:
    result = EpochEndOffset(partition=requested.partition)
    try:
        if is_refused:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        result.leader_epoch, result.end_offset = services.replica_manager.end_offset_for_epoch(
            TopicPartition(topic, requested.partition),
            requested.current_leader_epoch,
            requested.leader_epoch,
            replica_id=replica_id,
        )
    except KafkaError as error:
        result.error_code = int(error.code)
    return result
