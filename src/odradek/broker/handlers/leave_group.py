"""LeaveGroup, versions 0-5: members leave their group.

Before version 3 a request names one member, and its error is the response's; from then on it names
several, static ones also by instance id alone, as administrators do (KIP-345), and each has its own
error.
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


def _single(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    """The form of versions 0-2: the only member's error in the place of the request's."""
    code = answer.error_code or next((member.error_code for member in answer.members), 0)
    return LeaveGroupResponse(error_code=code)
