"""The cost of an OffsetCommit in Python calls, from received bytes to the bytes for the socket.

The numbers are pinned as in `tests.broker.test_call_count`. A commit that raises one has to add the
reason here.
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

# The commit of one partition by a group without members. Receive and decode: about 25 calls.
# Finding and checking the group takes 25, the record and its response 15. Encoding the record and
# building the batch takes 20. Partition, log and the write take 20, the replay 5, and encoding the
# response 15.
COMMIT_CALLS_MAX = 122
# Each further partition: decode, validate, make a record, encode it, replay it, respond.
PARTITION_CALLS_MAX = 33


def commit(partitions: int) -> OffsetCommitRequest:
    indexes = [OffsetCommitRequestPartition(partition_index=n) for n in range(partitions)]
    return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=indexes)])


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
