"""The loads of the first table. Each load drives one broker once and returns the cost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.processes import cpu_seconds
from testkit.peer import BrokerProcess, java_command
from testkit.peer.artifacts import ROOT

MILLION = 1_000_000
GIB = 1 << 30
LOAD_TIMEOUT_S = 900.0
# Producer properties for ProducerPerformance, whose default is acks=1. A repeated name overrides.
IDEMPOTENT = ("enable.idempotence=true", "acks=all")
# 61 bytes of batch header and 50 records of 200 bytes with 9 or 10 bytes around them.
BATCH_OF_50_BYTES = 10_600


@dataclass(slots=True)
class Measure:
    """One load on one broker. Units are in the names; `latencies_us` only for the latency load."""

    throughput_per_s: float = 0.0
    cpu_s: float = 0.0
    cpu_per_unit_s: float = 0.0
    latencies_us: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
    """A row. `run` gets the broker, a fresh topic and the scale (1.0, less with --quick)."""

    key: str
    title: str
    unit: str  # of throughput, a second
    cpu_unit: str
    run: Callable[[BrokerProcess, str, float], Measure]


class Driven(Protocol):
    """A broker or a cluster that a load drives."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def pids(self) -> list[int]:
        """The processes whose CPU time counts."""

    @property
    def replication_factor(self) -> int: ...


class Running(Driven, Protocol):
    """A broker or a cluster that its owner can stop."""

    def stop(self) -> object: ...


def fresh_topic(broker: Driven, partitions: int = 1) -> str:
    """A topic whose files go soon after its deletion."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    config = {"file.delete.delay.ms": "1000"}
    new = NewTopic(name, partitions, broker.replication_factor, config=config)
    admin.create_topics([new])[name].result(30)
    return name


def drop_topic(broker: Driven, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    admin.delete_topics([name])[name].result(60)


def used_cpu_s(broker: Driven) -> float:
    """User and system time of the processes so far."""
    return sum(map(cpu_seconds, broker.pids))


def measured(broker: Driven, command: list[str]) -> tuple[str, float]:
    """Run a client to its end. Return its output and the broker's CPU seconds during the run."""
    before = used_cpu_s(broker)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False, cwd=ROOT
    )
    # The broker's remaining work for this load (a flush of a queue, a close) is included.
    time.sleep(0.2)
    used = used_cpu_s(broker) - before
    if done.returncode != 0:
        raise RuntimeError(f"{command[-12:]} failed: {done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout, used


def producer_performance(
    broker: BrokerProcess, topic: str, records: int, size: int, *properties: str
) -> tuple[float, float]:
    """Kafka's ProducerPerformance: records a second, and the broker's CPU-seconds."""
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(size),
        "--throughput",
        "-1",
        "--bootstrap-server",
        broker.bootstrap,
        "--command-property",
        "acks=1",
        *properties,
    )
    output, cpu = measured(broker, command)
    totals = re.findall(rf"^{records} records sent, ([\d.]+) records/sec", output, re.M)
    if len(totals) != 1:
        raise RuntimeError(f"no summary of ProducerPerformance: {output[-800:]}")
    return float(totals[0]), cpu


def rdkafka(
    broker: Driven, load: str, topic: str, **options: float
) -> tuple[dict[str, object], float]:
    """A load of `benchmarks.rdkafka`: its result, and the broker's CPU-seconds."""
    command = [sys.executable, "-m", "benchmarks.rdkafka", load, broker.bootstrap, topic]
    for key, value in options.items():
        command += [f"--{key}", str(value)]
    output, cpu = measured(broker, command)
    result = json.loads(output)
    assert isinstance(result, dict)
    return result, cpu


def _number(result: dict[str, object], key: str) -> float:
    return float(str(result[key]))


def _per_million(rate: float, cpu: float, records: int) -> Measure:
    return Measure(rate, cpu, cpu * MILLION / records)


def batches_of_50(broker: BrokerProcess, topic: str, scale: float, *properties: str) -> Measure:
    records = int(5 * MILLION * scale)
    rate, cpu = producer_performance(
        broker, topic, records, 200, f"batch.size={BATCH_OF_50_BYTES}", "linger.ms=5", *properties
    )
    return _per_million(rate, cpu, records)


def one_a_request(broker: BrokerProcess, topic: str, scale: float, *properties: str) -> Measure:
    records = int(300_000 * scale)
    rate, cpu = producer_performance(
        broker, topic, records, 200, "batch.size=0", "linger.ms=0", *properties
    )
    return _per_million(rate, cpu, records)


def large_batches(broker: BrokerProcess, topic: str, scale: float, *properties: str) -> Measure:
    records = int(2 * MILLION * scale)
    rate, cpu = producer_performance(
        broker, topic, records, 1024, "batch.size=131072", "linger.ms=5", *properties
    )
    return Measure(rate * 1024 / MILLION, cpu, cpu * GIB / (records * 1024))


def fetch_all(broker: BrokerProcess, topic: str, scale: float) -> Measure:
    """Measure fetches from the page cache: the topic is filled and read once before."""
    records = int(2 * MILLION * scale)
    producer_performance(broker, topic, records, 1024, "batch.size=131072", "linger.ms=5")
    os.sync()
    consumer_performance(broker, topic, records)
    fetched_s, cpu = consumer_performance(broker, topic, records)
    return Measure(records * 1024 / MILLION / fetched_s, cpu, cpu * GIB / (records * 1024))


def consumer_performance(broker: BrokerProcess, topic: str, records: int) -> tuple[float, float]:
    """Kafka's ConsumerPerformance: the seconds of its fetches, and the broker's CPU-seconds."""
    command = java_command(
        "org.apache.kafka.tools.ConsumerPerformance",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--timeout",
        "60000",
    )
    output, cpu = measured(broker, command)
    row = output.strip().splitlines()[-1].split(", ")
    if int(row[4]) != records:
        raise RuntimeError(f"ConsumerPerformance read {row[4]} of {records} records")
    return float(row[7]) / 1000, cpu


def rdkafka_batches_of_50(
    broker: BrokerProcess, topic: str, scale: float, **options: float
) -> Measure:
    records = int(2 * MILLION * scale)
    result, cpu = rdkafka(broker, "produce", topic, records=records, size=200, batch=50, **options)
    return _per_million(records / _number(result, "seconds"), cpu, records)


def rdkafka_fetch(broker: BrokerProcess, topic: str, scale: float) -> Measure:
    records = int(2 * MILLION * scale)
    rdkafka(broker, "produce", topic, records=records, size=1024, batch=127)
    result, cpu = rdkafka(broker, "fetch", topic, records=records)
    size = _number(result, "bytes")
    return Measure(size / MILLION / _number(result, "seconds"), cpu, cpu * GIB / size)


def latency(
    broker: Driven, topic: str, scale: float, rate: int = 5000, **options: float
) -> Measure:
    seconds = max(2.0, 20 * scale)
    result, cpu = rdkafka(broker, "latency", topic, rate=rate, seconds=seconds, size=200, **options)
    taken = result["microseconds"]
    assert isinstance(taken, list)
    measure = _per_million(_number(result, "rate"), cpu, len(taken))
    measure.latencies_us = taken
    return measure


LOADS = (
    Load(
        "batches_of_50",
        "produce, 200-byte records, batches of 50, acks=1",
        "records",
        "million records",
        batches_of_50,
    ),
    Load(
        "one_a_request",
        "produce, one 200-byte record a request",
        "records",
        "million records",
        one_a_request,
    ),
    Load("large_batches", "produce, 1 KB records, 128 KB batches", "MB", "GiB", large_batches),
    Load("fetch_all", "fetch from the beginning, warm", "MB", "GiB", fetch_all),
    Load(
        "rdkafka_batches_of_50",
        "librdkafka: produce, 200-byte records, batches of 50, acks=1",
        "records",
        "million records",
        rdkafka_batches_of_50,
    ),
    Load("rdkafka_fetch", "librdkafka: fetch from the beginning, warm", "MB", "GiB", rdkafka_fetch),
    Load(
        "latency",
        "librdkafka: produce at 5,000 records/s, acks=1",
        "records",
        "million records",
        latency,
    ),
)
