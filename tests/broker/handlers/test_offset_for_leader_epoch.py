"""OffsetForLeaderEpoch over the wire: ends of epochs, and unknown epochs."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.testing import Broker
from testkit.requests import produce
from testkit.wire import WireClient
from tests.helpers.led_partitions import led


def ask(
    client: WireClient,
    version: int,
    epoch: int,
    *,
    current: int = -1,
    topic: str = "t",
    partition: int = 0,
) -> tuple[int, int, int]:
    """Return (error, leader epoch, end offset)."""
    requested = OffsetForLeaderPartition(partition, current, epoch)
    request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [requested])])
    got = client.call(request, version).topics[0].partitions[0]
    assert got.partition == partition
    return got.error_code, got.leader_epoch, got.end_offset


@pytest.fixture
def led_thrice(broker: Broker, client: WireClient) -> WireClient:
    """A client of a log in which epoch 0 has offsets 0-1, epoch 3 has 2, and epoch 5 has none."""
    broker.create_topic("t")

    def lead(epoch: int) -> None:
        async def change(server: Any) -> None:
            partition = server.services.replica_manager.partition("t", 0)
            partition.become_leader(led(epoch))

        broker.call(change)

    client.call(produce(), 9)
    client.call(produce(), 9)
    lead(3)
    client.call(produce(), 9)
    lead(5)
    return client


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, (0, 2)),
        (1, (0, 2)),
        (3, (3, 3)),
        (4, (3, 3)),
        (5, (5, 3)),
        (6, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_epoch_ends_where_the_next_begins(
    led_thrice: WireClient, version: int, epoch: int, expected: tuple[int, int]
) -> None:
    assert ask(led_thrice, version, epoch) == (0, *expected)


def test_current_leader_epoch_is_checked(led_thrice: WireClient) -> None:
    assert ask(led_thrice, 4, 0, current=5)[0] == ErrorCode.NONE
    assert ask(led_thrice, 4, 0, current=3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(led_thrice, 4, 0, current=6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_unknown_partition(broker: Broker, client: WireClient) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ask(client, 4, 0, topic="missing") == unknown
    broker.create_topic("t")
    assert ask(client, 4, 0, partition=1) == unknown
