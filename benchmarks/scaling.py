"""The cost of 100 times the bytes: `make evidence-scaling`.

A partition of 64 MB and a partition of 6.4 GB, with segments of 16 MB, are each in a separate
broker. The first figure is the time from the start to the first response after a clean stop. The
others are the CPU and the p50 of fetches of 64 KiB at random offsets. The page cache is warm: the
whole log is read once before.
"""

from __future__ import annotations

import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.processes import cpu_seconds
from testkit.peer import BrokerProcess
from testkit.peer.artifacts import ROOT
from testkit.peer.server import STARTERS

SMALL_BYTES = 64_000_000
FACTOR = 100
RECORD_BYTES = 1000
FETCH_BYTES = 65_536
FETCHES = 20_000
WARM_UP_FETCHES = 2000
STARTS = 7
TOPIC = "scaling"


class Fetcher:
    """Fetch requests of version 4 over one socket, one at a time."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fetch(self, offset: int) -> int:
        """Fetch one piece of partition 0. Return the size of the response in bytes."""
        name = TOPIC.encode()
        # Header v1, then replica id, max wait, min bytes, max bytes, isolation; one topic, one
        # partition with its offset and its max bytes.
        body = struct.pack(">hhih7s", 1, 4, 1, 7, b"scaling")
        body += struct.pack(">iiiib", -1, 100, 1, FETCH_BYTES, 0)
        body += struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, 0, offset, FETCH_BYTES)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        size: int = struct.unpack(">i", self._receive(4))[0]
        response = self._receive(size)
        # Correlation id, throttle time, one topic with its name, one partition: its error code.
        (error,) = struct.unpack_from(">h", response, 4 + 4 + 4 + 2 + len(name) + 4 + 4)
        if error != 0:
            raise RuntimeError(f"Fetch at {offset}: error {error}")
        return size

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(min(1 << 20, size - len(received)))
            if not chunk:
                raise RuntimeError("the broker closed the connection")
            received += chunk
        return bytes(received)

    def close(self) -> None:
        self._socket.close()


def fill(broker: BrokerProcess, records: int) -> None:
    """The topic with this many records, in batches of 64 KB, written by librdkafka."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    config = {"segment.bytes": str(16 << 20), "retention.ms": "-1"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.rdkafka",
            "produce",
            broker.bootstrap,
            TOPIC,
            "--records",
            str(records),
            "--size",
            str(RECORD_BYTES),
            "--batch",
            "60",
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=1800,
    )


def fetches(broker: BrokerProcess, records: int, count: int) -> dict[str, float]:
    """CPU and median time of fetches at random offsets, in microseconds."""
    fetcher = Fetcher(broker.bootstrap)
    chosen = random.Random(1)
    for log in sorted((broker.log_dir / f"{TOPIC}-0").glob("*.log")):
        log.read_bytes()  # Read the log into the page cache.
    offsets = [chosen.randrange(records - 100) for _ in range(count)]
    for offset in offsets[:WARM_UP_FETCHES]:
        fetcher.fetch(offset)
    taken = []
    before = cpu_seconds(broker.pid)
    for offset in offsets:
        began = time.perf_counter()
        fetcher.fetch(offset)
        taken.append(time.perf_counter() - began)
    used = cpu_seconds(broker.pid) - before
    fetcher.close()
    return {"fetch_cpu_us": used / count * 1e6, "fetch_p50_us": statistics.median(taken) * 1e6}


def measure(name: str, size: int, count: int) -> dict[str, Any]:
    """All figures of one size."""
    records = size // RECORD_BYTES
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    broker = STARTERS[name](work)
    starts = []
    try:
        fill(broker, records)
        for _ in range(STARTS):
            broker.stop()
            broker = broker.restart()
            starts.append(broker.started_s * 1000)
        figures = fetches(broker, records, count)
    finally:
        broker.stop()
        shutil.rmtree(work, ignore_errors=True)
    return {"bytes": size, "starts_ms": starts, "start_ms": statistics.median(starts), **figures}
