"""WriteTxnMarkers over the wire: ended transactions, fencing, and the form of the response."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.testing import Broker
from testkit.requests import fetch
from testkit.wire import WireClient
from tests.helpers.transactions import produce_transactional

Codes = dict[int, dict[str, dict[int, int]]]


def marker(
    producer_id: int,
    *partitions: int,
    topic: str = "t",
    epoch: int = 0,
    committed: bool = True,
    coordinator_epoch: int = 0,
) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(topic, list(partitions))]
    return WritableTxnMarker(producer_id, epoch, committed, topics, coordinator_epoch)


def write(client: WireClient, *markers: WritableTxnMarker) -> Codes:
    response = client.call(WriteTxnMarkersRequest(list(markers)), 1)
    return {
        each.producer_id: {
            topic.name: {result.partition_index: result.error_code for result in topic.partitions}
            for topic in each.topics
        }
        for each in response.markers
    }


def stable_offset(client: WireClient, partition: int = 0) -> Any:
    response = client.call(fetch(partitions=(partition,)), 11).responses[0].partitions[0]
    return response.last_stable_offset


def test_markers_end_transactions_in_all_partitions(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    for partition in (0, 1):
        produce_transactional(broker, 1, 0, b"a", partition=partition)
        produce_transactional(broker, 2, 0, b"b", partition=partition)
    codes = write(client, marker(1, 0, 1), marker(2, 1, committed=False))
    assert codes == {1: {"t": {0: 0, 1: 0}}, 2: {"t": {1: 0}}}
    assert [stable_offset(client, partition) for partition in (0, 1)] == [1, 4]


def test_each_partition_has_its_own_error(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    produce_transactional(broker, 1, 0, b"a", epoch=5)
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    fenced = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert write(client, marker(1, 0, 1, 7, epoch=4)) == {1: {"t": {0: fenced, 1: 0, 7: unknown}}}
    assert write(client, marker(1, 0, topic="gone")) == {1: {"gone": {0: unknown}}}
    assert write(client, marker(1, 3, topic="__consumer_offsets")) == {
        1: {"__consumer_offsets": {3: unknown}}
    }


def test_coordinator_of_an_earlier_epoch_is_fenced(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    assert write(client, marker(1, 0, coordinator_epoch=3)) == {1: {"t": {0: 0}}}
    assert write(client, marker(1, 0, coordinator_epoch=2)) == {
        1: {"t": {0: int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)}}
    }


def test_request_without_markers_has_an_empty_response(broker: Broker, client: WireClient) -> None:
    assert write(client) == {}


def test_repeated_producer_has_one_result(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    codes = write(client, marker(1, 0, epoch=2), marker(1, 0, epoch=1))
    assert codes == {1: {"t": {0: int(ErrorCode.INVALID_PRODUCER_EPOCH)}}}


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-1, -1), (1, -1)])
def test_a_marker_without_a_producer_is_refused_and_others_are_written(
    broker: Broker, client: WireClient, producer_id: int, epoch: int
) -> None:
    broker.create_topic("t")
    produce_transactional(broker, 2, 0, b"a")
    codes = write(client, marker(producer_id, 0, 7, epoch=epoch), marker(2, 0))
    invalid, unknown = int(ErrorCode.INVALID_REQUEST), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert codes == {producer_id: {"t": {0: invalid, 7: unknown}}, 2: {"t": {0: 0}}}
    assert stable_offset(client) == 2, "one record, and one marker"


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
@pytest.mark.parametrize("epoch", [-2, -(2**15)])
def test_a_negative_epoch_is_an_invalid_epoch(
    broker: Broker, client: WireClient, topic: str, epoch: int
) -> None:
    broker.create_topic("t")
    client.call(FindCoordinatorRequest("g", 0), 3)  # creates the offsets topic
    fenced = int(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert write(client, marker(1, 0, topic=topic, epoch=epoch)) == {1: {topic: {0: fenced}}}


def test_a_marker_for_a_negative_producer_id_ends_no_transaction(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    produce_transactional(broker, 1, 0, b"a")
    assert write(client, marker(-2, 0, epoch=-2)) == {-2: {"t": {0: 0}}}
    assert stable_offset(client) == 0
    assert write(client, marker(1, 0)) == {1: {"t": {0: 0}}}
    assert stable_offset(client) == 3
