"""ListPartitionReassignments (46), version 0: the reassignments that are under way.

There is none, ever, on a node that is the whole cluster, whatever topics are asked for (Kafka
leaves out those that it does not know, too). KIP-455.
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
