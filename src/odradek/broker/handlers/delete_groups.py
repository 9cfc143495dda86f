"""DeleteGroups, versions 0-2: removes groups that have no members, with their offsets.

A group with members is NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND. What a
transaction has committed for the group and not yet ended is forgotten too. Answered when the
tombstones are in the log; each group is answered for itself, in the order of the request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.protocol.messages.delete_groups_response import (
    DeletableGroupResult,
    DeleteGroupsResponse,
)
from odradek.slicing import Turns, begun

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.delete_groups_request import DeleteGroupsRequest


@begun
async def handle(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | asyncio.Future[DeleteGroupsResponse]:
    """The answer, or a future of it while the disk is waited for."""
    delete = services.groups.offsets.delete_group
    answers = await Turns().map(delete, dict.fromkeys(request.groups_names))
    waiting = [answer for answer in answers if asyncio.isfuture(answer)]
    if waiting:
        return asyncio.ensure_future(_gathered(answers))
    return DeleteGroupsResponse(results=[each for each in answers if not asyncio.isfuture(each)])


async def _gathered(
    answers: list[DeletableGroupResult | asyncio.Future[DeletableGroupResult]],
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[await answer if asyncio.isfuture(answer) else answer for answer in answers]
    )
