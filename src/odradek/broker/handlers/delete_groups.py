"""DeleteGroups, versions 0-2: removes groups that have no members, with their offsets.

A group with members is NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND. What a
transaction has committed for the group and not yet ended is forgotten too. Answered when the
tombstones are in the log; each group is answered for itself, in the order of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.elements import each
from odradek.protocol.messages.delete_groups_response import (
    DeleteGroupsResponse,
)
from odradek.results import Result, gather

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest


def handle(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> Result[DeleteGroupsResponse]:
    """Delete the groups. The response is pending until all tombstones are stored."""

    deleted = each(services.groups.offsets.delete_group, dict.fromkeys(request.groups_names))
    return deleted.chain(gather).then(lambda results: DeleteGroupsResponse(results=results))
