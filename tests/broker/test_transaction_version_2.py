"""transaction.version 2 in a whole broker (KIP-890).

Writing to a partition adds it to the transaction. Every end of a transaction bumps the producer's
epoch. A late request does not join another transaction.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.coordinator.transaction.transaction_metadata import EPOCH_EXHAUSTED
from odradek.errors import ErrorCode
from odradek.protocol.messages import produce_request as p
from odradek.protocol.messages import txn_offset_commit_request as o
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from odradek.records.record import Record, build_batch, iter_batches, iter_records
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import fetch_request, find
from tests.broker.handlers.txn_calls import Who, add, describe, end, producer, wait_for

E = ErrorCode


def write(
    client: WireClient, who: Who, value: str, *, partition: int = 0, sequence: int = 0
) -> ErrorCode:
    """Send one record like a producer of version 2 (Produce 12)."""
    batch = build_batch(
        [Record(key=None, value=value.encode())],
        timestamp_ms=int(time.time() * 1000),
        producer_id=who[0],
        producer_epoch=who[1],
        base_sequence=sequence,
        transactional=True,
    )
    data = p.TopicProduceData("t", partition_data=[p.PartitionProduceData(partition, batch)])
    response = client.call(p.ProduceRequest("x", -1, 10_000, [data]), 12)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def read(client: WireClient, partition: int = 0) -> list[str]:
    """Return the committed records. Aborted ones are removed as a read_committed consumer does."""
    requested = FetchPartition(partition, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[FetchTopic("t", partitions=[requested])],
    )
    [data] = client.call(request, 11).responses[0].partitions
    assert data.error_code == 0
    aborted = {each.producer_id: each.first_offset for each in data.aborted_transactions or ()}
    assert not aborted, "these tests only abort empty transactions"
    return [
        bytes(record.value).decode()
        for batch in iter_batches(data.records or b"")
        if not int.from_bytes(batch[21:23], "big") & 0x20
        for record in iter_records(batch)
        if record.value is not None
    ]


def test_writing_to_a_partition_adds_it_to_the_transaction(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t", 2)
    pid, epoch = producer(client)
    for number in range(3):
        who = (pid, epoch + number)
        assert write(client, who, f"a{number}") is E.NONE
        assert write(client, who, f"b{number}", sequence=1) is E.NONE
        assert write(client, who, f"c{number}", partition=1) is E.NONE
        assert describe(client)[0].topics[0].partitions == [0, 1]
        response = end(client, who, version=5)
        assert (response.error_code, response.producer_epoch) == (0, who[1] + 1)
        wait_for(client, "CompleteCommit")
    assert read(client) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert read(client, 1) == ["c0", "c1", "c2"]


def test_late_write_of_the_last_transaction_joins_no_other(
    broker: Broker, client: WireClient
) -> None:
    """KAFKA-12671. Jepsen found a write of an aborted transaction in the next transaction."""
    broker.create_topic("t", 2)
    old = producer(client)
    write(client, old, "first")
    new = (old[0], end(client, old, version=5).producer_epoch)
    wait_for(client, "CompleteCommit")
    assert write(client, old, "late", sequence=1) is E.INVALID_PRODUCER_EPOCH
    assert write(client, old, "late", partition=1) is E.INVALID_PRODUCER_EPOCH
    assert write(client, new, "second") is E.NONE
    assert write(client, old, "late", sequence=1) is E.INVALID_PRODUCER_EPOCH
    assert end(client, old, committed=False, version=5).error_code == E.PRODUCER_FENCED
    end(client, new, version=5)
    wait_for(client, "CompleteCommit")
    assert read(client) == ["first", "second"]


def test_next_transaction_waits_for_the_markers_of_the_previous_one(
    broker: Broker, client: WireClient
) -> None:
    """KAFKA-18575: it must neither join the previous transaction nor be fenced."""
    broker.create_topic("t")
    who = producer(client)
    write(client, who, "first")
    held = hold_markers(broker)
    response = end(client, who, version=5)
    following = (response.producer_id, response.producer_epoch)
    early = write(client, following, "too early")
    assert early in (E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS)
    assert end(client, following, committed=False, version=5).error_code == (
        E.CONCURRENT_TRANSACTIONS
    )
    assert read(client) == []
    held()
    wait_for(client, "CompleteCommit")
    assert write(client, following, "second") is E.NONE
    end(client, following, version=5)
    wait_for(client, "CompleteCommit")
    assert read(client) == ["first", "second"]


def hold_markers(broker: Broker) -> Any:
    """Delay the markers. The returned function releases them."""
    gate: list[asyncio.Event] = []

    async def hold(server: BrokerServer) -> None:
        completions = server.services.transactions.completions
        write_markers = completions._write_markers
        gate.append(asyncio.Event())

        async def later(markers: Any) -> Any:
            await gate[0].wait()
            return await write_markers(markers)

        completions._write_markers = later

    async def release(server: BrokerServer) -> None:
        gate[0].set()

    broker.call(hold)
    return lambda: broker.call(release)


def test_exhausted_epochs_change_only_the_producer_id(broker: Broker, client: WireClient) -> None:
    """KAFKA-18660 in partition and coordinator: the marker has the old id and the last epoch."""
    broker.create_topic("t")
    pid, _ = producer(client)

    async def use_up(server: BrokerServer) -> None:
        from dataclasses import replace

        transactions = server.services.transactions
        shard = transactions.runtime.shard(transactions.partition_of("x"))
        shard.adopt(replace(shard.transactions["x"], producer_epoch=EPOCH_EXHAUSTED))

    broker.call(use_up)
    who = (pid, EPOCH_EXHAUSTED)
    assert write(client, who, "last") is E.NONE
    response = end(client, who, version=5)
    following = (response.producer_id, response.producer_epoch)
    assert following == (response.producer_id, 0)
    assert response.producer_id != pid
    wait_for(client, "CompleteCommit")
    again = end(client, who, version=5)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, *following)
    assert write(client, following, "first of the next") is E.NONE
    assert add(client, who, "t0") == {"t0": E.INVALID_PRODUCER_ID_MAPPING}
    end(client, following, version=5)
    wait_for(client, "CompleteCommit")
    assert read(client) == ["last", "first of the next"]


@pytest.mark.parametrize("config", [{}, {"transaction.partition.verification.enable": "false"}])
def test_committing_offsets_adds_them_to_the_transaction(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    find(client)
    who = producer(client)
    partition = o.TxnOffsetCommitRequestPartition(0, 5)
    topic = o.TxnOffsetCommitRequestTopic("t", [partition])
    request = o.TxnOffsetCommitRequest("x", "g", *who, topics=[topic])
    response = client.call(request, 5)
    assert response.topics[0].partitions[0].error_code == 0
    assert describe(client)[0].topics[0].topic == "__consumer_offsets"

    def stored() -> tuple[int, int]:
        requested = fetch_request("g", 9, {"t": [0]})
        requested.require_stable = True
        [found] = client.call(requested, 9).groups[0].topics[0].partitions
        return found.committed_offset, found.error_code

    assert stored() == (-1, E.UNSTABLE_OFFSET_COMMIT)
    end(client, who, version=5)
    wait_for(client, "CompleteCommit")
    assert stored() == (5, 0)
