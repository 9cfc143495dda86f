"""DeleteRecords (21), versions 0-2: raise the log start offset, which deletes the records below.

Offset -1 means the high watermark. An offset beyond the high watermark is OFFSET_OUT_OF_RANGE. The
error is INVALID_TOPIC_EXCEPTION for internal topics and POLICY_VIOLATION for topics whose cleanup
policy does not include ``delete``. The low watermark in the response is the new log start offset,
or -1 with an error. If a partition is requested twice, the last offset applies, and the response
has the partition once.

No deviations from Kafka. KIP-107.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each, each_partition
from odradek.errors import KafkaError
from odradek.ids import TopicPartition
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.results import Result

NO_LOW_WATERMARK = -1


def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> Result[DeleteRecordsResponse]:
    requested: dict[str, dict[int, int]] = {}

    def collect(topic: DeleteRecordsTopic) -> None:
        offsets = requested.setdefault(topic.name, {})
        offsets.update((each.partition_index, each.offset) for each in topic.partitions)

    collected = each(collect, request.topics)
    return collected.chain(lambda _: _deleted(services, requested))


def _deleted(
    services: Services, requested: dict[str, dict[int, int]]
) -> Result[DeleteRecordsResponse]:
    topics = each_partition(
        requested.items(),
        lambda topic: topic[1].items(),
        lambda topic, partition: _delete(services, topic[0], partition),
        lambda topic, results: DeleteRecordsTopicResult(topic[0], results),
    )
    return topics.then(lambda topics: DeleteRecordsResponse(topics=topics))


def _delete(
    services: Services, topic: str, partition_offset: tuple[int, int]
) -> DeleteRecordsPartitionResult:
    """Delete records of one partition.

    Args:
        services: The services of the broker.
        topic: The name of the topic.
        partition_offset: The partition, and the offset below which records are deleted.
    """
    topic_partition, offset = TopicPartition(topic, partition_offset[0]), partition_offset[1]
    result = DeleteRecordsPartitionResult(topic_partition.partition, NO_LOW_WATERMARK)
    try:
        result.low_watermark = services.replica_manager.delete_records(topic_partition, offset)
    except KafkaError as error:
        result.error_code = error.code
    return result
