"""WriteTxnMarkers (27), versions 1-2: end transactions in partitions of this broker.

Transaction coordinators send this request, and so does ``kafka-transactions abort`` for a hanging
transaction. The broker responds when each marker is committed. The errors are those of the append:
INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER and others. If two markers name the same producer, the response has it once,
and the later result of a partition applies. A negative producer epoch is INVALID_PRODUCER_EPOCH. No
producer has an id below -1, so a marker for one ends no transaction. KIP-98, KIP-664.

Version 2 has the version of each transaction. With transaction.version 2 a marker whose epoch is
not above the epoch of an open transaction is outdated (KIP-1228). As a version of a later Kafka
than 4.1 it is served on the inter-broker listener of a cluster only.

Deviation from Kafka: a marker without a producer id or without an epoch (-1) is INVALID_REQUEST.
Kafka fails and returns UNKNOWN_SERVER_ERROR for all markers.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each_partition
from odradek.broker.transactions.markers import Results, write_markers
from odradek.coordinator.transaction.transaction_marker import TransactionMarker
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from odradek.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from odradek.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> Result[WriteTxnMarkersResponse]:
    """Append the markers in the order of the request."""
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
            max(each.transaction_version, 1),
        )
        for each in request.markers
    ]
    refused = [(marker, code) for marker in markers if (code := _refusal(marker)) is not None]
    good = [marker for marker in markers if _refusal(marker) is None]

    def refuse(results: Results) -> Result[Results]:
        added = each_partition(
            refused,
            lambda refusal: refusal[0].partitions,
            lambda refusal, partition: _refused(services, partition, refusal[1]),
            lambda refusal, codes: results.setdefault(refusal[0].producer_id, {}).update(codes),
        )
        return added.then(lambda _: results)

    written = write_markers(services.replica_manager, lambda: services.groups, good)
    return written.chain(refuse, executed=True).chain(_response)


def _refusal(marker: TransactionMarker) -> ErrorCode | None:
    """Return the error for which the marker is refused in all partitions, or None.

    Without such an error, each partition checks the marker on its own.
    """
    producer_id, epoch = marker.producer_id, marker.producer_epoch
    if producer_id == NO_PRODUCER_ID or epoch == NO_PRODUCER_EPOCH:
        return ErrorCode.INVALID_REQUEST
    # The epoch of a producer without a batch is -1, and the epoch of a marker must not be lower.
    return ErrorCode.INVALID_PRODUCER_EPOCH if producer_id >= 0 > epoch else None


def _refused(
    services: Services, topic_partition: TopicPartition, code: ErrorCode
) -> tuple[TopicPartition, ErrorCode]:
    """Return the code of a refused marker for one partition."""
    try:
        services.replica_manager.partition(*topic_partition)
    except KafkaError as error:
        return topic_partition, error.code
    return topic_partition, code


def _response(results: Results) -> Result[WriteTxnMarkersResponse]:
    def topics_of(
        codes: list[tuple[TopicPartition, ErrorCode]],
    ) -> list[WritableTxnMarkerTopicResult]:
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (name, partition), code in codes:
            topic = topics.setdefault(name, WritableTxnMarkerTopicResult(name))
            topic.partitions.append(WritableTxnMarkerPartitionResult(partition, int(code)))
        return list(topics.values())

    markers = each_partition(
        results.items(),
        lambda producer: producer[1].items(),
        lambda _, code: code,
        lambda producer, codes: WritableTxnMarkerResult(producer[0], topics_of(codes)),
    )
    return markers.then(lambda markers: WriteTxnMarkersResponse(markers=markers))
