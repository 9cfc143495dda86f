"""A process that opens 5,000 connections, each of which makes the broker use much memory.

Each connection sends produce requests of distinct shapes. Then some leave a torn frame, some read
no responses and continue to send, and some pipeline long polls. The process writes its figures as
JSON (see `test_connection_memory`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from odradek.broker.broker import BrokerServer
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.shape_budget import ShapeBudget
from odradek.net.budget import MemoryBudget, QueuedResponses, ReceivedAhead, UnsentResponses
from odradek.net.connection import Connection
from odradek.net.limits import SCRATCH_BYTES, TAIL_BYTES, NetLimits
from odradek.net.receive import Scratch
from testkit.requests import fetch
from tests.broker.requests.test_shape_budget import PARTITIONS, frame
from tests.broker.test_call_count import framed, received, running_broker
from tests.helpers.mock_transport import MockTransport, feed, open_connection

CONNECTIONS = 5_000
IN_FLIGHT_MAX = 4
"""Limit of a connection. With Kafka's 256 the long polls would take minutes."""
FOREVER_MS = 2**31 - 1
AT_ONCE = 50
"""Connections that are opened in an iteration of the event loop."""


@dataclass
class Figures:
    """Figures of a run, in bytes except for the counts. `used` and `limits` are by name of the
    limit.
    """

    used_max: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    used_after_close: dict[str, int] = field(default_factory=dict)
    closed: int = 0
    long_polls_max: int = 0
    rss_growth: int = 0


@dataclass
class Memory:
    """The memory that is counted over all connections of a broker."""

    limits: NetLimits = field(
        default_factory=lambda: NetLimits(requests_in_flight_max=IN_FLIGHT_MAX)
    )
    shapes: ShapeBudget = field(default_factory=ShapeBudget)

    def __post_init__(self) -> None:
        limits = self.limits
        self.requests = MemoryBudget(limits.request_bytes_queued_max)
        self.queued = QueuedResponses(limits.response_bytes_queued_total_max)
        self.unsent = UnsentResponses(limits.response_bytes_unsent_max)
        self.ahead = ReceivedAhead(limits.received_ahead_bytes_max)
        self.scratch = Scratch(limits.lent_bytes_max)

    def open(self, dispatcher: Dispatcher) -> tuple[Connection, MockTransport]:
        return open_connection(
            dispatcher.dispatch,
            limits=self.limits,
            budget=self.requests,
            queued=self.queued,
            unsent=self.unsent,
            ahead=self.ahead,
            scratch=self.scratch,
        )

    def used(self) -> dict[str, int]:
        return {
            "shapes": self.shapes.used,
            "requests": self.requests.used,
            "queued": self.queued.used,
            "unsent": self.unsent.used,
            "ahead": self.ahead.used,
            "lent": self.scratch.lent,
        }

    def bounds(self) -> dict[str, int]:
        return {
            "shapes": self.shapes.bytes_max,
            "requests": self.requests.bytes_max,
            "queued": self.queued.bytes_max,
            "unsent": self.unsent.bytes_max,
            "ahead": self.ahead.bytes_max,
            "lent": self.scratch.lent_bytes_max,
        }


def rss_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def leave(connection: Connection, transport: MockTransport, client: int) -> None:
    """Make the broker use memory, in one of several ways that a client has."""
    kind = client % 5
    ahead = frame(client, 1) * (2 * SCRATCH_BYTES // 1_000)
    if kind == 0:
        feed(connection, frame(client, 0) * 10 + bytes(2) + b"\xff\0" + bytes(TAIL_BYTES - 4))
    elif kind == 1:
        transport.room = 0
        feed(connection, frame(client, 0))
        feed(connection, ahead)
    else:
        poll = fetch("polled", max_wait_ms=FOREVER_MS)
        feed(connection, framed(poll, 4) * IN_FLIGHT_MAX + ahead)


async def open_all(server: BrokerServer, figures: Figures) -> None:
    await server.create_topic("many", PARTITIONS)
    await server.create_topic("polled", 1)
    memory = Memory()
    dispatcher = Dispatcher(server.services, memory.shapes)
    figures.limits = memory.bounds()
    opened = list(_opened(memory, dispatcher, range(AT_ONCE)))
    await asyncio.sleep(0)
    gc.collect()
    before = rss_peak()
    waiting = server.services.replica_manager.fetches.waiting
    for first in range(AT_ONCE, CONNECTIONS, AT_ONCE):
        opened += _opened(memory, dispatcher, range(first, first + AT_ONCE))
        await asyncio.sleep(0)
        for name, used in memory.used().items():
            figures.used_max[name] = max(used, figures.used_max.get(name, 0))
        figures.long_polls_max = max(len(waiting), figures.long_polls_max)
    figures.rss_growth = rss_peak() - before
    figures.closed = sum(connection.closed for connection, _ in opened)
    for _, transport in opened:
        transport.abort()
    for _ in range(10):
        await asyncio.sleep(0)
    figures.used_after_close = memory.used()


def _opened(
    memory: Memory, dispatcher: Dispatcher, clients: range
) -> Iterator[tuple[Connection, MockTransport]]:
    for client in clients:
        connection, transport = memory.open(dispatcher)
        for partition in range(PARTITIONS):
            received(connection, frame(client, partition))()
        transport.written.clear()
        leave(connection, transport, client)
        yield connection, transport


def main(directory: Path) -> None:
    figures = Figures()
    with running_broker(directory) as (runner, server):
        runner.run(open_all(server, figures))
    sys.stdout.write(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
