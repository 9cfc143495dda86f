"""Commits per second to ZooKeeper and to ``__consumer_offsets``: `make evidence-zookeeper-commits`.

A consumer of Kafka 0.8 commits an offset by a setData request to ZooKeeper, and a later one by an
OffsetCommit request to a broker. One run measures both, with one commit in flight and with many.

ZooKeeper syncs each write to its disk, in groups. A broker leaves that to the page cache and to the
replicas. A second ZooKeeper does not sync, so that its writes are as durable as those of the
broker. No server has a replica.

As in `benchmarks.commits`, the requests are encoded once and differ only in their number, so that
the server is the limit. The nodes are created by the project's client.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.commits import VERSION, Connection, await_coordinator, commit, drive
from benchmarks.processes import cpu_seconds
from odradek.launcher.plan import ZOOKEEPER_JVM, ZooKeeperPlan
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress, create_client
from testkit.peer.server import BrokerProcess, free_ports, start_odradek
from testkit.wire import request_bytes
from testkit.zookeeper import ZooKeeperProcess

COMMITS = 40_000
COMMITS_MIN = 400
SINGLE_SHARE = 10
"""With one commit in flight a run has that part of the commits."""
ROWS = {
    "one": ("one commit in flight", 1, 1),
    "many": ("4 connections, 50 commits in flight on each", 4, 50),
}
"""Title, connections, and commits in flight on each."""
SIDES = {
    "zookeeper": "ZooKeeper",
    "zookeeper_unsynced": "ZooKeeper without fsync",
    "offsets_topic": "`__consumer_offsets`",
}
TOPIC = "pages"
SESSION_MS = 30_000
ZOOKEEPER_HEAP = "-Xmx1000m"
"""The default of bin/zkServer.sh. The launcher's options are for a short start."""
SET_DATA = 5
ANY_VERSION = -1
_OPEN_SESSION = struct.pack(">iqiqi16s", 0, 0, SESSION_MS, 0, 16, bytes(16))
_RESPONSE = struct.Struct(">iqi")  # number of the request, zxid, error

Values = dict[str, dict[str, dict[str, float]]]
"""Commits per second and CPU-µs of the server for each commit, by side and row."""


class OffsetNode(Connection):
    """One session of ZooKeeper, which sets the data of one node."""

    def __init__(self, address: str, path: str, count: int) -> None:
        body = struct.pack(">i", SET_DATA)
        for each in (path.encode(), b"123456"):
            body += struct.pack(">i", len(each)) + each
        body += struct.pack(">i", ANY_VERSION)
        super().__init__(address, struct.pack(">i", 0) + body, count)
        self._before, self._after = struct.pack(">i", 4 + len(body)), body
        self.socket.sendall(struct.pack(">i", len(_OPEN_SESSION)) + _OPEN_SESSION)
        with self.socket.makefile("rb", buffering=0) as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)

    def check(self) -> None:
        number, _, error = _RESPONSE.unpack_from(self._last)
        if number != self._sent - 1 or error:
            raise SystemExit(f"response {number}, error {error}")


class _NoEvents:
    """The events of a client whose requests block."""

    def completed(self, result: Any) -> None: ...

    def negotiated(self, session_timeout_ms: int) -> None: ...

    def state_changed(self, state: str) -> None: ...


def offset_path(group: int) -> str:
    return f"/consumers/group-{group}/offsets/{TOPIC}/0"


@contextmanager
def running(work: Path) -> Iterator[Callable[[int, float], Values]]:
    """Start the servers. Yield a function that measures a round at a scale."""
    with ExitStack() as stack:
        synced = stack.enter_context(_server(work / "synced", syncs=True))
        unsynced = stack.enter_context(_server(work / "unsynced", syncs=False))
        broker = stack.enter_context(start_odradek(work / "broker"))
        for server in (synced, unsynced):
            server.start()
            _create_nodes(server)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        sides: dict[str, Callable[[int, int, int], tuple[float, float]]] = {
            "zookeeper": lambda *load: _zookeeper(synced, *load),
            "zookeeper_unsynced": lambda *load: _zookeeper(unsynced, *load),
            "offsets_topic": lambda *load: _offsets_topic(broker, *load),
        }

        def measure(number: int, scale: float) -> Values:
            order = list(sides) if number % 2 else list(reversed(sides))
            found: Values = {side: {} for side in SIDES}
            for row, (_, connections, in_flight) in ROWS.items():
                share = SINGLE_SHARE if in_flight == 1 else 1
                commits = max(COMMITS_MIN, int(COMMITS * scale) // share)
                for side in order:
                    seconds, cpu_s = sides[side](commits // connections, connections, in_flight)
                    done = commits // connections * connections
                    found[side][row] = {"rate": done / seconds, "cpu_us": 1e6 * cpu_s / done}
            return found

        yield measure


def _server(directory: Path, *, syncs: bool) -> ZooKeeperProcess:
    """Return a server that is not started, with the JVM's defaults and ZooKeeper's heap."""
    (port,) = free_ports(1)
    server = ZooKeeperProcess(ZooKeeperPlan(port, directory, syncs))
    java, *words = server.child.command
    server.child.command = [java, ZOOKEEPER_HEAP, *(w for w in words if w not in ZOOKEEPER_JVM)]
    return server


def _create_nodes(server: ZooKeeperProcess) -> None:
    client = create_client(ZooKeeperAddress(server.address), SESSION_MS, None, _NoEvents())
    client.start()
    try:
        for _, connections, _ in ROWS.values():
            for group in range(connections):
                client.ensure_path(offset_path(group))
    finally:
        client.stop()
        client.close()


def _zookeeper(
    server: ZooKeeperProcess, count: int, connections: int, in_flight: int
) -> tuple[float, float]:
    """Return the seconds of a run, and the CPU seconds of the server."""
    every = [OffsetNode(server.address, offset_path(n), count) for n in range(connections)]
    return _driven(every, in_flight, server.child.pid)


def _offsets_topic(
    broker: BrokerProcess, count: int, connections: int, in_flight: int
) -> tuple[float, float]:
    groups = [f"group-{number}" for number in range(connections)]
    await_coordinator(broker.bootstrap, groups, TOPIC)
    frames = [request_bytes(commit(group, TOPIC, 1), VERSION, 0, "commits") for group in groups]
    every = [Connection(broker.bootstrap, frame, count) for frame in frames]
    return _driven(every, in_flight, broker.pid)


def _driven(every: list[Any], in_flight: int, pid: int) -> tuple[float, float]:
    before_s = cpu_seconds(pid)
    seconds = drive(every, in_flight)
    return seconds, cpu_seconds(pid) - before_s
