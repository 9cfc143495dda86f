"""OffsetDelete, version 0: remove committed offsets of a group (KIP-496).

The group may have no members, or members that are consumers, because their subscriptions are known.
Topics to which consumers are subscribed are GROUP_SUBSCRIBED_TO_TOPIC. A group with members of
another kind is NON_EMPTY_GROUP. Deleting an offset that does not exist is no error. A partition
that does not exist is UNKNOWN_TOPIC_OR_PARTITION. The broker responds when the tombstones are in
the log.
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
    deletion = OffsetDeleteRequest(group_id=request.group_id, topics=known)
    return services.groups.offsets.delete(deletion).then(lambda deleted: _merged(deleted, unknown))


def _split(
    image: MetadataImage, topics: list[OffsetDeleteRequestTopic]
) -> tuple[list[OffsetDeleteRequestTopic], list[OffsetDeleteResponseTopic]]:
    """Return the partitions that exist, and the results of the ones that do not exist."""
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
    response: OffsetDeleteResponse, unknown: list[OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    """Merge both results into one entry for each topic.

    If the whole request has failed, return its error without topics.
    """
    if response.error_code:
        return response
    by_name = {topic.name: topic for topic in response.topics}
    for topic in unknown:
        if topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            response.topics.append(topic)
    return response
