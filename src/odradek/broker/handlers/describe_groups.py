"""DescribeGroups, versions 0-6: return state, protocol and members of classic groups.

A group that does not exist, or that uses the consumer protocol, has the state "Dead". Before
version 6 it has no error, from then on GROUP_ID_NOT_FOUND (KIP-1043). The subscriptions of members
are returned only while the group is stable. Authorized operations (version 3 and later) are all
operations on groups if the client requests them, otherwise -2147483648.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.authorized_operations import GROUP_OPERATIONS
from odradek.broker.requests.elements import each
from odradek.coordinator.coordinator_result import response_code
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.describe_groups_request import DescribeGroupsRequest

NOT_FOUND_FROM = 6


def handle(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> Result[DescribeGroupsResponse]:
    """Describe the groups in the order of the request."""

    def describe(group_id: str) -> DescribedGroup:
        group = _describe(services, group_id, context.api_version)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        return group

    groups = each(describe, request.groups, lambda group: len(group.members))
    return groups.then(lambda groups: DescribeGroupsResponse(groups=groups))


def _describe(services: Services, group_id: str, version: int) -> DescribedGroup:
    try:
        group = services.groups.shards.of(group_id).committed_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=response_code(error.code))
    if isinstance(group, ClassicGroup):
        return _described(group)
    dead = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= NOT_FOUND_FROM:
        dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        dead.error_message = f"Group {group_id} not found."
        if group is not None:
            dead.error_message = f"Group {group_id} is not a classic group."
    return dead


def _described(group: ClassicGroup) -> DescribedGroup:
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.protocols[protocol],
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
