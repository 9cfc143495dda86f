"""OffsetDelete, version 0: removes committed offsets of a group (KIP-496).

A group without members, or one of consumers, whose subscriptions are known: topics that they read
are GROUP_SUBSCRIBED_TO_TOPIC. Members of another kind are NON_EMPTY_GROUP. An offset that does not
exist is deleted without an error; a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
Answered when the tombstones are in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.metadata.image import MetadataImage


def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> Result[OffsetDeleteResponse]:
    """Delete the offsets. The response is pending until the tombstones are stored."""
    known, unknown = _split(services.image(), request.topics)
    asked = OffsetDeleteRequest(group_id=request.group_id, topics=known)
    return services.groups.offsets.delete(asked).then(lambda deleted: _merged(deleted, unknown))


def _split(
    image: MetadataImage, topics: list[OffsetDeleteRequestTopic]
) -> tuple[list[OffsetDeleteRequestTopic], list[OffsetDeleteResponseTopic]]:
    """The partitions that exist, to ask for, and the answers for those that do not."""
    known, unknown = [], []
    for topic in topics:
        found = image.topics_by_name.get(TopicName(topic.name))
        count = 0 if found is None else len(found.partitions)
        exist = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if exist:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=exist))
        missing = [
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            for each in topic.partitions
            if not 0 <= each.partition_index < count
        ]
        if missing:
            unknown.append(OffsetDeleteResponseTopic(name=topic.name, partitions=missing))
    return known, unknown


def _merged(
    answer: OffsetDeleteResponse, unknown: list[OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    """An error of the whole request stands alone; otherwise each topic has one entry."""
    if answer.error_code:
        return answer
    by_name = {topic.name: topic for topic in answer.topics}
    for topic in unknown:
        if topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            answer.topics.append(topic)
    return answer
