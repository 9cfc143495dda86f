"""Heartbeat, versions 0-4: a member is alive, and hears whether it must join again.

REBALANCE_IN_PROGRESS while the group's members join; the rules are in
`odradek.coordinator.group.classic`. While the group's shard is read from its log the answer is
NONE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.heartbeat_request import HeartbeatRequest


def handle(
    services: Services, context: RequestContext, request: HeartbeatRequest
) -> Result[HeartbeatResponse]:
    """The answer, always at once."""
    return Result(HeartbeatResponse(error_code=services.groups.heartbeat(request)))
