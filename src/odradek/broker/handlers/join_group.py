"""JoinGroup, versions 0-9: a member joins its group, and waits until the others have.

The rules are in `odradek.coordinator.group.classic`. Version notes: 0 has no rebalance time-out
(the session time-out serves as one); from 4 on a new member is first given its id
(MEMBER_ID_REQUIRED, KIP-394); 5 brings static members (KIP-345); before 7 a missing protocol name
is "", from then on null; from 9 on a returning static leader is told to skip the assignment
(KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.advertised import unwrapped
from odradek.coordinator.group.group_client import GroupClient
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.join_group_request import JoinGroupRequest


def handle(
    services: Services, context: RequestContext, request: JoinGroupRequest
) -> Result[JoinGroupResponse]:
    """Join the group. The response is pending while the group waits for its members."""
    if context.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    return services.groups.join(request, client_of(context), context.api_version)


def client_of(context: RequestContext) -> GroupClient:
    """Who sent the request, as a group remembers it."""
    return GroupClient(context.client_id or "", f"/{unwrapped(context.session.client_address)}")
