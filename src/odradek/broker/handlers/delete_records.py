"""DeleteRecords (21), versions 0-2: raise the log start offset, which deletes the records below.

Offset -1 means the high watermark. An offset beyond the high watermark is OFFSET_OUT_OF_RANGE. The
error is INVALID_TOPIC_EXCEPTION for internal topics and POLICY_VIOLATION for topics whose cleanup
policy does not include ``delete``. The response waits until all replicas that are alive have
deleted the records. A partition whose replicas have not done so in time has REQUEST_TIMED_OUT,
although its leader has deleted them. The low watermark in the response is the lowest log start
offset of these replicas, or -1 with an error. If a partition is requested twice, the last offset
applies, and the response has the partition once.

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
from odradek.results import Result, gather

NO_LOW_WATERMARK = -1


def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> Result[DeleteRecordsResponse]:
    requested: dict[str, dict[int, int]] = {}

    def collect(topic: DeleteRecordsTopic) -> None:
        offsets = requested.setdefault(topic.name, {})
        offsets.update((each.partition_index, each.offset) for each in topic.partitions)

    collected = each(collect, request.topics)
    timeout_ms = request.timeout_ms
    return collected.chain(lambda _: _deleted(services, requested, timeout_ms))


def _deleted(
    services: Services, requested: dict[str, dict[int, int]], timeout_ms: int
) -> Result[DeleteRecordsResponse]:
    waiting: list[Result[None]] = []
    topics = each_partition(
        requested.items(),
        lambda topic: topic[1].items(),
        lambda topic, partition: _delete(services, topic[0], partition, timeout_ms, waiting),
        lambda topic, results: DeleteRecordsTopicResult(topic[0], results),
    )
    response = topics.then(lambda topics: DeleteRecordsResponse(topics=topics))
    return response.chain(lambda response: gather(waiting).then(lambda _: response))


def _delete(
    services: Services,
    topic: str,
    partition_offset: tuple[int, int],
    timeout_ms: int,
    waiting: list[Result[None]],
) -> DeleteRecordsPartitionResult:
    """Delete records of one partition. Other replicas may have to delete them as well.

    Args:
        services: The services of the broker.
        topic: The name of the topic.
        partition_offset: The partition, and the offset below which records are deleted.
        timeout_ms: How long to wait for other replicas.
        waiting: Gets a result that is done when the returned one is complete.
    """
    topic_partition, offset = TopicPartition(topic, partition_offset[0]), partition_offset[1]
    result = DeleteRecordsPartitionResult(topic_partition.partition, NO_LOW_WATERMARK)

    def set_low_watermark(low_watermark: int) -> None:
        result.low_watermark = low_watermark

    def set_error(error: KafkaError) -> None:
        result.error_code = error.code

    try:
        deleted = services.replica_manager.delete_records(topic_partition, offset, timeout_ms)
    except KafkaError as error:
        set_error(error)
    else:
        waiting.append(deleted.then(set_low_watermark).recover(KafkaError, set_error))
    return result
