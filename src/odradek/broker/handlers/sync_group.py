"""SyncGroup, versions 0-5: store the leader's assignment, and return each member its part.

The rules are in `odradek.coordinator.group.classic`. From version 5 on a request must have the
protocol's type and name (KIP-559). The error is INCONSISTENT_GROUP_PROTOCOL if they are missing or
differ from the group's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.messages.sync_group_response import SyncGroupResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.sync_group_request import SyncGroupRequest

PROTOCOL_REQUIRED_FROM = 5


def handle(
    services: Services, context: RequestContext, request: SyncGroupRequest
) -> Result[SyncGroupResponse]:
    """Return the assignment. The response is pending until it is stored."""
    if context.api_version >= PROTOCOL_REQUIRED_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return Result(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    return services.groups.sync(request)
