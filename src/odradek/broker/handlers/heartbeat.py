"""Heartbeat, versions 0-4: keep a member alive, and report whether it must rejoin the group.

The error is REBALANCE_IN_PROGRESS while members rejoin the group. The rules are in
`odradek.coordinator.group.classic`. While the group's shard loads from its log, the response has no
error.
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
    """Return the response, which is always done immediately."""
    return Result(HeartbeatResponse(error_code=services.groups.heartbeat(request)))
