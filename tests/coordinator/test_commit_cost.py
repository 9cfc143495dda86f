"""What an OffsetCommit costs in Python calls, from the bytes received to the bytes for the socket.

Pinned as in `tests.broker.test_call_count`: whoever raises it writes the reason beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from odradek.broker.requests.dispatch import Dispatcher
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.test_call_count import counted, framed, running_broker
from tests.helpers.call_count import CallCount
from tests.helpers.mock_transport import open_connection

# Of one partition, by a group without members: 25 to receive and decode; 25 to find and ask the
# group; 15 for the record and the answer to it; 20 to encode it and make the batch; 20 for
# partition, log and the one write; 5 to replay; 15 to encode the response.
COMMIT_CALLS_MAX = 122
# Each further one: decoded, validated, made a record, encoded, replayed, answered.
PARTITION_CALLS_MAX = 33


def commit(partitions: int) -> OffsetCommitRequest:
    places = [OffsetCommitRequestPartition(partition_index=n) for n in range(partitions)]
    return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=places)])


def test_commit(tmp_path: Path) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def count(request: Any) -> CallCount:
            connection, transport = open_connection(Dispatcher(server.services).dispatch)
            result = counted(connection, framed(request, 8))
            assert transport.written.endswith(b"\0\0" + b"\0\0\0"), "not committed"
            return result

        runner.run(server.create_topic(CONSUMER_OFFSETS, 1))
        one = runner.run(count(commit(1)))
        three = runner.run(count(commit(3)))
    assert one.total <= COMMIT_CALLS_MAX, str(one)
    assert three.total - one.total <= 2 * PARTITION_CALLS_MAX, str(three)
