"""OffsetCommit, versions 2-9: stores how far a group has read.

Answered when the offsets are in the log (and on the disk, where ``log.flush.interval.messages``
asks for that). Committed by members of the current generation, or, with generation -1, by consumers
that assign their partitions themselves, as long as the group has no members. Versions 2-4 may name
a retention time; later ones leave it to the broker. A group id may be empty here, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.messages.offset_commit_response import OffsetCommitResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.offset_commit_request import OffsetCommitRequest


def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> Result[OffsetCommitResponse]:
    """Store the offsets. The response is pending while the disk is waited for."""
    groups = services.coordinators.made_groups or services.groups
    return groups.offsets.commit(request, context.api_version)
