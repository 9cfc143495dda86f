"""DescribeTopicPartitions (75), version 0: return topics with their partitions, page by page.

Topics are sorted by name. Without requested topics the response has all topics. The request and
``max.request.partition.size.limit`` limit the partitions of a page. The cursor in the response is
the start of the next page. If the topic of the request's cursor is not among the requested topics,
or its partition is negative, every topic has INVALID_REQUEST.

A partition whose leader has no listener with the name of the client's listener has
LISTENER_NOT_FOUND and no leader. KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.requests.authorized_operations import TOPIC_OPERATIONS
from odradek.broker.requests.context import RequestContext, Services
from odradek.broker.requests.elements import each
from odradek.broker.requests.reachable import ReachableBrokers
from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.topics import INTERNAL_TOPICS, invalid_name_reason
from odradek.protocol.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Result[DescribeTopicPartitionsResponse]:
    image = services.image()
    names = {topic.name for topic in request.topics} or set(image.topics_by_name)
    cursor = request.cursor
    first_topic, first_partition = "", 0
    if cursor is not None:
        first_topic, first_partition = cursor.topic_name, cursor.partition_index
        if first_partition < 0 or (request.topics and first_topic not in names):
            return _invalid_request(request)
    limit = services.config.get_int("max.request.partition.size.limit")
    reachable = ReachableBrokers(services.config, image, context.session.listener_name)
    page = _Page(image, reachable, max(1, min(limit, request.response_partition_limit)))
    added = each(
        lambda name: page.add(name, first_partition if name == first_topic else 0),
        sorted(name for name in names if name >= first_topic),
    )
    return added.then(lambda _: page.response)


class _Page:
    """Builder of a page. It counts the partitions that still fit."""

    def __init__(
        self, image: MetadataImage, reachable: ReachableBrokers, partitions_max: int
    ) -> None:
        self.response = DescribeTopicPartitionsResponse()
        self._image = image
        self._reachable = reachable
        self._room = partitions_max

    def add(self, name: str, first: int) -> None:
        """Add a topic's partitions from number `first` on, until the page is full."""
        if self.response.next_cursor is not None:
            return
        if self._room == 0:
            self.response.next_cursor = Cursor(name, 0)
            return
        topic = self._image.topics_by_name.get(TopicName(name))
        if topic is None:
            self.response.topics.append(_unknown(name))
            return
        partitions = topic.partitions[first : first + self._room]
        self.response.topics.append(_topic(topic, partitions, self._reachable))
        self._room -= len(partitions)
        following = first + len(partitions)
        if following < len(topic.partitions):
            self.response.next_cursor = Cursor(name, following)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if invalid_name_reason(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        code,
        name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic(
    topic: TopicImage, partitions: Sequence[PartitionImage], reachable: ReachableBrokers
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        topic.name in INTERNAL_TOPICS,
        [_partition(partition, reachable) for partition in partitions],
        TOPIC_OPERATIONS,
    )


def _partition(
    partition: PartitionImage, reachable: ReachableBrokers
) -> DescribeTopicPartitionsResponsePartition:
    leader, code = reachable.leader(partition.leader)
    return DescribeTopicPartitionsResponsePartition(
        code,
        partition.partition,
        leader,
        partition.leader_epoch,
        list(partition.replicas),
        list(partition.isr),
        list(partition.elr),
        list(partition.last_known_elr),
        reachable.offline(partition.replicas),
    )


def _invalid_request(
    request: DescribeTopicPartitionsRequest,
) -> Result[DescribeTopicPartitionsResponse]:
    def refused(topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, topic.name)

    topics = each(refused, request.topics)
    return topics.then(lambda topics: DescribeTopicPartitionsResponse(topics=topics))
