"""DescribeProducers over the wire: the producer state of a log."""

from __future__ import annotations

from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from odradek.testing import Broker
from testkit.requests import batch, produce
from testkit.wire import WireClient
from tests.helpers.transactions import end_transaction, produce_transactional


def describe(client: WireClient, topic: str = "t", partition: int = 0) -> Any:
    request = DescribeProducersRequest([TopicRequest(topic, [partition])])
    (response,) = client.call(request, 0).topics
    assert response.name == topic
    return response.partitions[0]


def test_producers_are_described_with_their_transactions(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    plain = batch(b"a", timestamp_ms=5, producer_id=9, producer_epoch=2, base_sequence=40)
    client.call(produce(records=plain), 9)
    produce_transactional(broker, 1, 0, b"b", b"c", epoch=3)
    found = {each.producer_id: each for each in describe(client).active_producers}
    assert set(found) == {9, 1}
    described = found[9]
    assert (described.producer_epoch, described.last_sequence, described.last_timestamp) == (
        2,
        40,
        5,
    )
    assert (described.coordinator_epoch, described.current_txn_start_offset) == (-1, -1)
    described = found[1]
    assert (described.producer_epoch, described.last_sequence) == (3, 1)
    assert (described.coordinator_epoch, described.current_txn_start_offset) == (-1, 1)
    end_transaction(broker, 1, committed=True, epoch=3)
    (described,) = [each for each in describe(client).active_producers if each.producer_id == 1]
    assert (described.coordinator_epoch, described.current_txn_start_offset) == (0, -1)


def test_errors_are_by_partition(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    assert describe(client).active_producers == []
    unknown = describe(client, partition=4)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_message is None
    gone = describe(client, "gone")
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert gone.error_message
    refused = describe(client, "not/a name")
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.error_message
