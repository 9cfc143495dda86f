"""WriteTxnMarkers (27), version 1: ends transactions in partitions of this broker.

Sent by transaction coordinators, and by ``kafka-transactions abort`` for a transaction that hangs.
Answered when each marker is committed; the errors are those of the append: INVALID_PRODUCER_EPOCH,
TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER and so on. A
producer that is named in two markers is answered once, and what was said last counts. A producer's
epoch is never negative (INVALID_PRODUCER_EPOCH); a producer id below -1 is nobody's, and its marker
ends nothing.

Deviations from Kafka: a marker without a producer id or without an epoch (-1) is INVALID_REQUEST;
Kafka fails, and answers UNKNOWN_SERVER_ERROR for all markers. KIP-98, KIP-664.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.transactions.markers import Results, TransactionMarker, write_markers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.slicing import Turns

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


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
    refusals = [_refusal(each) for each in markers]
    good = [each for each, code in zip(markers, refusals, strict=True) if code is None]
    results = await write_markers(services, good)
    turns = Turns()
    for marker, code in zip(markers, refusals, strict=True):
        if code is not None:
            turns.charge(len(marker.partitions))
            await turns.take()
            _refuse(services, marker, code, results)
    return await _response(results)


def _refusal(marker: TransactionMarker) -> ErrorCode | None:
    """Why no partition takes the marker; None when that is for each of them to say."""
    producer_id, epoch = marker.producer_id, marker.producer_epoch
    if producer_id == NO_PRODUCER_ID or epoch == NO_PRODUCER_EPOCH:
        return ErrorCode.INVALID_REQUEST
    # Before its first batch a producer's epoch is -1, and a marker's may not be lower.
    return ErrorCode.INVALID_PRODUCER_EPOCH if producer_id >= 0 > epoch else None


def _refuse(
    services: Services, marker: TransactionMarker, code: ErrorCode, results: Results
) -> None:
    """Answers the marker with `code`, in the partitions that there are."""
    codes = results.setdefault(marker.producer_id, {})
    for topic_partition in marker.partitions:
        try:
            services.replica_manager.partition(*topic_partition)
        except KafkaError as error:
            codes[topic_partition] = error.code
        else:
            codes[topic_partition] = code


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
