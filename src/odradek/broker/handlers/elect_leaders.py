"""ElectLeaders (43), versions 0-2: elect the preferred leader, or any live replica.

In a cluster of several brokers the controller elects. The response to a request for all partitions
leaves out partitions that need no election. KIP-183, KIP-460.

A single broker leads every partition whose replica it has. The result is then ELECTION_NOT_NEEDED.
If the replica of a partition is on another node (the node's id was changed), no leader can be
elected.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each, each_partition
from odradek.controller.election import (
    NO_ELIGIBLE_LEADER_TEXT,
    NO_PREFERRED_LEADER_TEXT,
    NOT_NEEDED_TEXT,
    Election,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName
from odradek.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.controller.cluster_controller import ClusterController


class ElectionType(IntEnum):
    """The replicas that may be elected: only the first, or also a replica that is not in sync."""

    PREFERRED = 0
    UNCLEAN = 1


def handle(
    services: Services, context: RequestContext, request: ElectLeadersRequest
) -> Result[ElectLeadersResponse]:
    kinds = ElectionType.__members__.values()
    if request.election_type not in kinds:
        message = f"Unknown election type {request.election_type}"
        return _refused(request, KafkaError(ErrorCode.INVALID_REQUEST, message))
    kind = ElectionType(request.election_type)
    cluster = _cluster_controller(services)
    if cluster is not None:
        return _elected(cluster, request, kind)
    image = services.controller.image
    if request.topic_partitions is None:
        return _everywhere(image, kind)
    results = each_partition(
        request.topic_partitions,
        lambda topic: topic.partitions,
        lambda topic, number: _result(number, _refusal(image, topic, number, kind)),
        lambda topic, results: ReplicaElectionResult(topic.topic, results),
    )
    return results.then(lambda results: ElectLeadersResponse(replica_election_results=results))


def _cluster_controller(services: Services) -> ClusterController | None:
    if services.cluster is None:
        return None
    # A single broker does not import this module.
    from odradek.controller.cluster_controller import ClusterController

    return services.controller if isinstance(services.controller, ClusterController) else None


@in_task
async def _elected(
    controller: ClusterController, request: ElectLeadersRequest, kind: ElectionType
) -> Result[ElectLeadersResponse]:
    """Elect on this broker, the controller of a cluster."""
    election = Election.PREFERRED if kind is ElectionType.PREFERRED else Election.UNCLEAN
    if request.topic_partitions is not None:
        partitions: list[tuple[TopicName, int]] = []
        collected = each_partition(
            request.topic_partitions,
            lambda topic: topic.partitions,
            lambda topic, number: partitions.append((TopicName(topic.topic), number)),
            lambda topic, _: None,
        )
        await wait(collected)
        errors = await controller.elect_leaders(election, partitions)
        results = each_partition(
            request.topic_partitions,
            lambda topic: topic.partitions,
            lambda topic, number: _elected_result(number, errors[TopicName(topic.topic), number]),
            lambda topic, results: ReplicaElectionResult(topic.topic, results),
        )
        return results.then(lambda results: ElectLeadersResponse(replica_election_results=results))
    errors = await controller.elect_leaders(election, None)
    topics = {name: ReplicaElectionResult(name) for name in controller.image.topics_by_name}

    def note(found: tuple[tuple[TopicName, int], KafkaError | None]) -> None:
        (name, number), error = found
        result = topics.setdefault(name, ReplicaElectionResult(name))
        result.partition_result.append(_elected_result(number, error))

    noted = each(note, errors.items())
    return noted.then(
        lambda _: ElectLeadersResponse(replica_election_results=list(topics.values()))
    )


def _elected_result(number: int, error: KafkaError | None) -> PartitionResult:
    return PartitionResult(number) if error is None else _result(number, error)


def _everywhere(image: MetadataImage, kind: ElectionType) -> Result[ElectLeadersResponse]:
    """Return every topic with the partitions whose election failed."""

    def elected(topic: TopicImage) -> ReplicaElectionResult:
        return ReplicaElectionResult(
            topic.name,
            [
                _result(partition.partition, error)
                for partition in topic.partitions
                if (error := _election(partition, kind)).code is not ErrorCode.ELECTION_NOT_NEEDED
            ],
        )

    topics = image.topics_by_name
    results = each(
        elected, topics.values(), lambda result: len(topics[TopicName(result.topic)].partitions)
    )
    return results.then(lambda results: ElectLeadersResponse(replica_election_results=results))


def _refusal(
    image: MetadataImage, topic: TopicPartitions, number: int, kind: ElectionType
) -> KafkaError:
    partition = image.partition(topic.topic, number)
    if partition is not None:
        return _election(partition, kind)
    known = topic.topic in image.topics_by_name
    missing = f"partition as {topic.topic}-{number}" if known else f"topic as {topic.topic}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {missing}")


def _election(partition: PartitionImage, kind: ElectionType) -> KafkaError:
    if partition.leader != NO_LEADER:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED_TEXT)
    if kind is ElectionType.PREFERRED:
        return KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, NO_PREFERRED_LEADER_TEXT)
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_ELIGIBLE_LEADER_TEXT)


def _result(number: int, error: KafkaError) -> PartitionResult:
    return PartitionResult(number, error.code, error.message)


def _refused(request: ElectLeadersRequest, error: KafkaError) -> Result[ElectLeadersResponse]:
    results = each_partition(
        request.topic_partitions or (),
        lambda topic: topic.partitions,
        lambda topic, number: _result(number, error),
        lambda topic, results: ReplicaElectionResult(topic.topic, results),
    )
    return results.then(
        lambda results: ElectLeadersResponse(
            error_code=error.code, replica_election_results=results
        )
    )
