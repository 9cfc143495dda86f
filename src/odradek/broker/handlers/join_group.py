"""JoinGroup, versions 0-9: join a group, and wait until the other members have joined.

The rules are in `odradek.coordinator.group.classic`. Differences between versions:

- Version 0 has no rebalance timeout. The session timeout is used instead.
- From version 4 on a new member first gets its id (MEMBER_ID_REQUIRED, KIP-394).
- Version 5 adds static members (KIP-345).
- Before version 7 a missing protocol name is "", from then on null.
- From version 9 on the response to a returning static leader has `skip_assignment` (KIP-814).
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
    """Return the client id and address of the sender, which the group stores for each member."""
    return GroupClient(context.client_id or "", f"/{unwrapped(context.session.client_address)}")
