"""The parameters of fetch requests, and of other requests with the id of a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.fetch_sessions import FetchPartition

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.broker.requests.fetch_sessions import PartitionKey
    from odradek.protocol.messages.fetch_request import FetchPartition as RequestedPartition
    from odradek.protocol.messages.fetch_request import FetchRequest, FetchTopic

TOPIC_ID_VERSION = 13


def requested_partition(
    by_id: bool, topic: FetchTopic, partition: RequestedPartition | None = None
) -> FetchPartition:
    """Return the parameters of the fetch for one partition. Default: the topic's only partition."""
    if partition is None:
        (partition,) = topic.partitions
    return FetchPartition(
        topic.topic_id if by_id else topic.topic,
        partition.partition,
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        follower_log_start_offset=partition.log_start_offset,
    )


def forgotten_partitions(request: FetchRequest, context: RequestContext) -> list[PartitionKey]:
    """Return the partitions that leave the session of the request."""
    by_id = context.api_version >= TOPIC_ID_VERSION
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def replica_id_of(request: FetchRequest) -> int:
    """Return the id of the replica that fetches, or a negative id for a consumer or a tool."""
    state = request.replica_state
    return request.replica_id if state is None else state.replica_id


def is_no_broker(services: Services, context: RequestContext, replica_id: int) -> bool:
    """Return whether a client claims to be a replica on a listener that is not for brokers."""
    cluster = services.cluster
    return (
        cluster is not None
        and replica_id >= 0
        and context.session.listener_name != cluster.listener
    )
