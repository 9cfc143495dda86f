"""Start time and idle memory: `make evidence-startup`.

The figures are the idle memory of `odradek serve` and three times. The first is the time of the
first `Broker()` of a fresh interpreter with its imports. The second is the time of further
`Broker()` calls in the same interpreter. The third is the time of `reset()` with ten topics that
hold records.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import memory_bytes
from benchmarks.tables import MIB
from testkit.peer.artifacts import ROOT
from testkit.peer.server import start_odradek

REPEATS = 7
IDLE_REPEATS = 3
SETTLE_S = 2.0

# Scripts for separate interpreters. Each prints one list of milliseconds.
FIRST = """
import time; began = time.perf_counter()
from odradek.testing import Broker
with Broker() as broker:
    print([(time.perf_counter() - began) * 1000])
"""
NEXT = """
import time
from odradek.testing import Broker
with Broker(): pass
taken = []
for _ in range(20):
    began = time.perf_counter()
    with Broker():
        taken.append((time.perf_counter() - began) * 1000)
print(taken)
"""
RESET = """
import time
from confluent_kafka import Producer
from odradek.testing import Broker
taken = []
with Broker() as broker:
    for _ in range(20):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for number in range(1000):
            producer.produce(f"topic-{number % 10}", b"x" * 100)
        assert producer.flush(30) == 0
        began = time.perf_counter()
        broker.reset()
        taken.append((time.perf_counter() - began) * 1000)
print(taken)
"""


def idle_memory_mib() -> float:
    """Return the resident size of a broker that was started and has received no request."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as work,
        start_odradek(Path(work)) as broker,
    ):
        time.sleep(SETTLE_S)
        return memory_bytes(broker.pid) / MIB


def run_script(source: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-1500:])
    values = json.loads(done.stdout.strip().splitlines()[-1])
    assert isinstance(values, list)
    return [float(value) for value in values]


def measure(what: str, repeats: int) -> list[float]:
    """The values of one row: MiB of idle memory, or milliseconds."""
    if what == "idle_memory":
        return [idle_memory_mib() for _ in range(IDLE_REPEATS)]
    if what == "first":
        # The first run warms the page cache.
        return [run_script(FIRST)[0] for _ in range(repeats + 1)][1:]
    return run_script({"next": NEXT, "reset": RESET}[what])
