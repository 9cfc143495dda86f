"""DeleteRecords (21), versions 0-2: raises the log start offset of partitions; what is below is
gone.

Offset -1 is the high watermark; one beyond it is OFFSET_OUT_OF_RANGE. Records of internal topics
are INVALID_TOPIC_EXCEPTION, of topics whose policy is not 'delete' POLICY_VIOLATION. The low
watermark in the answer is the new log start offset, -1 with an error. Of a partition that is named
twice the last offset counts, and it is answered once.

No deviations from Kafka. KIP-107.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each, each_partition
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.metadata.topics import INTERNAL_TOPICS
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
    """Deletes below the offset that is `partition_offset`: (partition, offset)."""
    topic_partition, offset = TopicPartition(topic, partition_offset[0]), partition_offset[1]
    answer = DeleteRecordsPartitionResult(topic_partition.partition, NO_LOW_WATERMARK)
    try:
        _check_deletable(services, topic_partition)
        manager = services.replica_manager
        answer.low_watermark = manager.delete_records(topic_partition, offset)
    except KafkaError as error:
        answer.error_code = error.code
    return answer


def _check_deletable(services: Services, topic_partition: TopicPartition) -> None:
    """Raises UNKNOWN_TOPIC_OR_PARTITION, and what forbids that records of a topic are deleted."""
    log = services.replica_manager.log(topic_partition)
    if topic_partition.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not log.config.cleanup_delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
