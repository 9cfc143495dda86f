"""OffsetDelete, version 0: remove committed offsets of a group (KIP-496).

The group may have no members, or members that are consumers, because their subscriptions are known.
Topics to which consumers are subscribed are GROUP_SUBSCRIBED_TO_TOPIC. A group with members of
another kind is NON_EMPTY_GROUP. Deleting an offset that does not exist is no error. A partition
that does not exist is UNKNOWN_TOPIC_OR_PARTITION. The broker responds when the tombstones are in
the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.errors import ErrorCode
from odradek.ids import TopicName
from odradek.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
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

_Split = tuple[list[OffsetDeleteRequestTopic], list[OffsetDeleteResponseTopic]]


def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> Result[OffsetDeleteResponse]:
    """Delete the offsets. The response is pending until the tombstones are stored."""

    def delete(split: _Split) -> Result[OffsetDeleteResponse]:
        known, unknown = split
        deletion = OffsetDeleteRequest(group_id=request.group_id, topics=known)
        deleted = services.groups.offsets.delete(deletion)
        return deleted.then(lambda response: _merged(response, unknown))

    return _split(services.image(), request.topics).chain(delete)


def _split(image: MetadataImage, topics: list[OffsetDeleteRequestTopic]) -> Result[_Split]:
    """Return the partitions that exist, and the results of the ones that do not exist."""
    known: list[OffsetDeleteRequestTopic] = []
    unknown: list[OffsetDeleteResponseTopic] = []
    exist: list[OffsetDeleteRequestPartition] = []
    missing: list[OffsetDeleteResponsePartition] = []

    def visit(topic: OffsetDeleteRequestTopic, partition: OffsetDeleteRequestPartition) -> None:
        index, found = partition.partition_index, image.topics_by_name.get(TopicName(topic.name))
        if found is not None and 0 <= index < len(found.partitions):
            exist.append(partition)
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            missing.append(OffsetDeleteResponsePartition(index, code))

    def end(topic: OffsetDeleteRequestTopic, _: list[None]) -> None:
        nonlocal exist, missing
        if exist:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=exist))
        if missing:
            unknown.append(OffsetDeleteResponseTopic(name=topic.name, partitions=missing))
        exist, missing = [], []

    visited = each_partition(topics, lambda topic: topic.partitions, visit, end)
    return visited.then(lambda _: (known, unknown))


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
