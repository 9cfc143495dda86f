"""Fetch as a follower, on the inter-broker listener of a cluster.

The session visits only the partitions that the request names and those with news. Every other
partition is unchanged for the follower, and the response leaves it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.broker.requests.fetch_requests import (
    TOPIC_ID_VERSION,
    forgotten_partitions,
    replica_id_of,
    requested_partition,
)
from odradek.broker.requests.fetch_response import FetchResponseBuilder
from odradek.broker.requests.fetch_sessions import FetchContext, FetchPartition
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.metadata.image import UNKNOWN_BROKER_EPOCH
from odradek.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.replication.delayed_fetch import FetchParams
from odradek.replication.fetch_data import FetchIsolation
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.cluster import ClusterRequests
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.broker.requests.follower_sessions import FollowerSession
    from odradek.protocol.messages.fetch_request import FetchRequest
    from odradek.replication.follower_fetch import FollowerData


def fetch_as_follower(
    services: Services, context: RequestContext, request: FetchRequest
) -> Result[FetchResponse]:
    """Return the records for a follower. Its positions change before they are read."""
    by_id = context.api_version >= TOPIC_ID_VERSION
    if not context.is_long:
        requested = [
            requested_partition(by_id, topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        return _fetch(services, context, request, requested)
    requested = []
    collected = each_partition(
        request.topics,
        lambda topic: topic.partitions,
        lambda topic, partition: requested.append(requested_partition(by_id, topic, partition)),
        lambda topic, _: None,
    )
    return collected.chain(lambda _: _fetch(services, context, request, requested))


def _fetch(
    services: Services,
    context: RequestContext,
    request: FetchRequest,
    requested: list[FetchPartition],
) -> Result[FetchResponse]:
    cluster = services.cluster
    assert cluster is not None
    is_full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    try:
        session = _session(services, cluster, context, request, requested)
    except KafkaError as error:
        return Result(FetchResponse(0, int(error.code), INVALID_SESSION_ID, []))
    epoch = session.epoch
    params = _params(services, request)

    def response(data: FollowerData) -> Result[FetchResponse]:
        partitions: list[FetchPartition] = [target for target, _ in data]  # type: ignore[misc]
        if is_full:
            found = FetchContext(
                ErrorCode.NONE, partitions, create_session=True, new_session_id=session.id
            )
        else:
            found = FetchContext(ErrorCode.NONE, partitions, session, epoch=epoch)
        builder = FetchResponseBuilder(services, context, found, is_limited=False)
        return builder.of([each for _, each in data])

    fetch = services.replica_manager.fetch_for_follower
    if session.id:
        return fetch(params, session.news, response)
    # A cancelled chain fails, so that the session of this request alone is closed.
    result = fetch(params, session.news, Result).chain(response, executed=True)
    result.on_done(lambda _: session.close())
    return result


def _session(
    services: Services,
    cluster: ClusterRequests,
    context: RequestContext,
    request: FetchRequest,
    requested: list[FetchPartition],
) -> FollowerSession:
    """Return the session of the request, which is a new one for a full fetch.

    Raises:
        KafkaError: As for `FollowerSessions.find`.
    """
    sessions = cluster.follower_sessions
    replica_id = BrokerId(replica_id_of(request))
    state = request.replica_state
    broker_epoch = UNKNOWN_BROKER_EPOCH if state is None else state.replica_epoch
    by_id = context.api_version >= TOPIC_ID_VERSION
    session_id, epoch = request.session_id, request.session_epoch
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(session_id)
        registration = services.image().brokers.get(replica_id)
        is_registered = registration is not None and registration.epoch == broker_epoch
        keep = epoch == INITIAL_EPOCH and is_registered
        return sessions.open(replica_id, broker_epoch, by_id, requested, keep=keep)
    session = sessions.find(session_id, epoch, replica_id, broker_epoch, by_id)
    forgotten = forgotten_partitions(request, context) if request.forgotten_topics_data else []
    sessions.use(session, requested, forgotten)
    return session


def _params(services: Services, request: FetchRequest) -> FetchParams:
    max_bytes = min(request.max_bytes, services.config.get_int("fetch.max.bytes"))
    return FetchParams(
        FetchIsolation.LOG_END,
        replica_id_of(request),
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_wait_ms,
    )
