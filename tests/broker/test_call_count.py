"""Number of Python calls for a request, from the received bytes to the bytes passed to the socket.

The number does not depend on the machine. It must not depend on the number of records either,
because the broker processes batches and not records. The numbers are pinned. A change that raises
one gives the reason next to it. A change that lowers one lowers the pinned number, too.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.broker.requests import repeated_produce
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.fetch_shapes import FetchShape
from odradek.broker.requests.repeated_produce import SHAPES_MAX, RememberedShapes
from odradek.config.broker import BrokerConfig
from odradek.metadata.store.memory import MemoryStore
from odradek.net.connection import Connection
from odradek.records.record import Record, build_batch
from odradek.replication import delayed_fetch, record_append
from odradek.replication.follower_news import FollowerNews
from odradek.replication.partition import Partition
from testkit.requests import batch, fetch, produce
from testkit.wire import request_bytes
from tests.helpers.call_count import CallCount, count_calls
from tests.helpers.led_partitions import led
from tests.helpers.mock_transport import MockTransport, open_connection
from tests.replication.cluster_fakes import ALL, EPOCH, A, B, Cluster, Target

# Every batch has about this many bytes for any number of records. All batches therefore take the
# same path to the disk and to the socket: one receive, one write, and a region sent by sendfile.
BATCH_BYTES = 100_000
RECORD_OVERHEAD_BYTES = 8
RECORD_COUNTS = (1, 50, 5000)
WARM_UP = 3
PRODUCER = {"producer_id": 7, "producer_epoch": 0}

# Produce, acks=1, a request that repeats the one before. 9 calls are for connection and dispatcher,
# 3 of them to join the response and pass it on. 8 match the shape. 13 are for partition, log,
# header check, CRC, leader fields and the single write. 4 are in the mock transport.
PRODUCE_CALLS_MAX = 31
# An idempotent producer with acks=all: 3 more to look up and update its state.
IDEMPOTENT_PRODUCE_CALLS_MAX = 34
# A produce request without a remembered shape: 12 calls to decode it, 15 for the handler and
# `ReplicaManager.append_records`, and 21 to encode the response. In these tests the connection
# already has `SHAPES_MAX` shapes, so 3 more calls find no match and do not remember the request.
FIRST_PRODUCE_CALLS_MAX = 83
# Fetch, a request that repeats the one before. 5 calls are for connection and dispatcher, 5 match
# the shape and pack the response, and 20 read from the log. The others are for the region.
REPEATED_FETCH_CALLS_MAX = 50
# A fetch without a remembered shape: the calls of a request without a shape, and these:
# - Some 35 read (limits, session, lookup in the index).
# - 17 are for the region (open, probe residency, send the header with MSG_MORE, sendfile, close).
# - 2 start the generator that reads in time slices, so that all fetches have one path.
# - 6 make the parameters and data that handlers and `ReplicaManager.fetch_records` exchange.
# - 1 reads with RWF_NOWAIT, so that the event loop never waits for the disk.
# - 3 find that the request has another shape, and do not learn it.
FETCH_CALLS_MAX = 119
# Produce with acks=1 to a partition with two followers, a request that repeats the one before. 40
# calls are for the request: 2 more report the append to the sessions of the followers, and 7 note
# the new log end and the size of the batch. 34 are for two fetches at the log end, which read
# nothing and advance the high watermark.
REPLICATED_PRODUCE_CALLS_MAX = 74
# The same with acks=all: 63 more make the delayed operation and the result of the request, and
# complete them when the second follower has fetched. One of them counts the partitions, because
# many are watched in time slices. The response is sent in the next iteration of the event loop,
# which is not counted.
REPLICATED_ACKS_ALL_CALLS_MAX = 137
# Produce to a compacted topic: for records of equal sizes, a constant number of calls compares all
# of them. For other records, one C call reads the first bytes of each. The other calls are those of
# a request without a shape, and 7 to examine the batch.
COMPACTED_PRODUCE_CALLS_MAX = 128
COMPACTED_PRODUCE_OF_VARYING_SIZES_CALLS_MAX = 115


def framed(request: Any, version: int) -> bytes:
    data = request_bytes(request, version, client_id="count")
    return struct.pack(">i", len(data)) + data


@contextmanager
def running_broker(directory: Path) -> Iterator[tuple[asyncio.Runner, BrokerServer]]:
    """Run a broker whose requests end no time slice because the machine is busy."""
    properties = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    server = BrokerServer(BrokerConfig.from_properties(properties), store=MemoryStore())
    with asyncio.Runner() as runner, pytest.MonkeyPatch.context() as patch:
        for module in (record_append, repeated_produce, delayed_fetch):
            patch.setattr(module, "SLICE_MS", math.inf)
        runner.run(server.start())
        try:
            runner.run(server.create_topic("t", len(RECORD_COUNTS)))
            yield runner, server
        finally:
            runner.run(server.stop())


def received(connection: Connection, data: bytes) -> Callable[[], None]:
    """Put the bytes into the receive buffer. The returned function executes them like the loop."""
    connection.get_buffer(-1)[: len(data)] = data

    def execute() -> None:
        connection.get_buffer(-1)
        connection.buffer_updated(len(data))

    return execute


def records_of(count: int, **options: int) -> bytes:
    values = [bytes(BATCH_BYTES // count - RECORD_OVERHEAD_BYTES)] * count
    return bytes(batch(*values, **options))


def counted(connection: Connection, data: bytes) -> CallCount:
    for _ in range(WARM_UP):
        received(connection, data)()
    return count_calls(received(connection, data))


def check(counts: dict[int, CallCount], calls_max: int) -> None:
    totals = {records: count.total for records, count in counts.items()}
    assert len(set(totals.values())) == 1, f"depends on the number of records: {totals}"
    for count in counts.values():
        assert count.total <= calls_max, str(count)


def full_of_shapes() -> RememberedShapes:
    """Return the shapes of a connection that has `SHAPES_MAX` of them, all for other requests."""
    shapes: Any = {bytes([number]): None for number in range(SHAPES_MAX)}
    return RememberedShapes(shapes, [20])


@pytest.mark.parametrize(
    ("remembered", "calls_max"),
    [(None, PRODUCE_CALLS_MAX), (full_of_shapes(), FIRST_PRODUCE_CALLS_MAX)],
)
def test_produce_costs_the_same_for_any_number_of_records(
    tmp_path: Path, remembered: RememberedShapes | None, calls_max: int
) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def count(records: bytes, partition: int) -> CallCount:
            connection, transport = open_connection(Dispatcher(server.services).dispatch)
            connection.remembered = remembered
            if remembered is not None:
                remembered.generation = server.services.replica_manager.generation
            # Each count has its own log, because a larger log sometimes reserves space in advance.
            request = produce(records=records, partition=partition)
            result = counted(connection, framed(request, 9))
            assert transport.writes == WARM_UP + 1
            return result

        counts = {
            each: runner.run(count(records_of(each), partition))
            for partition, each in enumerate(RECORD_COUNTS)
        }
    check(counts, calls_max)


def test_idempotent_produce_costs_the_same_for_any_number_of_records(tmp_path: Path) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def count(records: int, partition: int) -> CallCount:
            connection, _ = open_connection(Dispatcher(server.services).dispatch)
            for number in range(WARM_UP + 1):
                sequence = number * records
                written = records_of(records, base_sequence=sequence, **PRODUCER)
                request = produce(records=written, partition=partition, acks=-1)
                result = count_calls(received(connection, framed(request, 9)))
            assert (
                server.services.replica_manager.partition("t", partition).log.log_end_offset
                == sequence + records
            )
            return result

        counts = {
            each: runner.run(count(each, partition)) for partition, each in enumerate(RECORD_COUNTS)
        }
    check(counts, IDEMPOTENT_PRODUCE_CALLS_MAX)


@pytest.mark.parametrize(
    ("sizes", "calls_a_record", "calls_max"),
    [
        (1, 0, COMPACTED_PRODUCE_CALLS_MAX),
        (7, 1, COMPACTED_PRODUCE_OF_VARYING_SIZES_CALLS_MAX),
    ],
)
@pytest.mark.parametrize("records", [10, 50, 1000])
def test_produce_to_a_compacted_topic_costs_at_most_one_call_a_record(
    tmp_path: Path, sizes: int, calls_a_record: int, calls_max: int, records: int
) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def count() -> CallCount:
            await server.create_topic("compacted", 1, {"cleanup.policy": "compact"})
            connection, _ = open_connection(Dispatcher(server.services).dispatch)
            stamp = time.time_ns() // 1_000_000
            keyed = [Record(b"key", bytes(90 + at % sizes), stamp) for at in range(records)]
            result = counted(connection, framed(produce("compacted", build_batch(keyed)), 9))
            log = server.services.replica_manager.partition("compacted", 0).log
            assert log.log_end_offset == (WARM_UP + 1) * records
            return result

        result = runner.run(count())
    assert result.total - calls_a_record * records <= calls_max, str(result)


def shape_of_another_fetch() -> FetchShape:
    """Return a shape that matches no request, and after which the connection learns no other."""
    values: Any = dict.fromkeys(FetchShape.__slots__)
    return FetchShape(**values | {"frame_bytes": 0, "misses": 0, "learn_after": 1_000})


@pytest.mark.parametrize(
    ("shape", "calls_max"),
    [(None, REPEATED_FETCH_CALLS_MAX), (shape_of_another_fetch(), FETCH_CALLS_MAX)],
)
def test_fetch_costs_the_same_for_any_number_of_records(
    tmp_path: Path, shape: FetchShape | None, calls_max: int
) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def count(records: bytes, partition: int) -> CallCount:
            connection, _ = open_connection(Dispatcher(server.services).dispatch)
            received(connection, framed(produce(records=records, partition=partition), 9))()
            ours, peer = socket.socketpair()
            with ours, peer:
                ours.setblocking(False)
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                reader = Connection(connection._shared, "PLAINTEXT", ours)
                transport = MockTransport()
                transport.protocol = reader
                reader.connection_made(transport)
                reader.fetch_shape = shape
                request = fetch(min_bytes=1, max_wait_ms=500, partitions=(partition,))
                result = counted(reader, framed(request, 11))
                assert not transport.written, "the region was not sent by sendfile"
                assert peer.recv(1 << 20).count(records[61:200]) == WARM_UP + 1
            return result

        counts = {
            each: runner.run(count(records_of(each), partition))
            for partition, each in enumerate(RECORD_COUNTS)
        }
    check(counts, calls_max)


def executed_and_fetched(execute: Callable[[], None], partition: Partition, target: Target) -> None:
    """Execute a produce request, and fetch at the log end in the name of two followers."""
    execute()
    leader = partition.replication
    assert leader is not None
    for replica in (A, B):
        leader.fetch(replica, EPOCH, target, 0, updates=True)


@pytest.mark.parametrize(
    ("acks", "calls_max"),
    [(1, REPLICATED_PRODUCE_CALLS_MAX), (-1, REPLICATED_ACKS_ALL_CALLS_MAX)],
)
def test_produce_to_a_replicated_partition_costs_the_same_for_any_number_of_records(
    tmp_path: Path, acks: int, calls_max: int
) -> None:
    with running_broker(tmp_path) as (runner, server):

        async def count(records: bytes, added: int, number: int) -> CallCount:
            partition = server.services.replica_manager.partition("t", number)
            partition._factory = Cluster().parts
            partition.become_leader(led(partition.leader_epoch + 1, ALL))
            for replica in (A, B):
                news = FollowerNews(replica, EPOCH)
                news.watch(Target(0, partition.leader_epoch), partition)
            connection, transport = open_connection(Dispatcher(server.services).dispatch)
            request = framed(produce(records=records, partition=number, acks=acks), 9)
            results = []
            for _ in range(WARM_UP + 1):
                end_offset = partition.log.log_end_offset + added
                target = Target(end_offset, partition.leader_epoch)
                execute = received(connection, request)
                call = partial(executed_and_fetched, execute, partition, target)
                results.append(count_calls(call))
                await asyncio.sleep(0)
            assert transport.writes == WARM_UP + 1
            assert partition.log.high_watermark == end_offset
            # The first request in a tick of `Deadlines` sets a timer. The next one does not.
            return min(results[-2:], key=lambda each: each.total)

        counts = {
            each: runner.run(count(records_of(each), each, number))
            for number, each in enumerate(RECORD_COUNTS)
        }
    check(counts, calls_max)
