"""Fetch, versions 4-18: return records to consumers, with or without a fetch session (KIP-227).

The response refers to records as regions of files. Partitions are read in the order of the request,
or in the order of the session, in which partitions that returned records move to the end. The first
batch of the first partition with records is returned whole, even if it is larger than max.bytes
(KIP-74). The other partitions share the remaining bytes. A fetch waits for min.bytes, for at most
max.wait. It does not wait if a partition has an error or if the reader's log has diverged (KIP-320,
version 12). From version 13 on topics are named by id (KIP-516).

With isolation level read_committed a fetch reads up to the last stable offset and waits until that
offset moves. The response lists the aborted transactions among the returned records (KIP-98). High
watermark, last stable offset, records and that list of a partition are consistent.

A client that exceeds its quota immediately gets a response without records and has to pause
(KIP-219). Its session does not change. Quotas apply to each fetch with a negative replica id.

In a cluster, followers fetch on the inter-broker listener only (`broker.requests.follower_fetch`).
On another listener a fetch with the id of a replica is TOPIC_AUTHORIZATION_FAILED for each
partition. It changes no state and creates no session. Kafka returns that error to a client that may
not act as a broker (CVE-2018-1288). In a single broker such a fetch gets an error and changes no
state, because partitions have no followers.

Deviations from Kafka: followers do not serve consumers (KIP-392). Replica id -2 is a tool that
compares replicas. It reads up to the high watermark, as in Kafka. Followers serve it in every
version (Kafka: from version 11 on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.broker.requests.fetch_requests import (
    TOPIC_ID_VERSION,
    forgotten_partitions,
    is_no_broker,
    replica_id_of,
    requested_partition,
)
from odradek.broker.requests.fetch_response import FetchResponseBuilder
from odradek.broker.requests.fetch_sessions import FetchPartition
from odradek.broker.requests.throttling import fetch_limit
from odradek.errors import ErrorCode
from odradek.protocol.fetch_session import INVALID_SESSION_ID
from odradek.protocol.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from odradek.replication.delayed_fetch import FetchParams
from odradek.replication.fetch_data import READ_COMMITTED, FetchIsolation
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.fetch_request import FetchRequest

ZSTD_VERSION = 10
CONSUMER_ISOLATION = FetchIsolation.HIGH_WATERMARK


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> Result[FetchResponse]:
    """Return the records, immediately or when enough are available."""
    by_id = context.api_version >= TOPIC_ID_VERSION
    topics = request.topics
    if services.cluster is not None and (
        request.replica_id >= 0 or request.replica_state is not None
    ):
        replica_id = replica_id_of(request)
        if replica_id >= 0:
            return _fetch_as_follower(services, context, request, replica_id)
    if topics and not topics[1:] and topics[0].partitions and not topics[0].partitions[1:]:
        # The most common fetch.
        return _fetch(services, context, request, [requested_partition(by_id, topics[0])])
    requested: list[FetchPartition] = []
    collected = each_partition(
        topics,
        lambda topic: topic.partitions,
        lambda topic, partition: requested.append(requested_partition(by_id, topic, partition)),
        lambda topic, _: None,
    )
    return collected.chain(lambda _: _fetch(services, context, request, requested))


def _fetch_as_follower(
    services: Services, context: RequestContext, request: FetchRequest, replica_id: int
) -> Result[FetchResponse]:
    if is_no_broker(services, context, replica_id):
        return _refused_replica(request, context.api_version >= TOPIC_ID_VERSION)
    from odradek.broker.requests.follower_fetch import fetch_as_follower

    return fetch_as_follower(services, context, request)


def _refused_replica(request: FetchRequest, by_id: bool) -> Result[FetchResponse]:
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topics = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, partition: PartitionData(partition.partition, code, -1, records=b""),
        lambda topic, partitions: (
            FetchableTopicResponse(topic_id=topic.topic_id, partitions=partitions)
            if by_id
            else FetchableTopicResponse(topic.topic, partitions=partitions)
        ),
    )
    return topics.then(lambda topics: FetchResponse(0, 0, INVALID_SESSION_ID, topics))


def _fetch(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    requested: list[FetchPartition],
) -> Result[FetchResponse]:
    fetch = services.fetch_sessions.context(
        request.session_id,
        request.session_epoch,
        context.api_version >= TOPIC_ID_VERSION,
        requested,
        forgotten_partitions(request, context) if request.forgotten_topics_data else [],
    )
    if fetch.error:
        return Result(FetchResponse(0, int(fetch.error), INVALID_SESSION_ID, []))
    params = fetch_params(services, context, request)
    data = services.replica_manager.fetch_records(params, fetch.partitions)
    is_limited = services.quotas.fetch.enabled and params.replica_id < 0
    response = FetchResponseBuilder(services, context, fetch, is_limited)
    if data.completed:
        return response.of(data.value)
    return data.chain(response.of, executed=True)


def fetch_params(services: Services, context: RequestContext, request: FetchRequest) -> FetchParams:
    """Return the properties of the fetch, within the limits of the broker and of the quota."""
    replica_id = request.replica_id
    if request.replica_state is not None:
        replica_id = request.replica_state.replica_id
    isolation = CONSUMER_ISOLATION
    if replica_id >= 0:
        isolation = FetchIsolation.LOG_END
    elif request.isolation_level == READ_COMMITTED:
        isolation = FetchIsolation.COMMITTED
    max_bytes = services.config.get_int("fetch.max.bytes")
    if request.max_bytes < max_bytes:
        max_bytes = request.max_bytes
    if services.quotas.fetch.enabled and replica_id < 0:
        max_bytes = fetch_limit(services, context, max_bytes)
    return FetchParams(
        isolation,
        replica_id,
        request.min_bytes if request.min_bytes < max_bytes else max_bytes,
        max_bytes,
        request.max_wait_ms,
        context.api_version >= ZSTD_VERSION,
    )
