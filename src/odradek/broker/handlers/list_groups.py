"""ListGroups, versions 0-5: the groups that this broker coordinates.

Version 4 filters by state (KIP-518), version 5 by type (KIP-848); both without regard to case. A
type or state that does not exist matches nothing. COORDINATOR_LOAD_IN_PROGRESS while a shard is
still being read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.errors import KafkaError
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from odradek.slicing import Turns, begun

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.group.group_shard import Group
    from odradek.protocol.messages.list_groups_request import ListGroupsRequest

CLASSIC = "classic"
CONSUMER = "consumer"


@begun
async def handle(
    services: Services, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """The groups of each shard when its turn came, in the state that they have in theirs."""
    try:
        shards = services.groups.loaded_shards()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    types = {name.strip().lower() for name in request.types_filter}
    states = {name.strip().lower() for name in request.states_filter}
    turns = Turns()
    groups = []
    for shard in shards:
        for group in list(shard.groups.values()):
            await turns.take()
            if states and group.state.value.lower() not in states:
                continue
            if not types or _type(group) in types:
                groups.append(_listed(group))
    return ListGroupsResponse(groups=groups)


def _type(group: Group) -> str:
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=_type(group),
    )
