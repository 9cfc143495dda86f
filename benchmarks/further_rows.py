"""Loads beyond the first table, as rows of paired runs: partitions, clients, topics, lookups.

`benchmarks.evidence.further` runs them and renders their table.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.commits_verdict import quantile
from benchmarks.compaction_beside import CHECKPOINT
from benchmarks.coordination import COMMIT_METRICS, commits
from benchmarks.evidence.paired import HISTOGRAM, LATENCIES, Row, counted
from benchmarks.loads import (
    BATCH_OF_50_BYTES,
    GIB,
    LOAD_TIMEOUT_S,
    MILLION,
    Driven,
    drop_topic,
    fresh_topic,
    measured,
)
from benchmarks.processes import cpu_seconds
from odradek.records.batch import MAX_TIMESTAMP_POSITION, write_crc
from odradek.records.record import Record, build_batch
from testkit.peer import BrokerProcess, java_command
from testkit.peer.artifacts import CACHE, ROOT
from testkit.programs import build_go
from testkit.requests import produce
from testkit.topics import create_topic
from testkit.wire import WireClient

PROGRAMS = Path(__file__).parent / "programs"
VALUE_BYTES = 200
PARTITIONS = 12
PRODUCERS = 4
KEYS = 10_000
COMPACTED_SEGMENT_BYTES = 1 << 24
COMMIT_CONNECTIONS = 50
PREFILLED = 1_000_000
PREFILLED_AGE_MS = 24 * 60 * 60 * 1000
"""Age of the first record that lookups request. Topics keep records for a week."""
LOOKUP_RATE, PRODUCE_RATE, LOOKUP_S = 500, 5000, 20.0
PRODUCE_VERSION = 9
_BASE_TIMESTAMP_POSITION = MAX_TIMESTAMP_POSITION - 8
DEADLINE_S = 120.0
_TIMESTAMPS = struct.Struct(">qq")


# --- Kafka's producer ---


def producers(
    broker: Driven,
    topic: str,
    count: int,
    records: int,
    keys: int = 0,
    acknowledged: Sequence[str] = ("acks=1",),
) -> dict[str, float]:
    """`programs/Producers.java` with batches of 50 records: its result and the broker's CPU."""
    command = java_command(
        str(PROGRAMS / "Producers.java"),
        broker.bootstrap,
        topic,
        str(count),
        str(records),
        str(VALUE_BYTES),
        str(keys),
        *acknowledged,
        f"batch.size={BATCH_OF_50_BYTES}",
        "linger.ms=5",
    )
    output, cpu = measured(broker, command)
    return {**json.loads(output), "cpu_s": cpu}


def rate_and_cpu(found: dict[str, float]) -> dict[str, float]:
    """Records a second, and CPU-seconds per million records."""
    records = found["records"]
    return {"rate": records / found["seconds"], "cpu_s": found["cpu_s"] * MILLION / records}


def many_partitions(broker: BrokerProcess, _: str, scale: float) -> dict[str, Any]:
    """Drive 12 partitions with four producers and Kafka's partitioner for records without keys."""
    records = max(int(5 * MILLION * scale), 1000 * PRODUCERS)
    several = fresh_topic(broker, PARTITIONS)
    found = rate_and_cpu(producers(broker, several, PRODUCERS, records))
    drop_topic(broker, several)
    return found


def compacted_topic(broker: BrokerProcess, topic: str, scale: float) -> dict[str, Any]:
    """Produce records with keys to a topic that is compacted at the same time.

    The measurement ends when all segments but the active one are compacted. Each segment becomes
    dirty once, and its clean records are few, so the work hardly depends on the times of the
    passes.
    """
    records = max(int(2 * MILLION * scale), 200_000)
    compacted = f"{topic}-compacted"
    create_topic(
        broker.bootstrap,
        compacted,
        cleanup_policy="compact",
        segment_bytes=str(COMPACTED_SEGMENT_BYTES),
        file_delete_delay_ms="1000",
    )
    before = cpu_seconds(broker.pid)
    began = time.monotonic()
    found = producers(broker, compacted, 1, records, KEYS)
    await_compacted(broker, compacted)
    found["cpu_s"] = cpu_seconds(broker.pid) - before
    compacted_s = time.monotonic() - began
    drop_topic(broker, compacted)
    return {**rate_and_cpu(found), "compacted_s": compacted_s}


def await_compacted(broker: BrokerProcess, topic: str) -> None:
    """Return when the cleaner's checkpoint has reached the active segment of partition 0."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        names = [path.stem for path in (broker.log_dir / f"{topic}-0").glob("*.log")]
        checkpoint = broker.log_dir / CHECKPOINT
        text = checkpoint.read_text(encoding="ascii") if checkpoint.exists() else ""
        if len(names) > 0 and cleaned_offset(text, topic) >= max(map(int, names)):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} is not compacted: {names}, {text}")
        time.sleep(0.05)


def cleaned_offset(checkpoint: str, topic: str) -> int:
    """Return the offset of partition 0 of `topic` in a `cleaner-offset-checkpoint`, or 0."""
    for line in checkpoint.splitlines()[2:]:
        name, partition, offset = line.split()
        if (name, partition) == (topic, "0"):
            return int(offset)
    return 0


# --- franz-go ---


def franz_go(broker: BrokerProcess, load: str, topic: str, *options: int) -> dict[str, float]:
    """A load of `programs/franz_go`: its result, and the broker's CPU-seconds."""
    command = build_go(PROGRAMS / "franz_go", CACHE / "programs-go" / "benchmarks")
    words = [load, broker.bootstrap, topic, *map(str, options)]
    output, cpu = measured(broker, [*command, *words])
    return {**json.loads(output), "cpu_s": cpu}


def franz_go_produce(broker: BrokerProcess, topic: str, scale: float) -> dict[str, Any]:
    records = int(2 * MILLION * scale)
    return rate_and_cpu(franz_go(broker, "produce", topic, records, VALUE_BYTES, BATCH_OF_50_BYTES))


def franz_go_fetch(broker: BrokerProcess, topic: str, scale: float) -> dict[str, Any]:
    """Measure fetches from the page cache: the topic is filled and read once before."""
    records = int(2 * MILLION * scale)
    franz_go(broker, "produce", topic, records, 1024, 131_072)
    franz_go(broker, "fetch", topic, records)
    found = franz_go(broker, "fetch", topic, records)
    size = found["bytes"]
    return {"rate": size / MILLION / found["seconds"], "cpu_s": found["cpu_s"] * GIB / size}


# --- timestamp lookups ---


def timestamp_lookups(broker: BrokerProcess, topic: str, scale: float) -> dict[str, Any]:
    """Look up timestamps at a steady rate while a producer appends to the same partition.

    Both brokers do the same work, so the CPU counts the producer's requests too.
    """
    records = max(int(PREFILLED * scale), 10_000)
    seconds = max(2.0, LOOKUP_S * scale)
    first_ms = time.time_ns() // 1_000_000 - PREFILLED_AGE_MS
    prefill(broker, topic, records, first_ms)
    options = {"records": records, "first-ms": first_ms, "rate": LOOKUP_RATE, "seconds": seconds}
    command = [sys.executable, "-m", "benchmarks.lookups", broker.bootstrap, topic]
    for key, value in options.items():
        command += [f"--{key}", str(value)]
    with steady_producer(broker, topic, seconds) as producer:
        output, cpu = measured(broker, command)
    taken: list[int] = json.loads(output)["microseconds"]
    sent: list[int] = json.loads(producer[0])["microseconds"]
    return {
        "produce_p99": quantile(counted({LATENCIES: sent})[HISTOGRAM], 0.99),
        "cpu_ms": cpu * 1000 * 1000 / len(taken),
        LATENCIES: taken,
    }


@contextmanager
def steady_producer(broker: BrokerProcess, topic: str, seconds: float) -> Iterator[list[str]]:
    """Run a producer during the context, and make its output available after the context."""
    output: list[str] = []
    command = [sys.executable, "-m", "benchmarks.rdkafka", "latency", broker.bootstrap, topic]
    # The lookups begin later, because their process has to start too.
    options = ["--rate", str(PRODUCE_RATE), "--seconds", str(seconds + 2), "--size", "200"]
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as producer:
        try:
            time.sleep(1.0)
            yield output
            text, _ = producer.communicate(timeout=LOAD_TIMEOUT_S)
        except BaseException:
            producer.kill()
            raise
    if producer.returncode:
        raise RuntimeError(f"the producer ended with {producer.returncode}")
    output.append(text)


def prefill(broker: BrokerProcess, topic: str, records: int, first_ms: int) -> None:
    """Append batches of 50 records whose timestamps count milliseconds from `first_ms`."""
    with WireClient(broker.bootstrap) as client:
        for batch in batches_in_time(records, first_ms):
            found = client.call(produce(topic, bytes(batch)), PRODUCE_VERSION)
            if code := found.responses[0].partition_responses[0].error_code:
                raise RuntimeError(f"the records are refused with error {code}")


def batches_in_time(records: int, first_ms: int, batch_records: int = 50) -> Iterator[bytearray]:
    """Batches of records one millisecond apart; each is valid until the next one.

    The number of records is rounded down to whole batches.
    """
    value = random.Random(1).randbytes(VALUE_BYTES)
    template = build_batch(
        [Record(None, value, first_ms + number) for number in range(batch_records)]
    )
    for first in range(first_ms, first_ms + records - batch_records + 1, batch_records):
        last = first + batch_records - 1
        _TIMESTAMPS.pack_into(template, _BASE_TIMESTAMP_POSITION, first, last)
        write_crc(template)
        yield template


# --- the rows ---

PRODUCE_METRICS = {"rate": "records/s", "cpu_s": "CPU-s per million records"}
COMPACTED_METRICS = {**PRODUCE_METRICS, "compacted_s": "s until all of it is compacted"}
FETCH_METRICS = {"rate": "MB/s", "cpu_s": "CPU-s per GiB"}
LOOKUP_METRICS = {
    "p50": "p50, µs",
    "p99": "p99, µs",
    "produce_p99": "p99 of the producer, µs",
    "cpu_ms": "CPU-ms per 1,000 look-ups, producer included",
}
ROWS = (
    Row("many_partitions", "12 partitions, four producers, 200-byte records, batches of 50, acks=1",
        PRODUCE_METRICS, many_partitions),
    Row("commits_50", "OffsetCommit, 50 connections, one in flight each",
        COMMIT_METRICS, partial(commits, connections=COMMIT_CONNECTIONS, in_flight=1)),
    Row("franz_go_produce", "franz-go: produce, 200-byte records, batches of 50, idempotent",
        PRODUCE_METRICS, franz_go_produce),
    Row("franz_go_fetch", "franz-go: fetch from the beginning, warm",
        FETCH_METRICS, franz_go_fetch),
    Row("timestamp_lookups",
        "500 timestamp look-ups a second beside a producer of 5,000 records a second",
        LOOKUP_METRICS, timestamp_lookups),
)  # fmt: skip
COMPACTED_ROWS = (
    Row("compacted_topic", "produce with keys to a topic that is compacted at the same time",
        COMPACTED_METRICS, compacted_topic),
)  # fmt: skip
