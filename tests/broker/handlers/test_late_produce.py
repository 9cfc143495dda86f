"""Batches of a transaction that arrive after its EndTxn never leave it hanging."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.test_produce_transactional import of, offsets
from tests.broker.handlers.txn_calls import Who, add, end, list_transactions, producer, wait_for
from tests.broker.test_transaction_version_2 import hold_markers
from tests.helpers.transactions import produce_plain

E = ErrorCode
WRITTEN, ADDED, STRANGE = 0, 1, 2
PARTITIONS = (WRITTEN, ADDED, STRANGE)
# Versions of (Produce, EndTxn) for a client with transaction.version 2 and for an older client.
VERSIONS = [(11, 3), (12, 5)]


def send(
    client: WireClient, who: Who, partition: int, sequence: int, version: int, value: bytes = b"v"
) -> ErrorCode:
    data = TopicProduceData(
        "t", partition_data=[PartitionProduceData(partition, of(who, sequence, value))]
    )
    response = client.call(ProduceRequest("x", -1, 10_000, [data]), version)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def begin(client: WireClient, who: Who, produce_version: int) -> None:
    """Begin a transaction. Older clients add two partitions. One partition gets a batch."""
    if produce_version < 12:
        assert set(add(client, who, "t0", "t1").values()) == {E.NONE}
    assert send(client, who, WRITTEN, 0, produce_version) is E.NONE


def open_in_partitions(client: WireClient) -> list[int]:
    """Return the partitions that have an open transaction."""
    request = DescribeProducersRequest([TopicRequest("t", list(PARTITIONS))])
    (topic,) = client.call(request, 0).topics
    return [
        partition.partition_index
        for partition in topic.partitions
        if any(each.current_txn_start_offset >= 0 for each in partition.active_producers)
    ]


def nothing_hangs(broker: Broker, client: WireClient) -> None:
    """Check that no transaction hangs, neither in the coordinator nor in a partition.

    Readers of committed records get past the last record.
    """
    ongoing = list_transactions(client, state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"])
    assert ongoing.transaction_states == []
    assert open_in_partitions(client) == []
    for partition in PARTITIONS:
        behind = produce_plain(broker, b"behind", partition=partition)
        assert offsets(client, partition) == (behind + 1, behind + 1)


@pytest.mark.parametrize(("produce_version", "end_version"), VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("late_in", PARTITIONS)
def test_batch_after_the_end_leaves_no_hanging_transaction(
    broker: Broker,
    client: WireClient,
    produce_version: int,
    end_version: int,
    committed: bool,
    late_in: int,
) -> None:
    """KAFKA-18957, franz-go#928: the batch arrives before or after the markers are written."""
    broker.create_topic("t", len(PARTITIONS))
    who = producer(client)
    begin(client, who, produce_version)
    held = hold_markers(broker)
    response = end(client, who, committed=committed, version=end_version)
    assert response.error_code == 0
    sequence = 1 if late_in == WRITTEN else 0
    early = send(client, who, late_in, sequence, produce_version, b"before the marker")
    # If the transaction is still open, its marker has yet to be written and ends it.
    assert (early is E.NONE) is (late_in == WRITTEN), early
    held()
    wait_for(client, "CompleteCommit" if committed else "CompleteAbort")
    late = send(client, who, late_in, sequence + 1, produce_version, b"behind the marker")
    assert late not in (E.NONE, E.UNKNOWN_SERVER_ERROR)
    nothing_hangs(broker, client)


@pytest.mark.parametrize(("produce_version", "end_version"), VERSIONS)
@pytest.mark.parametrize("committed", [True, False])
def test_next_transaction_of_the_producer_ends_as_well(
    broker: Broker, client: WireClient, produce_version: int, end_version: int, committed: bool
) -> None:
    """KAFKA-18957, franz-go#928: the producer continues as without the late batch."""
    broker.create_topic("t", len(PARTITIONS))
    who = producer(client)
    begin(client, who, produce_version)
    response = end(client, who, committed=committed, version=end_version)
    wait_for(client, "CompleteCommit" if committed else "CompleteAbort")
    assert send(client, who, STRANGE, 0, produce_version) is not E.NONE
    sequence = 1
    if end_version >= 5:
        who, sequence = (response.producer_id, response.producer_epoch), 0
    if produce_version < 12:
        assert add(client, who, "t0") == {"t0": E.NONE}
    assert send(client, who, WRITTEN, sequence, produce_version) is E.NONE
    assert end(client, who, version=end_version).error_code == 0
    wait_for(client, "CompleteCommit")
    nothing_hangs(broker, client)
