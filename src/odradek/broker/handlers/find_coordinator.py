"""FindCoordinator, versions 0-6: return the coordinator of a group or a transactional id.

The first request for a group creates ``__consumer_offsets``, with the configs ``offsets.topic.*``.
The first request for a transactional id creates ``__transaction_state``, with the configs
``transaction.state.log.*``. If the controller cannot create the topic, the broker logs the reason
and responds with COORDINATOR_NOT_AVAILABLE and the reason. In a cluster, the creation waits until
there are brokers for all replicas of the topic.

Share groups (key type 2) are INVALID_REQUEST, as in Kafka without them. A request of version 4 or
later has several keys (KIP-699).

Deviations from Kafka: the response waits until the topic is created, in a cluster for a second at
most. Kafka responds with COORDINATOR_NOT_AVAILABLE, and the client retries. So does a broker of a
cluster that does not know the new topic yet: see Metadata. Addresses are those of
`odradek.broker.requests.advertised`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.requests.advertised import broker_address
from odradek.broker.requests.elements import each
from odradek.broker.requests.topic_creation import create_topics
from odradek.coordinator.runtime import partition_for
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName
from odradek.metadata.internal_topics import internal_topic
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.messages.find_coordinator_response import (
    Coordinator,
    FindCoordinatorResponse,
)
from odradek.result_tasks import in_task
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest

logger = logging.getLogger(__name__)

# By key type, the internal topic whose partition leaders are the coordinators.
TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
BATCHED_FROM = 4


class _Lookup(NamedTuple):
    code: ErrorCode
    message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


def handle(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> Result[FindCoordinatorResponse]:
    """Create the coordinator's topic if it does not exist, then look the coordinators up."""
    name = TOPICS.get(request.key_type)
    if name is not None and name not in services.image().topics_by_name:
        return _created(services, context, request, name)
    return _response(services, context, request, None)


@in_task
async def _created(
    services: Services, context: RequestContext, request: FindCoordinatorRequest, name: TopicName
) -> Result[FindCoordinatorResponse]:
    topic = internal_topic(services.config, name)
    assert topic is not None
    [failure] = await create_topics(services, context, [topic])
    if failure is not None and failure.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        failure = None
    if failure is not None and failure.code is ErrorCode.INVALID_REPLICATION_FACTOR:
        # Clients repeat their request ten times a second.
        if services.reported_reasons.is_new(name, failure.message):
            logger.warning("cannot create the internal topic %s: %s", name, failure.message)
    elif failure is not None and failure.code is not ErrorCode.REQUEST_TIMED_OUT:
        logger.error(
            "cannot create the internal topic %s: %s. Its groups or transactions are refused until "
            "a later request creates it",
            name,
            failure,
        )
    return _response(services, context, request, failure)


def _response(
    services: Services,
    context: RequestContext,
    request: FindCoordinatorRequest,
    failure: KafkaError | None,
) -> Result[FindCoordinatorResponse]:
    def find(key: str) -> _Lookup:
        return _find(services, context, request.key_type, key, failure)

    if context.api_version >= BATCHED_FROM:
        lookup = each(lambda key: _coordinator(key, find(key)), request.coordinator_keys)
        return lookup.then(lambda lookup: FindCoordinatorResponse(coordinators=lookup))
    single = find(request.key)
    return Result(
        FindCoordinatorResponse(
            error_code=single.code,
            error_message=single.message or single.code.name,
            node_id=single.node_id,
            host=single.host,
            port=single.port,
        )
    )


def _coordinator(key: str, lookup: _Lookup) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=lookup.node_id,
        host=lookup.host,
        port=lookup.port,
        error_code=lookup.code,
        error_message=lookup.message or "",
    )


def _find(
    services: Services,
    context: RequestContext,
    key_type: int,
    key: str,
    failure: KafkaError | None,
) -> _Lookup:
    name = TOPICS.get(key_type)
    if name is None:
        return _Lookup(ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}")
    if failure is not None:
        reason = f"{failure.code.name}: {failure.message}"
        return _Lookup(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    image = services.image()
    topic = image.topics_by_name.get(name)
    if topic is None:
        return _Lookup(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    broker = image.brokers.get(partition.leader)
    if broker is None or broker.fenced:
        return _Lookup(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    address = broker_address(services.config, context.session, broker)
    if address is None:
        return _Lookup(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Lookup(ErrorCode.NONE, None, broker.id, *address)
