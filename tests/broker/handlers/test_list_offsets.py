"""ListOffsets over the wire: special timestamps and their versions, lookups, epochs, errors."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.list_offsets_request import ListOffsetsPartition
from odradek.testing import Broker
from testkit.requests import batch, list_offsets, produce
from testkit.wire import WireClient
from tests.helpers.transactions import end_transaction, produce_plain, produce_transactional

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
NOW = 1_700_000_000_000


def ask(client: WireClient, version: int, timestamp: int, **options: Any) -> tuple[int, ...]:
    """Return (error, timestamp, offset, leader epoch)."""
    response = client.call(list_offsets(timestamp, **options), version)
    assert response.topics[0].name == options.get("topic", "t")
    got = response.topics[0].partitions[0]
    return got.error_code, got.timestamp, got.offset, got.leader_epoch


@pytest.fixture
def filled(broker: Broker, client: WireClient) -> WireClient:
    """Offsets 0-5 with timestamps 10, 20, 30, 5, 25, 15 after `NOW`, the first one deleted."""
    broker.create_topic("t")
    for times in ((10, 20), (30,), (5, 25), (15,)):
        records = [batch(b"x", timestamp_ms=NOW + each) for each in times]
        for each in records:
            assert client.call(produce(records=each), 9).responses[0].partition_responses
    broker.call(lambda server: delete_first(server))
    return client


async def delete_first(server: Any) -> None:
    from odradek.ids import TopicPartition

    server.services.replica_manager.delete_records(TopicPartition("t", 0), 1, 0)


@pytest.mark.parametrize("version", range(1, 11))
def test_latest_and_earliest_at_every_version(filled: WireClient, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert ask(filled, version, LATEST) == (0, -1, 6, epoch)
    assert ask(filled, version, EARLIEST) == (0, -1, 1, epoch)


@pytest.mark.parametrize(
    ("timestamp", "first_version", "expected"),
    [
        (MAX_TIMESTAMP, 7, (0, NOW + 30, 2, 0)),
        (EARLIEST_LOCAL, 8, (0, -1, 1, 0)),
        (LATEST_TIERED, 9, (0, -1, -1, -1)),
    ],
)
def test_special_timestamps_have_their_first_version(
    filled: WireClient, timestamp: int, first_version: int, expected: tuple[int, ...]
) -> None:
    for version in range(1, 11):
        if version >= first_version:
            assert ask(filled, version, timestamp) == expected
        else:
            assert ask(filled, version, timestamp)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_unknown_special_timestamp_is_unsupported(filled: WireClient) -> None:
    assert ask(filled, 10, -6) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (0, (NOW + 20, 1)),
        (20, (NOW + 20, 1)),
        (21, (NOW + 30, 2)),
        (30, (NOW + 30, 2)),
        (31, (-1, -1)),
    ],
)
def test_lookup_by_timestamp_returns_the_first_record_not_older(
    filled: WireClient, delta: int, expected: tuple[int, int]
) -> None:
    assert ask(filled, 7, NOW + delta)[:3] == (0, *expected)


def test_empty_log(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    assert ask(client, 7, LATEST) == (0, -1, 0, 0)
    assert ask(client, 7, EARLIEST) == (0, -1, 0, 0)
    assert ask(client, 7, MAX_TIMESTAMP) == (0, -1, -1, -1)
    assert ask(client, 7, 5) == (0, -1, -1, -1)


def test_uncommitted_records_are_not_found(filled: WireClient, broker: Broker) -> None:
    async def hold_back(server: Any) -> None:
        server.services.replica_manager.partition("t", 0).log.high_watermark = 2

    broker.call(hold_back)
    assert ask(filled, 7, LATEST)[2] == 2
    assert ask(filled, 7, NOW + 30)[:3] == (0, -1, -1)
    assert ask(filled, 7, MAX_TIMESTAMP)[:3] == (0, -1, -1)


def test_leader_epoch_is_checked(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    assert ask(client, 7, LATEST, leader_epoch=0)[0] == 0
    assert ask(client, 7, LATEST, leader_epoch=1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_unknown_partition_and_repeated_partition(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(client, 7, LATEST, topic="missing") == (unknown, -1, -1, -1)
    assert ask(client, 7, LATEST, partition=3)[0] == unknown
    request = list_offsets(LATEST)
    request.topics[0].partitions.append(ListOffsetsPartition(0, -1, EARLIEST))
    request.topics.append(request.topics[0])
    (topic,) = client.call(request, 7).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_REQUEST]


def test_read_committed_ends_at_the_last_stable_offset(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    produce_plain(broker, b"a")
    produce_transactional(broker, 1, 0, b"b")

    def offsets(timestamp: int, **options: int) -> int:
        request = list_offsets(timestamp)
        for name, value in options.items():
            setattr(request, name, value)
        return client.call(request, 7).topics[0].partitions[0].offset  # type: ignore[no-any-return]

    assert offsets(LATEST) == 2
    assert offsets(LATEST, isolation_level=1) == 1
    assert offsets(0, isolation_level=1) == 0
    end_transaction(broker, 1, committed=False)
    assert offsets(LATEST, isolation_level=1) == offsets(LATEST) == 3
    assert offsets(LATEST, isolation_level=1, replica_id=5) == 3
