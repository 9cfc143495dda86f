"""OffsetCommit, versions 2-9: store the committed offsets of a group.

The broker responds when the offsets are in the log, and on the disk if
``log.flush.interval.messages`` requires it. Members of the current generation may commit. Consumers
that assign their partitions themselves commit with generation -1, as long as the group has no
members. Versions 2-4 may have a retention time. In later versions the broker determines it. As in
Kafka, the group id may be empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import COMMITS_UNSLICED_MAX
from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest

SHORT_MAX = 14
"""Topics, and partitions of each topic, in a commit that certainly takes one time slice only."""


def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> Result[OffsetCommitResponse]:
    """Store the offsets. The response is pending while a flush to the disk is due."""
    groups = services.coordinators.made_groups or services.groups
    # A short commit is recognized without a call: its calls are pinned.
    may_be_long: object = request.topics[SHORT_MAX:]
    for topic in request.topics:
        may_be_long = may_be_long or topic.partitions[SHORT_MAX:]
    if may_be_long and (context.is_long or _is_long(request)):
        return groups.offsets.commit_in_slices(request, context.api_version)
    return groups.offsets.commit(request, context.api_version)


def _is_long(request: OffsetCommitRequest) -> bool:
    """Return whether the records take more than one time slice."""
    return sum(len(topic.partitions) for topic in request.topics) > COMMITS_UNSLICED_MAX
