"""DescribeProducers (61), version 0: return the producer state of partitions (KIP-664).

For each producer, the response has the epoch, the last sequence and timestamp, and the epoch of the
coordinator that ended its last transaction in the partition. It also has the offset at which the
producer's open transaction begins (-1 without one). Errors by partition:
INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.

No deviations from Kafka.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each_partition
from odradek.errors import KafkaError
from odradek.ids import TopicPartition
from odradek.metadata.topics import check_topic_name
from odradek.protocol.messages.describe_producers_request import DescribeProducersRequest
from odradek.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> Result[DescribeProducersResponse]:
    topics = each_partition(
        request.topics,
        lambda topic: topic.partition_indexes,
        lambda topic, index: _describe(services, TopicPartition(topic.name, index)),
        lambda topic, partitions: TopicResponse(topic.name, partitions),
        lambda response: len(response.active_producers),
    )
    return topics.then(lambda topics: DescribeProducersResponse(topics=topics))


def _describe(services: Services, topic_partition: TopicPartition) -> PartitionResponse:
    response = PartitionResponse(topic_partition.partition)
    try:
        check_topic_name(topic_partition.topic)
        producers = services.replica_manager.active_producers(topic_partition)
    except KafkaError as error:
        response.error_code = int(error.code)
        # Kafka has no message for a missing partition of an existing topic.
        if topic_partition.topic not in services.image().topics_by_name:
            response.error_message = error.message
        return response
    response.active_producers = [
        ProducerState(
            producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for producer_id, entry in producers.items()
    ]
    return response
