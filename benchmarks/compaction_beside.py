"""What produce and fetch feel of a compaction: the same load alone and beside one, in turns.

``python -m benchmarks.compaction_beside [--pairs 5] [--scale 1.0] [--brokers odradek,kafka]``

One client produces a batch of 100 records and fetches it back, over and over, as fast as it goes.
A phase beside a compaction lasts exactly as long as the compaction of one log does: it begins when
the cleaner is at work and ends when the log's cleaned offset is on the disk. The phase alone lasts
as long as that one did; which of the two comes first changes from pair to pair. All logs are
written, and synced, before the first phase; each pair has its own. What decides are the percentiles
of all requests of all pairs together.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.compaction import BATCH_RECORDS, VALUE, batches_of_keys
from benchmarks.machine import description
from odradek.environment.clock import SystemClock
from odradek.records.record import Record, build_batch
from testkit.peer.server import STARTERS, BrokerProcess
from testkit.requests import fetch, produce
from testkit.topics import create_topic
from testkit.wire import WireClient

KEYS = 600_000
SEGMENT_BYTES = 1 << 24
PAIRS = 5
LOAD_RECORDS = 100
LOOK_EVERY = 20
RATIO = "min.cleanable.dirty.ratio"
KAFKAS_THREAD = "kafka-log-clean"  # the system keeps 15 characters of it
CHECKPOINT = "cleaner-offset-checkpoint"
# Before a phase alone: what the last compaction left to be written and removed is gone by then.
SETTLE_S = 3.0
DEADLINE_S = 120.0
BEGUN_CPU_S = 0.05  # more than a look that finds nothing
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    # Only what a checkpoint says is on the disk is compacted.
    "log.flush.offset.checkpoint.interval.ms": "2000",
}
SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
PHASES = ("alone", "beside")
REQUESTS = ("produce", "fetch")


@dataclass(slots=True)
class Phase:
    """The times, in seconds, of all requests of one phase."""

    seconds: float = 0.0
    produce: list[float] = field(default_factory=list)
    fetch: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Round trips a second, and percentiles in microseconds."""
        found = {"seconds": self.seconds, "rate": len(self.produce) / self.seconds}
        for request in REQUESTS:
            times = sorted(getattr(self, request))
            for name, share in SHARES.items():
                found[f"{request}.{name}"] = 1e6 * percentile(times, share)
            found[f"{request}.max"] = 1e6 * times[-1]
        return found

    def add(self, other: Phase) -> None:
        self.seconds += other.seconds
        self.produce += other.produce
        self.fetch += other.fetch


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def ratios(pooled: dict[str, dict[str, float]]) -> dict[str, float]:
    """Beside to alone."""
    return {key: pooled["beside"][key] / pooled["alone"][key] for key in pooled["alone"]}


class RoundTrips:
    """One client that produces a batch, waits, and fetches it back, over and over."""

    def __init__(self, address: str) -> None:
        self._address = address
        now_ms = SystemClock().time_ms()
        records = [Record(None, VALUE, now_ms)] * LOAD_RECORDS
        self._batch = bytes(build_batch(records, timestamp_ms=now_ms))

    def run(self, is_over: Callable[[float], bool]) -> Phase:
        phase = Phase()
        began = now = time.perf_counter()
        with WireClient(self._address) as client:
            while not is_over(now - began):
                for _ in range(LOOK_EVERY):
                    begin = time.perf_counter()
                    answer = client.call(produce("load", self._batch), 9)
                    offset = answer.responses[0].partition_responses[0].base_offset
                    middle = time.perf_counter()
                    client.call(fetch("load", offset), 11)
                    now = time.perf_counter()
                    phase.produce.append(middle - begin)
                    phase.fetch.append(now - middle)
        phase.seconds = now - began
        return phase


class Compactions:
    """Logs that are filthy, each compacted when it is asked for."""

    def __init__(self, broker: BrokerProcess, count: int, keys: int) -> None:
        self._broker = broker
        self._keys = keys
        self._left = [f"compacted-{number}" for number in range(count)]
        for topic in self._left:
            create_topic(
                broker.bootstrap,
                topic,
                cleanup_policy="compact",
                min_cleanable_dirty_ratio="1",
                segment_bytes=str(SEGMENT_BYTES),
                file_delete_delay_ms="1000",
            )
            self._fill(topic)
        os.sync()
        time.sleep(SETTLE_S)

    def _fill(self, topic: str) -> None:
        with WireClient(self._broker.bootstrap) as client:
            for batch in batches_of_keys(self._keys):
                answer = client.call(produce(topic, bytes(batch)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def begin(self) -> Callable[[float], bool]:
        """Returns when the cleaner is at work; the answer tells whether it is through."""
        topic = self._left.pop(0)
        set_topic_config(self._broker.bootstrap, topic, RATIO, "0.01")
        before = cleaners_cpu_s(self._broker.pid)
        deadline = time.monotonic() + DEADLINE_S
        while cleaners_cpu_s(self._broker.pid) <= before + BEGUN_CPU_S:
            assert time.monotonic() < deadline, self._broker.log_text()[-2000:]
            time.sleep(0.002)
        checkpoint = self._broker.log_dir / CHECKPOINT
        beginning = f"{topic} 0 "

        def is_over(elapsed: float) -> bool:
            assert elapsed < DEADLINE_S, self._broker.log_text()[-2000:]
            with contextlib.suppress(FileNotFoundError):
                return beginning in checkpoint.read_text(encoding="utf-8")
            return False

        return is_over


def set_topic_config(address: str, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def cleaners_cpu_s(pid: int) -> float:
    """The processor time of the cleaner: of the children of Odradek, of a thread of Kafka."""
    broker = psutil.Process(pid)
    total = 0.0
    for child in broker.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:2])
    for thread in broker.threads():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name = Path(f"/proc/{pid}/task/{thread.id}/comm").read_text(encoding="utf-8")
            if name.startswith(KAFKAS_THREAD):
                total += thread.user_time + thread.system_time
    return total


def measure(name: str, directory: Path, pairs: int, keys: int) -> dict[str, Any]:
    """All pairs of one broker, after a pair that does not count."""
    values: dict[str, list[dict[str, float]]] = {phase: [] for phase in PHASES}
    pooled = {phase: Phase() for phase in PHASES}
    with STARTERS[name](directory, SETTINGS) as broker:
        create_topic(broker.bootstrap, "load")
        compactions = Compactions(broker, pairs + 1, keys)
        load = RoundTrips(broker.bootstrap)
        seconds = 0.0
        for pair in range(pairs + 1):
            for phase in order(pair):
                took = _run(phase, load, compactions, seconds)
                if phase == "beside":
                    seconds = took.seconds
                if pair:
                    values[phase].append(took.figures())
                    pooled[phase].add(took)
                print(name, pair, phase, shown(took.figures()), flush=True)
    found = {phase: pooled[phase].figures() for phase in PHASES}
    return {
        "mb": 2 * keys * 126 / 1e6,
        "values": values,
        "pooled": found,
        "ratios": ratios(found),
    }


def order(pair: int) -> tuple[str, ...]:
    """The one before the other by turns; the pair that does not count says how long they last."""
    return PHASES[::-1] if pair % 2 == 0 else PHASES


def _run(phase: str, load: RoundTrips, compactions: Compactions, seconds: float) -> Phase:
    if phase == "beside":
        return load.run(compactions.begin())
    time.sleep(SETTLE_S)
    return load.run(lambda elapsed: elapsed >= seconds)


def shown(figures: dict[str, float]) -> str:
    return " ".join(f"{key}={value:.0f}" for key, value in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--brokers", default="odradek")
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    keys = max(int(KEYS * arguments.scale), 10 * BATCH_RECORDS)
    brokers: dict[str, Any] = {}
    for name in arguments.brokers.split(","):
        with tempfile.TemporaryDirectory(prefix="compaction-", dir=arguments.dir) as directory:
            brokers[name] = measure(name, Path(directory), arguments.pairs, keys)
        print(name, "ratios", json.dumps(brokers[name]["ratios"], indent=1), flush=True)
    if arguments.out:
        result = {
            "machine": description(),
            "pairs": arguments.pairs,
            "keys": keys,
            "segment_bytes": SEGMENT_BYTES,
            "brokers": brokers,
        }
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
