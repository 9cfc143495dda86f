"""FindCoordinator, versions 0-6: which broker coordinates a group.

``__consumer_offsets`` is created at the first question for a group, by the controller and with the
settings ``offsets.topic.*``; the answer waits for it, where Kafka answers COORDINATOR_NOT_AVAILABLE
and the client asks again. When it cannot be created the answer is COORDINATOR_NOT_AVAILABLE with
the reason, which is logged too. Addresses as in `odradek.broker.advertised`.

Deviation: there is no transaction coordinator yet. A transactional id is answered
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error on which every client gives up at once, and a
message that says why (docs/deviations.md). Share groups (key type 2) are INVALID_REQUEST, as in
Kafka without them. Version 4 and later ask for several keys at once (KIP-699).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.advertised import advertised_address
from odradek.cluster.internal_topics import internal_topic
from odradek.cluster.topics import CONSUMER_OFFSETS
from odradek.coordinator.runtime import partition_for
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.find_coordinator_response import (
    Coordinator,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from odradek.broker.context import RequestContext, Services
    from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest

logger = logging.getLogger(__name__)

GROUP, TRANSACTION = 0, 1
BATCHED_FROM = 4
NO_TRANSACTIONS = "this broker has no transaction coordinator yet"


class _Found(NamedTuple):
    code: ErrorCode
    message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


def handle(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Answers at once when the offsets topic is there, and creates it when it is not."""
    exists = CONSUMER_OFFSETS in services.image().topics_by_name
    if request.key_type == GROUP and not exists:
        return _created(services, context, request)
    return _response(services, context, request, None)


async def _created(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    topic = internal_topic(services.config, CONSUMER_OFFSETS)
    assert topic is not None
    [result] = await services.controller.create_topics([topic])
    failure = result if isinstance(result, KafkaError) else None
    if failure is not None and failure.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        failure = None
    if failure is not None:
        logger.error("cannot create %s: %s", CONSUMER_OFFSETS, failure)
    return _response(services, context, request, failure)


def _response(
    services: Services,
    context: RequestContext,
    request: FindCoordinatorRequest,
    failure: KafkaError | None,
) -> FindCoordinatorResponse:
    batched = context.api_version >= BATCHED_FROM
    keys = request.coordinator_keys if batched else [request.key]
    found = [(key, _find(services, context, request.key_type, key, failure)) for key in keys]
    if batched:
        return FindCoordinatorResponse(coordinators=[_coordinator(*each) for each in found])
    single = found[0][1]
    return FindCoordinatorResponse(
        error_code=single.code,
        error_message=single.message or single.code.name,
        node_id=single.node_id,
        host=single.host,
        port=single.port,
    )


def _coordinator(key: str, found: _Found) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
        error_code=found.code,
        error_message=found.message or "",
    )


def _find(
    services: Services,
    context: RequestContext,
    key_type: int,
    key: str,
    failure: KafkaError | None,
) -> _Found:
    if key_type == TRANSACTION:
        return _Found(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    if key_type != GROUP:
        return _Found(ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}")
    if failure is not None:
        reason = f"{failure.code.name}: {failure.message}"
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    image = services.image()
    topic = image.topics_by_name.get(CONSUMER_OFFSETS)
    if topic is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    broker = image.brokers.get(partition.leader)
    if broker is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    host, port = broker.host, broker.port
    if broker.id == services.node_id:
        host, port = advertised_address(services.config, context.connection)
    return _Found(ErrorCode.NONE, None, broker.id, host, port)
