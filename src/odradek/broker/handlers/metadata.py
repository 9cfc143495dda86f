"""Metadata (3), versions 0-13: return the brokers, and topics with their leaders.

A request names topics by name or by id (version 12 and later), or asks for all topics (null; in
version 0 the empty list). A topic that does not exist is created if both the client and the broker
allow it. As in Kafka 4, the response that triggers the creation reports UNKNOWN_TOPIC_OR_PARTITION
(INVALID_TOPIC_EXCEPTION for an invalid name) without partitions, even if the creation succeeds. The
client retries.

A partition whose leader has no listener with the name of the client's listener has
LISTENER_NOT_FOUND (before version 6 LEADER_NOT_AVAILABLE) and no leader. Fenced brokers are left
out. Their replicas are offline.

The controller id is the id of this broker, which forwards requests to the controller. Kafka returns
any living broker. A client that gets the id of a controller that was killed waits for that broker,
and librdkafka does not ask again. DescribeCluster and DescribeQuorum name the controller.

Authorized operations (version 8 and later) are all operations on the resource if the client
requests them, otherwise -2147483648. REBOOTSTRAP_REQUIRED (version 13) is never returned. KIP-516
(topic ids), KIP-430 (operations).

Deviations from Kafka:

- The broker sends the response after the creation has ended, so that the topic exists for the next
  request. Kafka does not wait. In a cluster the response waits for a second at most, and the
  creation continues in the background. A broker that is neither the controller nor a leader of the
  topic may know the topic a little later.
- A failed creation is logged.
- Addresses are those of `odradek.broker.requests.advertised`.
- Topics have the order of the request. Kafka has no order.
- A topic with neither name nor id is INVALID_REQUEST (Kafka: UNKNOWN_SERVER_ERROR).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from odradek.broker.requests.advertised import broker_address
from odradek.broker.requests.authorized_operations import (
    CLUSTER_OPERATIONS,
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
)
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each, each_partition
from odradek.broker.requests.reachable import ReachableBrokers
from odradek.broker.requests.topic_creation import create_topics
from odradek.errors import ErrorCode
from odradek.ids import ZERO_UUID, TopicName, Uuid
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.internal_topics import internal_topic
from odradek.metadata.topic_changes import NewTopic
from odradek.metadata.topics import INTERNAL_TOPICS, invalid_name_reason
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.result_tasks import in_task, wait
from odradek.results import Result

logger = logging.getLogger(__name__)

OFFLINE_REPLICAS_VERSION = 5
LISTENER_NOT_FOUND_VERSION = 6
NOT_FAILED = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
"""Errors of a creation after which the topic exists, or may exist later."""
FAILURES_LOGGED_MAX = 10
"""Maximum number of topics in a request whose failed creation is logged by name."""


def handle(
    services: Services, context: RequestContext, request: MetadataRequest
) -> Result[MetadataResponse]:
    version = context.api_version
    requested = request.topics
    if requested is None or (version == 0 and not requested):
        topics = _described(services, context, services.image().topics_by_name.values())
        return topics.then(partial(_response, services, context, request))
    ids: dict[Uuid, None] = {}
    names: dict[str, None] = {}

    def collect(topic: MetadataRequestTopic) -> bool:
        if topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = None
        elif topic.name is not None:
            names[topic.name] = None
        return not _is_malformed(topic, version)

    def respond(well_formed: list[bool]) -> Result[MetadataResponse]:
        if not all(well_formed):
            return _invalid_request(requested)
        if ids:
            # Like Kafka, ignore the names if any topic of the request has an id.
            topics = _by_id(services, context, ids)
            return topics.then(partial(_response, services, context, request))
        return _named(services, context, request, list(names))

    return each(collect, requested).chain(respond)


def _named(
    services: Services, context: RequestContext, request: MetadataRequest, names: Sequence[str]
) -> Result[MetadataResponse]:
    image = services.image()
    if request.allow_auto_topic_creation and services.config.get_bool("auto.create.topics.enable"):
        missing = [name for name in names if TopicName(name) not in image.topics_by_name]
        if missing:
            return _creating(services, context, request, names, missing)
    topics = _by_name(services, context, image, names)
    return topics.then(partial(_response, services, context, request))


@in_task
async def _creating(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    names: Sequence[str],
    missing: Sequence[str],
) -> Result[MetadataResponse]:
    """Create the missing topics, then respond from the image in which they did not exist."""
    image = services.image()
    topics: list[NewTopic] = []

    def collect(name: str) -> None:
        if invalid_name_reason(name) is None:
            topics.append(internal_topic(services.config, name) or NewTopic(name))

    await wait(each(collect, missing))
    errors = await create_topics(services, context, topics)
    failures = [
        (topic.name, error)
        for topic, error in zip(topics, errors, strict=True)
        if error is not None and error.code not in NOT_FAILED
    ]
    if failures:
        logged = [f"{name!r}: {error.message}" for name, error in failures[:FAILURES_LOGGED_MAX]]
        logger.info(
            "automatic creation of %d topics failed, among them %s",
            len(failures),
            "; ".join(logged),
        )
    topics_found = _by_name(services, context, image, names)
    return topics_found.then(partial(_response, services, context, request))


def _by_id(
    services: Services, context: RequestContext, ids: Iterable[Uuid]
) -> Result[list[MetadataResponseTopic]]:
    image = services.image()

    def find(topic_id: Uuid) -> TopicImage | MetadataResponseTopic:
        found = image.topics_by_id.get(topic_id)
        return found or MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)

    return _described(services, context, map(find, ids))


def _by_name(
    services: Services, context: RequestContext, image: MetadataImage, names: Iterable[str]
) -> Result[list[MetadataResponseTopic]]:
    def find(name: str) -> TopicImage | MetadataResponseTopic:
        found = image.topics_by_name.get(TopicName(name))
        if found is not None:
            return found
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if invalid_name_reason(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return MetadataResponseTopic(code, name, is_internal=name in INTERNAL_TOPICS)

    return _described(services, context, map(find, names))


def _described(
    services: Services,
    context: RequestContext,
    topics: Iterable[TopicImage | MetadataResponseTopic],
) -> Result[list[MetadataResponseTopic]]:
    """Describe topics to the client. The entry of a topic that was not found stays as it is."""
    listener = context.session.listener_name
    reachable = ReachableBrokers(services.config, services.image(), listener)
    version = context.api_version

    def describe(
        topic: TopicImage | MetadataResponseTopic, partitions: list[MetadataResponsePartition]
    ) -> MetadataResponseTopic:
        if isinstance(topic, MetadataResponseTopic):
            return topic
        is_internal = topic.name in INTERNAL_TOPICS
        return MetadataResponseTopic(
            ErrorCode.NONE, topic.name, topic.topic_id, is_internal, partitions
        )

    def describe_partition(_: object, partition: PartitionImage) -> MetadataResponsePartition:
        return _partition(reachable, version, partition)

    return each_partition(
        topics, _partitions_of, describe_partition, describe, clock=services.clock
    )


def _partitions_of(topic: TopicImage | MetadataResponseTopic) -> Iterable[Any]:
    return topic.partitions


def _partition(
    reachable: ReachableBrokers, version: int, partition: PartitionImage
) -> MetadataResponsePartition:
    names_listener = version >= LISTENER_NOT_FOUND_VERSION
    leader, code = reachable.leader(partition.leader, names_listener=names_listener)
    replicas, isr = list[int](partition.replicas), list[int](partition.isr)
    if version == 0:
        replicas, isr = reachable.usable(partition.replicas), reachable.usable(partition.isr)
        if not code and len(replicas) + len(isr) < len(partition.replicas) + len(partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        code,
        partition.partition,
        leader,
        partition.leader_epoch,
        replicas,
        isr,
        reachable.offline(partition.replicas) if version >= OFFLINE_REPLICAS_VERSION else [],
    )


def _is_malformed(topic: MetadataRequestTopic, version: int) -> bool:
    """Return whether a topic has neither name nor id, or, before version 12, an id or no name."""
    if topic.name is None:
        return version < 12 or topic.topic_id == ZERO_UUID
    return version < 12 and topic.topic_id != ZERO_UUID


def _invalid_request(requested: Sequence[MetadataRequestTopic]) -> Result[MetadataResponse]:
    """Return the error for each topic, without brokers (``MetadataRequest`` of Kafka)."""
    code = ErrorCode.INVALID_REQUEST

    def refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
        return MetadataResponseTopic(code, topic.name or "", topic.topic_id)

    topics = each(refused, requested)
    return topics.then(lambda topics: MetadataResponse(topics=topics, error_code=code))


def _response(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    image = services.image()
    brokers = response_brokers(services, context)
    is_listed = any(each.node_id == services.node_id for each in brokers)
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    requested = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=services.node_id if is_listed else image.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if requested else NOT_REQUESTED,
    )


def response_brokers(services: Services, context: RequestContext) -> list[MetadataResponseBroker]:
    """Return the alive brokers that have the client's listener, with their addresses for it."""
    brokers = []
    for broker in services.image().brokers.values():
        if broker.fenced:
            continue
        address = broker_address(services.config, context.session, broker)
        if address is not None:
            brokers.append(MetadataResponseBroker(broker.id, *address, broker.rack))
    return brokers
