"""DescribeQuorum (55), versions 0-2: return the state of the metadata quorum.

A request may name only ``__cluster_metadata-0``, and only once. In any other request every
partition has UNKNOWN_TOPIC_OR_PARTITION. The error is KAFKA_STORAGE_ERROR if the metadata store
cannot be read. KIP-595, KIP-836, KIP-853.

Deviation from Kafka: there is no Raft quorum. This node is the leader and the only voter, with the
controller's epoch. Offsets count the changes in the metadata store, which are all committed, and
the voter is always caught up. Its directory is the first log directory, which has the store.
Version 2 returns it even in a cluster of static voters. The voter's listener is the one on which
the request arrived.

In a cluster, the active controller is the leader and the only voter. Offsets are metadata offsets.
The other brokers that are alive are observers, with the offset that each has applied. It is -1 for
a broker that has not reported one to this controller. Observers have no timestamps.
"""

from __future__ import annotations

from odradek.broker.requests.advertised import advertised_address
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each_partition
from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, BrokerId, Uuid
from odradek.metadata.topics import CLUSTER_METADATA
from odradek.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from odradek.protocol.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from odradek.result_tasks import in_task
from odradek.results import Result

NODES_SINCE = 2
THE_PARTITION = (CLUSTER_METADATA, 0)
_UNKNOWN_TEXT = "This server does not host this topic-partition."


@in_task
async def handle(
    services: Services, context: RequestContext, request: DescribeQuorumRequest
) -> Result[DescribeQuorumResponse]:
    if not _is_the_partition(request):
        return _unknown(request)
    try:
        offset = await services.controller.change_count()
    except KafkaError as error:
        return Result(DescribeQuorumResponse(error_code=error.code, error_message=error.message))
    now_ms, version = services.clock.time_ms(), context.api_version
    voter = ReplicaState(services.node_id, ZERO_UUID, offset, now_ms, now_ms)
    partition = PartitionData(
        partition_index=0,
        leader_id=services.node_id,
        leader_epoch=services.controller.epoch,
        high_watermark=offset,
        current_voters=[voter],
        observers=[
            ReplicaState(broker, _directory_of(services, broker, version), applied)
            for broker, applied in services.controller.applied_offsets().items()
            if broker != services.node_id
        ],
    )
    response = DescribeQuorumResponse(topics=[TopicData(CLUSTER_METADATA, [partition])])
    if version >= NODES_SINCE:
        voter.replica_directory_id = _directory_id(services)
        name = context.session.listener_name
        listener = Listener(name, *advertised_address(services.config, context.session))
        response.nodes = [Node(services.node_id, [listener])]
        observers = [each.replica_id for each in partition.observers]
        response.nodes += [
            Node(endpoint.node_id, [Listener(name, endpoint.host, endpoint.port)])
            for endpoint in leader_endpoints(services, context, observers)
        ]
    return Result(response)


def _is_the_partition(request: DescribeQuorumRequest) -> bool:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    topic = request.topics[0]
    return (topic.topic_name, topic.partitions[0].partition_index) == THE_PARTITION


def _directory_of(services: Services, broker: BrokerId, version: int) -> Uuid:
    """Return the first log directory of another broker, in versions that have it."""
    registration = services.controller.image.brokers.get(broker)
    if version < NODES_SINCE or registration is None or not registration.directories:
        return ZERO_UUID
    return registration.directories[0]


def _directory_id(services: Services) -> Uuid:
    manager = services.log_manager
    return manager.directory_ids.get(manager.log_dirs[0].path, ZERO_UUID)


def _unknown(request: DescribeQuorumRequest) -> Result[DescribeQuorumResponse]:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, partition: PartitionData(partition.partition_index, code, _UNKNOWN_TEXT),
        lambda topic, partitions: TopicData(topic.topic_name, partitions),
    )
    return topics.then(lambda topics: DescribeQuorumResponse(topics=topics))
