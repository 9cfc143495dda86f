"""ListPartitionReassignments over the wire: no reassignment exists."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.testing import Broker
from testkit.wire import WireClient


@pytest.mark.parametrize("requested", [None, [], ["t"], ["t", "no"]])
def test_no_reassignment_is_in_progress(
    broker: Broker, client: WireClient, requested: list[str] | None
) -> None:
    broker.create_topic("t")
    topics = None
    if requested is not None:
        topics = [ListPartitionReassignmentsTopics(name, [0, 7]) for name in requested]
    response = client.call(ListPartitionReassignmentsRequest(60_000, topics), 0)
    assert (response.error_code, response.error_message, response.topics) == (
        ErrorCode.NONE,
        None,
        [],
    )
