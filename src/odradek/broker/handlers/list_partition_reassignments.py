"""ListPartitionReassignments (46), version 0: return the reassignments in progress.

Reassignment is not implemented, so the list is always empty for any requested topics. Kafka leaves
out unknown topics, too. KIP-455.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)
from odradek.results import Result


def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Result[ListPartitionReassignmentsResponse]:
    return Result(ListPartitionReassignmentsResponse(error_message=None))
