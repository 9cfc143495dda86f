"""DeleteGroups, versions 0-2: remove groups that have no members, with their offsets.

The error is NON_EMPTY_GROUP for a group with members and GROUP_ID_NOT_FOUND for a group that does
not exist. Offsets that an open transaction has committed for the group are removed, too. The broker
responds when the tombstones are in the log. Each group has its own result, in the order of the
request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    deleted = services.groups.offsets.delete_groups(dict.fromkeys(request.groups_names))
    return deleted.chain(gather).then(lambda results: DeleteGroupsResponse(results=results))
