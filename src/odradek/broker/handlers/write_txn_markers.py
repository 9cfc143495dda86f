"""WriteTxnMarkers (27), version 1: ends transactions in partitions of this broker.

Sent by transaction coordinators, and by ``kafka-transactions abort`` for a transaction that hangs.
Answered when each marker is committed; the errors are those of the append: INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER and so on. A
producer that is named in two markers is answered once, and what was said last counts.

No deviations from Kafka. KIP-98, KIP-664.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext, Services
from odradek.broker.markers import Results, TransactionMarker, write_markers
from odradek.ids import TopicPartition
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.turns import Turns


async def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Appends the markers in the order of the request."""
    markers = [
        TransactionMarker(
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_result,
            [
                TopicPartition(topic.name, partition)
                for topic in each.topics
                for partition in topic.partition_indexes
            ],
        )
        for each in request.markers
    ]
    return await _response(await write_markers(services, markers))


async def _response(results: Results) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    turns = Turns()
    for producer_id, codes in results.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        await turns.take()
        for (name, partition), code in codes.items():
            await turns.take()
            topic = topics.setdefault(name, WritableTxnMarkerTopicResult(name))
            topic.partitions.append(WritableTxnMarkerPartitionResult(partition, int(code)))
        response.markers.append(WritableTxnMarkerResult(producer_id, list(topics.values())))
    return response
