"""ListGroups, versions 0-5: return the groups that this broker coordinates.

Version 4 adds a filter by state (KIP-518), version 5 a filter by type (KIP-848). Both ignore case.
A state or type that does not exist matches no group. The error is COORDINATOR_LOAD_IN_PROGRESS
while a shard loads.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each_partition
from odradek.coordinator.group.classic.classic_member import CONSUMER
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.group_shard import Group, GroupShard
from odradek.errors import KafkaError
from odradek.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.list_groups_request import ListGroupsRequest

CLASSIC = "classic"


def handle(
    services: Services, context: RequestContext, request: ListGroupsRequest
) -> Result[ListGroupsResponse]:
    """List the groups that pass both filters. Each group's state is read in its own time slice."""
    try:
        shards = services.groups.shards.loaded()
    except KafkaError as error:
        return Result(ListGroupsResponse(error_code=error.code))
    types = {name.strip().lower() for name in request.types_filter}
    states = {name.strip().lower() for name in request.states_filter}

    def listed(_: GroupShard, group: Group) -> ListedGroup | None:
        if states and group.state.value.lower() not in states:
            return None
        return _listed(group) if not types or _type(group) in types else None

    def not_filtered(_: GroupShard, groups: list[ListedGroup | None]) -> list[ListedGroup]:
        return [group for group in groups if group is not None]

    found = each_partition(shards, GroupShard.committed_groups, listed, not_filtered)
    return found.then(lambda groups: ListGroupsResponse(groups=list(chain(*groups))))


def _type(group: Group) -> str:
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=_type(group),
    )
