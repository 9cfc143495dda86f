"""The memory of remembered request shapes is limited over all connections."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.produce_shapes import SHAPE_OBJECTS_BYTES
from odradek.broker.requests.shape_budget import HOLDER_BYTES, SHAPE_BYTES_MAX, ShapeBudget
from odradek.net.connection import Connection
from testkit.requests import batch, produce
from testkit.wire import request_bytes
from tests.broker.test_call_count import received, running_broker
from tests.helpers.mock_transport import MockTransport, open_connection
from tests.helpers.remembered import remembered_shapes

CONNECTIONS = 5_000
CLIENT_ID_POSITION = 10
PARTITIONS = 6
LONG_ID = 900
"""Bytes of a client id. The longest one whose requests are remembered has some 1,000."""
BODIES = [
    request_bytes(
        produce("many", records=bytes(batch(b"x")), partition=partition), 9, client_id=""
    )[CLIENT_ID_POSITION:]
    for partition in range(PARTITIONS)
]
"""Produce requests without the header and the client id."""


class Holder:
    def __init__(self) -> None:
        self.used = False
        self.bytes = 0

    def forget(self) -> None:
        self.bytes = 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 400), st.booleans()), max_size=60))
def test_charged_bytes_equal_held_bytes_and_never_exceed_the_limit(
    steps: list[tuple[int, int, bool]],
) -> None:
    budget = ShapeBudget(4 * HOLDER_BYTES)
    holders = [Holder() for _ in range(10)]
    for number, size, leaves in steps:
        holder = holders[number]
        if leaves:
            budget.release(holder)
            holder.forget()
        else:
            holder.used = True
            before = holder.bytes
            holder.bytes += size if before else size + HOLDER_BYTES
            budget.acquire(holder, size)
        assert budget.used == sum(each.bytes for each in holders)
        assert budget.used <= budget.bytes_max


def test_used_shapes_stay_and_unused_ones_are_evicted() -> None:
    budget = ShapeBudget(10 * (HOLDER_BYTES + 100))
    holders = [Holder() for _ in range(20)]
    for number, holder in enumerate(holders):
        holder.bytes = 100
        budget.acquire(holder, 100)
        holders[0].used = True
        assert holders[0].bytes, f"evicted at {number}"
    assert sum(bool(each.bytes) for each in holders) == 10


def test_shapes_larger_than_the_budget_are_forgotten() -> None:
    budget = ShapeBudget(1_000)
    holder = Holder()
    holder.bytes = 5_000
    budget.acquire(holder, 5_000)
    assert (budget.used, holder.bytes) == (0, 0)


def frame(client: int, partition: int) -> bytes:
    """Return a produce request with its own client id."""
    body = BODIES[partition]
    client_id = b"%0*d" % (LONG_ID, client)
    header = struct.pack(">hhih", 0, 9, client, len(client_id)) + client_id
    return struct.pack(">i", len(header) + len(body)) + header + body


def test_charged_bytes_equal_the_memory_of_shapes(tmp_path: Path) -> None:
    budget = ShapeBudget()
    with running_broker(tmp_path) as (runner, server):
        runner.run(server.create_topic("many", PARTITIONS))

        async def send(clients: Iterable[int], kept: list[Connection]) -> None:
            dispatcher = Dispatcher(server.services, budget)
            for client in clients:
                connection, transport = open_connection(dispatcher.dispatch)
                kept.append(connection)
                for partition in range(PARTITIONS):
                    received(connection, frame(client, partition))()
                    transport.written.clear()

        runner.run(send(range(10), []))
        kept: list[Connection] = []
        charged = budget.used
        tracemalloc.start()
        try:
            runner.run(send(range(100), kept))
            gc.collect()
            with_shapes = tracemalloc.get_traced_memory()[0]
            for connection in kept:
                connection.remembered = None
                connection.on_close.clear()
            budget._holders.clear()
            gc.collect()
            taken = with_shapes - tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert 0.9 * taken <= budget.used - charged <= 1.3 * taken


def test_5000_connections_with_distinct_shapes_stay_within_the_limit(tmp_path: Path) -> None:
    assert CONNECTIONS * PARTITIONS * (SHAPE_OBJECTS_BYTES + LONG_ID) > SHAPE_BYTES_MAX
    budget = ShapeBudget()

    with running_broker(tmp_path) as (runner, server):
        runner.run(server.create_topic("many", PARTITIONS))

        async def send_all() -> None:
            dispatcher = Dispatcher(server.services, budget)
            opened: list[tuple[Connection, MockTransport]] = []
            for client in range(CONNECTIONS):
                connection, transport = open_connection(dispatcher.dispatch)
                opened.append((connection, transport))
                for partition in range(PARTITIONS):
                    request = frame(client, partition)
                    received(connection, request)()
                    assert transport.writes == partition + 1
                assert budget.used <= SHAPE_BYTES_MAX
                transport.written.clear()
            remembered = sum(len(remembered_shapes(connection).shapes) for connection, _ in opened)
            assert 0 < remembered * (SHAPE_OBJECTS_BYTES + LONG_ID) <= SHAPE_BYTES_MAX
            assert not remembered_shapes(opened[0][0]).shapes
            # The shapes of the first connections were evicted. Their requests are executed and
            # remembered again.
            connection, transport = opened[0]
            for _ in range(2):
                received(connection, frame(0, 0))()
            assert transport.writes == PARTITIONS + 2
            assert remembered_shapes(connection).shapes
            for connection, _ in opened:
                connection.connection_lost(None)
            assert budget.used == 0

        runner.run(send_all())
