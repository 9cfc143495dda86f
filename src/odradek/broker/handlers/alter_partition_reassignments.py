"""AlterPartitionReassignments (45), versions 0-1: move partitions to other replicas, or cancel.

Reassignment is not implemented. A request for the current replicas in their order succeeds and
changes nothing. A cancellation is NO_REASSIGNMENT_IN_PROGRESS, because a reassignment is never in
progress. KIP-455, KIP-860 (`allow_replication_factor_change`).

Deviation from Kafka: other replicas, or another order, are INVALID_REPLICA_ASSIGNMENT. Kafka begins
the reassignment.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each_partition
from odradek.controller.placement import checked_replicas
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from odradek.protocol.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Result[AlterPartitionReassignmentsResponse]:
    image = services.controller.image
    may_resize = request.allow_replication_factor_change
    responses = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda topic, target: _partition_response(image, topic.name, may_resize, target),
        lambda topic, partitions: ReassignableTopicResponse(topic.name, partitions),
    )
    return responses.then(
        lambda responses: AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_resize,
            error_message=None if request.topics else "",  # as Kafka does
            responses=responses,
        )
    )


def _partition_response(
    image: MetadataImage, topic: str, may_resize: bool, target: ReassignablePartition
) -> ReassignablePartitionResponse:
    try:
        _check(image, _partition(image, topic, target.partition_index), target, may_resize)
    except KafkaError as error:
        nothing = error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS  # no message in Kafka
        message = None if nothing else error.message
        return ReassignablePartitionResponse(target.partition_index, error.code, message)
    return ReassignablePartitionResponse(target.partition_index, ErrorCode.NONE, None)


def _partition(image: MetadataImage, topic: str, number: int) -> PartitionImage:
    if topic not in image.topics_by_name:
        message = f"Unable to find a topic named {topic}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    partition = image.partition(topic, number)
    if partition is None:
        message = f"Unable to find partition {topic}:{number}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return partition


def _check(
    image: MetadataImage, partition: PartitionImage, target: ReassignablePartition, may_resize: bool
) -> None:
    """Raise KafkaError if the reassignment is refused. An accepted one changes nothing."""
    if target.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = checked_replicas(image.brokers, target.replicas)
    before = len(partition.replicas)
    if len(replicas) != before and not may_resize:
        message = f"The replication factor is changed from {before} to {len(replicas)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if replicas != partition.replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Reassignment of partitions is not implemented. The partition keeps its replicas "
            f"{list(partition.replicas)}.",
        )
