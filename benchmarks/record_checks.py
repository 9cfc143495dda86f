"""The cost of work per record: checks for compacted topics, and searches for timestamps.

There are two commands.

    python -m benchmarks.record_checks compacted [--pairs N] [--scale X] [--broker NAME]
    python -m benchmarks.record_checks lookups [--rounds N] [--seconds S]

The first command produces keyed records of 200 bytes (key and value) to topics with and
without compaction. The batches have 50 or 500 records of equal or varying sizes, uncompressed or
with lz4. It prints the broker's CPU-seconds for a million records, all values, and the median of
the paired ratios.

The command `lookups` sends produce requests of one record, one in flight. It prints percentiles of
their latencies in three phases. In the first the client is alone. In the second two clients look up
timestamps in a batch of 300,000 records, with one request in flight each. In the third a foreign
program uses as much CPU as those lookups cost the broker. The phases alternate, and the values of
all rounds are pooled. The same is done with two clients that send large compressed batches to a
compacted topic.
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

from benchmarks.loads import drop_topic, measured
from benchmarks.machine import description
from benchmarks.processes import cpu_seconds
from odradek.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records.record import Record, build_batch
from testkit.peer.artifacts import ROOT
from testkit.peer.server import STARTERS, BrokerProcess
from testkit.wire import WireClient

MILLION = 1_000_000
NAMES = ("odradek", "kafka")
RECORD_BYTES = 200
KEY_BYTES = 16
KEYS = 1_000
VALUES = 997
SEED = 11


LOOKUP_RECORDS = 300_000
LOOKUP_TOPIC, OPENED_TOPIC, OTHER_TOPIC = "lookups", "opened", "other"
OPENED_RECORDS = 100_000
OTHER_PAUSE_S = 0.002
PRODUCE_VERSION, LIST_OFFSETS_VERSION = 9, 5
BASE_TIMESTAMP = 1_700_000_000_000
KINDS = ("lookups", "opened")
PERCENTILES = (50, 90, 99, 99.9)


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
    """Send the records of `row` with librdkafka. Return the seconds from first to last response."""
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
    """Run one load in its own process. Return the broker's CPU seconds for a million records."""
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
    """Return all values by row and broker. The first pair is a warm-up and is left out."""
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
                        _report(
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


def tiny_records(count: int, compression: str) -> bytearray:
    """Return a batch of very small records, ten for each millisecond."""
    records = (Record(b"k", b"", BASE_TIMESTAMP + number // 10) for number in range(count))
    return build_batch(records, compression=compression)


def produce_request(topic: str, records: bytearray) -> ProduceRequest:
    return ProduceRequest(
        None,
        1,
        30_000,
        [TopicProduceData(topic, partition_data=[PartitionProduceData(0, records)])],
    )


def client(kind: str, address: str, seconds: float) -> dict[str, Any]:
    """Run one client with one request in flight. Return the request latencies in microseconds."""
    wire = WireClient(address)
    version, pause_s = PRODUCE_VERSION, 0.0
    request: Any
    if kind == "lookups":
        last = BASE_TIMESTAMP + (LOOKUP_RECORDS - 1) // 10
        partition = ListOffsetsPartition(0, -1, last)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(LOOKUP_TOPIC, [partition])])
        version = LIST_OFFSETS_VERSION
    elif kind == "opened":
        request = produce_request(OPENED_TOPIC, tiny_records(OPENED_RECORDS, "zstd"))
    else:
        request, pause_s = produce_request(OTHER_TOPIC, tiny_records(1, "none")), OTHER_PAUSE_S
    latencies = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        wire.send(request, version)
        response = wire.receive()
        latencies.append(round((time.perf_counter() - began) * MILLION))
        _check(kind, response)
        time.sleep(pause_s)
    wire.close()
    return {"microseconds": latencies}


def _check(kind: str, response: Any) -> None:
    if kind == "lookups":
        offset = response.topics[0].partitions[0].offset
        assert offset == (LOOKUP_RECORDS - 1) // 10 * 10, offset
    else:
        code = response.responses[0].partition_responses[0].error_code
        assert code == 0, code


def spin(share: float, seconds: float) -> dict[str, Any]:
    """Use `share` of one processor."""
    began = time.perf_counter()
    used = time.process_time()
    while (elapsed := time.perf_counter() - began) < seconds:
        if time.process_time() - used > share * elapsed:
            time.sleep(0.001)
    return {}


def phase(
    broker: BrokerProcess, kind: str | None, spinners: list[float], seconds: float
) -> tuple[list[int], int, float]:
    """Run the measured client beside two clients of `kind` or beside spinners.

    Returns:
        The latencies, the number of executed requests of `kind`, and the broker's CPU seconds per
        second.
    """
    program = [sys.executable, "-m", "benchmarks.record_checks"]
    commands = [["client", kind, broker.bootstrap, str(seconds + 1)]] * 2 if kind else []
    commands += [["spin", str(share), str(seconds + 1)] for share in spinners]
    before, began = cpu_seconds(broker.pid), time.perf_counter()
    beside = [
        subprocess.Popen([*program, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for command in commands
    ]
    time.sleep(1)
    other = subprocess.run(
        [*program, "client", "other", broker.bootstrap, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    requests = 0
    for process in beside:
        output, _ = process.communicate(timeout=120)
        requests += len(json.loads(output).get("microseconds", []))
    used = (cpu_seconds(broker.pid) - before) / (time.perf_counter() - began)
    latencies = json.loads(other.stdout)["microseconds"]
    return latencies, requests, used


def run_lookups(rounds: int, seconds: float) -> dict[str, Any]:
    """Percentiles by kind and phase, in milliseconds."""
    pooled: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as work,
        STARTERS["odradek"](Path(work) / "odradek") as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
        compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
        # The records have old timestamps, and the check of the retention time runs during the load.
        kept = {"retention.ms": "-1"}
        configs = {LOOKUP_TOPIC: kept, OPENED_TOPIC: compacted, OTHER_TOPIC: kept}
        for name, config in configs.items():
            admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
        wire = WireClient(broker.bootstrap)
        packed = tiny_records(LOOKUP_RECORDS, "gzip")
        wire.send(produce_request(LOOKUP_TOPIC, packed), PRODUCE_VERSION)
        _check("produce", wire.receive())
        _report(f"a batch of {LOOKUP_RECORDS:,} records in {len(packed):,} bytes")
        for _ in range(rounds):
            alone, _, idle = phase(broker, None, [], seconds)
            pooled.setdefault("alone", []).extend(alone)
            for kind in KINDS:
                beside, requests, used = phase(broker, kind, [], seconds)
                share = max(used - idle, 0.0)
                spinners = [1.0] * int(share) + [share % 1.0]
                foreign, _, _ = phase(broker, None, spinners, seconds)
                pooled.setdefault(f"beside {kind}", []).extend(beside)
                pooled.setdefault(f"beside as much CPU as {kind}", []).extend(foreign)
                counts[kind] = counts.get(kind, 0) + requests
                _report(
                    f"{kind:8} {requests / seconds:5.1f}/s, {share:.2f} CPU: p99 alone "
                    f"{percentile(alone, 99):.2f} ms, beside it {percentile(beside, 99):.2f} ms, "
                    f"beside as much CPU {percentile(foreign, 99):.2f} ms"
                )
    phases = {
        name: {"requests": len(values)}
        | {f"p{at}_ms": percentile(values, at) for at in PERCENTILES}
        for name, values in pooled.items()
    }
    ratios = {
        kind: phases[f"beside {kind}"]["p99_ms"] / phases[f"beside as much CPU as {kind}"]["p99_ms"]
        for kind in KINDS
    }
    return {
        "rounds": rounds,
        "seconds": seconds,
        "batch_bytes": len(packed),
        "phases": phases,
        "p99_ratio_to_foreign": ratios,
        "requests_beside": counts,
    }


def percentile(microseconds: list[int], at: float) -> float:
    """In milliseconds."""
    ordered = sorted(microseconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * at / 100))] / 1000


def _report(line: str) -> None:
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
    search = commands.add_parser("lookups", help="latency of a client beside long work on records")
    search.add_argument("--rounds", type=int, default=6)
    search.add_argument("--seconds", type=float, default=10.0, help="of each phase of a round")
    _add_children(commands)
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    if arguments.command == "produce":
        print(
            json.dumps(
                produce(arguments.address, arguments.topic, Row(**json.loads(arguments.row)))
            )
        )
        return
    if arguments.command == "client":
        print(json.dumps(client(arguments.kind, arguments.address, arguments.seconds)))
        return
    if arguments.command == "spin":
        print(json.dumps(spin(arguments.share, arguments.seconds)))
        return
    if arguments.command == "compacted":
        names = (arguments.broker,) if arguments.broker else NAMES
        result = run_compacted(names, arguments.pairs, arguments.scale, arguments.only)
    else:
        result = run_lookups(arguments.rounds, arguments.seconds)
    print(json.dumps({"commit": _commit(), "machine": description()} | result, indent=1))


def _add_children(commands: Any) -> None:
    """Add the commands of the processes that the measurements start."""
    sender = commands.add_parser("produce")
    for name in ("address", "topic", "row"):
        sender.add_argument(name)
    other = commands.add_parser("client")
    other.add_argument("kind")
    other.add_argument("address")
    other.add_argument("seconds", type=float)
    foreign = commands.add_parser("spin")
    foreign.add_argument("share", type=float)
    foreign.add_argument("seconds", type=float)


if __name__ == "__main__":
    main()
