"""LeaveGroup, versions 0-5: remove members from a group.

Before version 3 a request names one member, and its error is the error of the response. From
version 3 on it names several members, each with its own error. Static members may be named by their
instance id alone, which administrators use (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.leave_group_request import LeaveGroupRequest

MEMBERS_FROM = 3


def handle(
    services: Services, context: RequestContext, request: LeaveGroupRequest
) -> Result[LeaveGroupResponse]:
    """Remove the members. The record of an emptied group is stored before the response."""
    if context.api_version >= MEMBERS_FROM:
        return services.groups.leave(request.group_id, request.members)
    member = MemberIdentity(member_id=request.member_id)
    return services.groups.leave(request.group_id, [member]).then(_single)


def _single(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Return the response of versions 0-2, which has the member's error as its own."""
    code = response.error_code or next((member.error_code for member in response.members), 0)
    return LeaveGroupResponse(error_code=code)
