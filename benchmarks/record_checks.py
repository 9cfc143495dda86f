"""What work per record costs a broker: checks of compacted topics, and searches for timestamps.

    python -m benchmarks.record_checks compacted [--pairs N] [--scale X] [--broker NAME]

`compacted` produces keyed records of 200 bytes (key and value) to plain and to compacted topics, in
batches of 50 and of 500, of equal and of varying sizes, uncompressed and with lz4. It prints the
broker's CPU-seconds for a million records, all values, and the median of the paired ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from conformance.peer.artifacts import ROOT
from conformance.peer.server import STARTERS, BrokerProcess

from benchmarks.loads import drop_topic, measured
from benchmarks.machine import description

MILLION = 1_000_000
NAMES = ("odradek", "kafka")
RECORD_BYTES = 200
KEY_BYTES = 16
KEYS = 1_000
VALUES = 997
SEED = 11


@dataclass(frozen=True, slots=True)
class Row:
    """One load of `compacted`."""

    policy: str
    batch: int
    sizes: str = "equal"
    compression: str = "none"
    records: int = 500_000

    @property
    def title(self) -> str:
        return f"{self.policy} {self.batch} {self.sizes} {self.compression}"


ROWS = (
    Row("delete", 50),
    Row("compact", 50),
    Row("compact", 50, "varying"),
    Row("compact", 50, "equal", "lz4"),
    Row("delete", 500, records=1_000_000),
    Row("compact", 500, records=1_000_000),
    Row("compact", 500, "varying", records=1_000_000),
    Row("compact", 500, "equal", "lz4", records=1_000_000),
)


def produce(address: str, topic: str, row: Row) -> dict[str, float]:
    """Send the records of `row` with librdkafka; seconds from the first to the last response."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": 1,
            "linger.ms": 20,
            "batch.num.messages": row.batch,
            "compression.type": row.compression,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
        }
    )
    rng = random.Random(SEED)
    size = RECORD_BYTES - KEY_BYTES
    keys = [b"%0*d" % (KEY_BYTES, number) for number in range(KEYS)]
    spread = size // 2 if row.sizes == "varying" else 0
    values = [rng.randbytes(rng.randint(size - spread, size + spread)) for _ in range(VALUES)]
    producer.list_topics(topic, timeout=30)
    began = time.perf_counter()
    for number in range(row.records):
        while True:
            try:
                key, value = keys[number % KEYS], values[number % VALUES]
                producer.produce(topic, value, key, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    seconds = time.perf_counter() - began
    if left:
        raise SystemExit(f"{left} records without a response")
    return {"records": row.records, "seconds": seconds}


def compacted(broker: BrokerProcess, row: Row) -> dict[str, float]:
    """Run one load in a process of its own; CPU-seconds of the broker for a million records."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    config = {"cleanup.policy": row.policy, "file.delete.delay.ms": "1000"}
    # The compaction itself is not part of the comparison.
    config["min.compaction.lag.ms"] = "86400000"
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    os.sync()
    command = [sys.executable, "-m", "benchmarks.record_checks", "produce"]
    output, cpu = measured(broker, [*command, broker.bootstrap, name, json.dumps(asdict(row))])
    drop_topic(broker, name)
    return {
        "cpu_s_per_million": cpu * MILLION / row.records,
        "records_per_s": row.records / float(json.loads(output)["seconds"]),
    }


def run_compacted(names: tuple[str, ...], pairs: int, scale: float, only: str) -> dict[str, Any]:
    """All values by row and broker; the first pair is a warm-up and left out."""
    values: dict[str, dict[str, list[dict[str, float]]]] = {}
    rows = [row for row in ROWS if only in row.title]
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        brokers = {name: STARTERS[name](Path(work) / name) for name in names}
        try:
            for pair in range(pairs + 1):
                for row in rows:
                    scaled = Row(
                        row.policy, row.batch, row.sizes, row.compression, int(row.records * scale)
                    )
                    for name in names if pair % 2 == 0 else names[::-1]:
                        found = compacted(brokers[name], scaled)
                        _tell(
                            f"{f'pair {pair}' if pair else 'warm-up'} {name:8} {row.title:28} "
                            f"{found['cpu_s_per_million']:6.2f} CPU-s a million "
                            f"{found['records_per_s']:10,.0f} records/s"
                        )
                        if pair:
                            by_name = values.setdefault(row.title, {})
                            by_name.setdefault(name, []).append(found)
        finally:
            for broker in brokers.values():
                broker.stop()
    return {"rows": values, "ratios": _ratios(values)}


def _ratios(values: dict[str, dict[str, list[dict[str, float]]]]) -> dict[str, float]:
    """The median over the pairs of Odradek's CPU divided by Kafka's."""
    ratios = {}
    for title, by_name in values.items():
        if len(by_name) == len(NAMES):
            ours, theirs = (
                [found["cpu_s_per_million"] for found in by_name[name]] for name in NAMES
            )
            ratios[title] = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return ratios


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_checks")
    commands = parser.add_subparsers(dest="command", required=True)
    load = commands.add_parser("compacted", help="CPU of compacted topics compared with Kafka")
    load.add_argument("--pairs", type=int, default=5)
    load.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    load.add_argument("--broker", choices=NAMES, help="one of the two alone")
    load.add_argument("--only", default="", help="only rows with this in their title")
    client = commands.add_parser("produce")
    client.add_argument("address")
    client.add_argument("topic")
    client.add_argument("row")
    given = parser.parse_args()
    if given.command == "produce":
        print(json.dumps(produce(given.address, given.topic, Row(**json.loads(given.row)))))
        return
    names = (given.broker,) if given.broker else NAMES
    result = {"commit": _commit(), "machine": description()}
    result |= run_compacted(names, given.pairs, given.scale, given.only)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
