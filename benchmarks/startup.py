"""How soon and how small: `python -m benchmarks.startup`.

Idle memory of `odradek serve`; the first `Broker()` of a fresh interpreter, imports included; the
next ones in the same interpreter; `reset()` with ten topics that hold records.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import description
from benchmarks.processes import memory_bytes
from benchmarks.report import DOCS, RESULTS, render
from benchmarks.tables import MIB
from testkit.peer.artifacts import ROOT
from testkit.peer.server import start_odradek

REPEATS = 7
SETTLE_S = 2.0

# Run in interpreters of their own; each prints one list of milliseconds.
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
    """The resident size of a broker that was started and not asked anything."""
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, help="directory instead of docs/")
    given = parser.parse_args()
    first = [run_script(FIRST)[0] for _ in range(given.repeats + 1)][1:]  # One to warm the cache.
    rows: list[dict[str, Any]] = [
        {
            "title": "idle memory of `odradek serve`",
            "unit": "MiB",
            "target": 80,
            "values": [idle_memory_mib() for _ in range(3)],
        },
        {
            "title": "first `Broker()` of a fresh interpreter, imports included",
            "unit": "ms",
            "target": 500,
            "values": first,
        },
        {"title": "the next `Broker()`", "unit": "ms", "target": 100, "values": run_script(NEXT)},
        {
            "title": "`reset()` with ten topics",
            "unit": "ms",
            "target": 10,
            "values": run_script(RESET),
        },
    ]
    docs = given.out or DOCS
    (docs / RESULTS).mkdir(parents=True, exist_ok=True)
    out = docs / RESULTS / "startup.json"
    out.write_text(
        json.dumps({"machine": description(), "rows": rows}, indent=1) + "\n", encoding="utf-8"
    )
    render(docs)
    for row in rows:
        print(row["title"], row["unit"], [round(value, 1) for value in row["values"]])


if __name__ == "__main__":
    main()
