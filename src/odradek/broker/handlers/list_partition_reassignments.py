"""ListPartitionReassignments (46), version 0: return the reassignments in progress.

A reassignment cannot be begun. One that Apache Kafka began is in the metadata of a cluster that was
taken over, and does not end. Unknown topics and partitions are left out, as in Kafka. KIP-455.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each_partition
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Result[ListPartitionReassignmentsResponse]:
    image = services.controller.image
    topics = each_partition(
        _all(image) if request.topics is None else request.topics,
        lambda topic: _numbers(image, topic, is_listed=request.topics is None),
        lambda topic, number: _reassignment(image.partition(topic.name, number)),
        lambda topic, found: OngoingTopicReassignment(
            topic.name, [each for each in found if each is not None]
        ),
    )
    return topics.then(
        lambda topics: ListPartitionReassignmentsResponse(
            error_message=None, topics=[topic for topic in topics if topic.partitions]
        )
    )


def _all(image: MetadataImage) -> list[ListPartitionReassignmentsTopics]:
    return [ListPartitionReassignmentsTopics(name) for name in image.topics_by_name]


def _numbers(
    image: MetadataImage, topic: ListPartitionReassignmentsTopics, *, is_listed: bool
) -> Sequence[int]:
    """Return the partitions that are requested. Without a list these are all of a topic."""
    if is_listed:
        return range(image.topics_by_name[topic.name].partition_count)  # type: ignore[index]
    return topic.partition_indexes


def _reassignment(partition: PartitionImage | None) -> OngoingPartitionReassignment | None:
    if partition is None or not (partition.adding_replicas or partition.removing_replicas):
        return None
    return OngoingPartitionReassignment(
        partition.partition,
        list(partition.replicas),
        list(partition.adding_replicas),
        list(partition.removing_replicas),
    )
