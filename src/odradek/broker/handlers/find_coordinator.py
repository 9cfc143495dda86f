"""FindCoordinator, versions 0-6: which broker coordinates a group or a transactional id.

``__consumer_offsets`` is created at the first question for a group, ``__transaction_state`` at the
first for a transactional id, by the controller and with the settings ``offsets.topic.*`` and
``transaction.state.log.*``; the answer waits for it, where Kafka answers COORDINATOR_NOT_AVAILABLE
and the client asks again. When it cannot be created the answer is COORDINATOR_NOT_AVAILABLE with
the reason, which is logged too. Addresses as in `odradek.broker.requests.advertised`.

Share groups (key type 2) are INVALID_REQUEST, as in Kafka without them. Version 4 and later ask for
several keys at once (KIP-699).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.requests.advertised import broker_address
from odradek.broker.requests.elements import each
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

# The topic whose partitions' leaders coordinate, by key type.
TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
BATCHED_FROM = 4


class _Found(NamedTuple):
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
    [result] = await services.controller.create_topics([topic])
    failure = result if isinstance(result, KafkaError) else None
    if failure is not None and failure.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        failure = None
    if failure is not None:
        logger.error("cannot create %s: %s", name, failure)
    return _response(services, context, request, failure)


def _response(
    services: Services,
    context: RequestContext,
    request: FindCoordinatorRequest,
    failure: KafkaError | None,
) -> Result[FindCoordinatorResponse]:
    def find(key: str) -> _Found:
        return _find(services, context, request.key_type, key, failure)

    if context.api_version >= BATCHED_FROM:
        found = each(lambda key: _coordinator(key, find(key)), request.coordinator_keys)
        return found.then(lambda found: FindCoordinatorResponse(coordinators=found))
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
    name = TOPICS.get(key_type)
    if name is None:
        return _Found(ErrorCode.INVALID_REQUEST, f"unknown coordinator type {key_type}")
    if failure is not None:
        reason = f"{failure.code.name}: {failure.message}"
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    image = services.image()
    topic = image.topics_by_name.get(name)
    if topic is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    broker = image.brokers.get(partition.leader)
    if broker is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    address = broker_address(services.config, context.session, broker)
    if address is None:
        return _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _Found(ErrorCode.NONE, None, broker.id, *address)
