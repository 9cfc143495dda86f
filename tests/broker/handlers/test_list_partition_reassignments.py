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


@pytest.mark.parametrize("asked", [None, [], ["t"], ["t", "no"]])
def test_no_reassignment_is_in_progress(
    broker: Broker, client: WireClient, asked: list[str] | None
) -> None:
    broker.create_topic("t")
    topics = None
    if asked is not None:
        topics = [ListPartitionReassignmentsTopics(name, [0, 7]) for name in asked]
    answer = client.call(ListPartitionReassignmentsRequest(60_000, topics), 0)
    assert (answer.error_code, answer.error_message, answer.topics) == (ErrorCode.NONE, None, [])
