"""Produce and fetch during a compaction: the same load alone and beside a compaction.

One client repeatedly produces a batch of 100 records and fetches it back, as fast as possible. A
phase beside a compaction lasts exactly as long as the compaction of one log. It begins when the
cleaner is running and ends when the log's cleaned offset is on the disk. The phase alone lasts as
long as that phase. The order of the two phases changes from pair to pair. All logs are written and
synced before the first phase, and each pair has its own log. The percentiles of all requests of all
pairs together decide. `make evidence-compaction-beside` runs it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
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

from benchmarks.compaction import VALUE, batches_of_keys
from odradek.environment.clock import SystemClock
from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from testkit.peer.server import STARTERS, BrokerProcess
from testkit.requests import fetch, produce
from testkit.topics import create_topic
from testkit.wire import WireClient

KEYS = 600_000
SEGMENT_BYTES = 1 << 24
LOAD_RECORDS = 100
LOOK_EVERY = 20
RATIO = "min.cleanable.dirty.ratio"
KAFKAS_THREAD = "kafka-log-clean"  # the system keeps 15 characters of it
CHECKPOINT = "cleaner-offset-checkpoint"
# The wait before a phase alone, in which the last compaction's pending writes and removals end.
SETTLE_S = 3.0
DEADLINE_S = 120.0
# A broker of Apache Kafka answers them for a while after the controller created the topic.
NOT_YET_LED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
BEGUN_CPU_S = 0.05  # more than a look that finds nothing
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    # Only records that are on the disk according to a checkpoint are compacted.
    "log.flush.offset.checkpoint.interval.ms": "2000",
}
RECORD_BYTES = 126  # of a record of `benchmarks.compaction` in its log, roughly
PHASES = ("alone", "beside")
REQUESTS = ("produce", "fetch")


@dataclass(slots=True)
class Phase:
    """The times, in seconds, of all requests of one phase."""

    seconds: float = 0.0
    produce: list[float] = field(default_factory=list)
    fetch: list[float] = field(default_factory=list)

    def values(self) -> dict[str, Any]:
        """Return the seconds and the histogram of the requests in microseconds."""
        found: dict[str, Any] = {"seconds": self.seconds}
        for request in REQUESTS:
            counts = Counter(round(taken * 1e6) for taken in getattr(self, request))
            found[f"{request}_us"] = {str(us): counts[us] for us in sorted(counts)}
        return found


class RoundTrips:
    """One client that repeatedly produces a batch, waits, and fetches it back."""

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
                    response = client.call(produce("load", self._batch), 9)
                    offset = response.responses[0].partition_responses[0].base_offset
                    middle = time.perf_counter()
                    client.call(fetch("load", offset), 11)
                    now = time.perf_counter()
                    phase.produce.append(middle - begin)
                    phase.fetch.append(now - middle)
        phase.seconds = now - began
        return phase


class Compactions:
    """Dirty logs, each of which is compacted on request."""

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
                deadline = time.monotonic() + DEADLINE_S
                while (code := _produced(client, topic, bytes(batch))) in NOT_YET_LED:
                    assert time.monotonic() < deadline, (topic, code)
                    time.sleep(0.01)
                assert code == 0, (topic, code)

    def begin(self) -> Callable[[float], bool]:
        """Wait until the cleaner is running. Return a function that reports whether it is done."""
        topic = self._left.pop(0)
        set_topic_config(self._broker.bootstrap, topic, RATIO, "0.01")
        before = cleaners_cpu_s(self._broker.pid)
        deadline = time.monotonic() + DEADLINE_S
        while not has_begun(before, cleaners_cpu_s(self._broker.pid)):
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


def _produced(client: WireClient, topic: str, batch: bytes) -> int:
    """Append a batch to partition 0. Return the error code of the response."""
    response = client.call(produce(topic, batch), 9)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def set_topic_config(address: str, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def cleaners_cpu_s(pid: int) -> dict[int, float]:
    """Return the CPU seconds of each of Odradek's child processes, or of Kafka's thread."""
    broker = psutil.Process(pid)
    found: dict[int, float] = {}
    for child in broker.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found[child.pid] = sum(child.cpu_times()[:2])
    for thread in broker.threads():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name = Path(f"/proc/{pid}/task/{thread.id}/comm").read_text(encoding="utf-8")
            if name.startswith(KAFKAS_THREAD):
                found[thread.id] = thread.user_time + thread.system_time
    return found


def has_begun(before: dict[int, float], now: dict[int, float]) -> bool:
    """Return whether a cleaner has used CPU time. The worker of the last log may have ended."""
    return any(used > before.get(key, 0.0) + BEGUN_CPU_S for key, used in now.items())


class Sessions:
    """One broker at a time, with a dirty log for each remaining pair."""

    def __init__(self, work: Path, keys: int) -> None:
        self._work = work
        self._keys = keys
        self._broker: BrokerProcess | None = None
        self._name = ""
        self._seconds = 0.0

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        if self._broker:
            self._broker.stop()
            self._broker = None

    def pair(self, name: str, pair: int, pairs: int) -> dict[str, Any]:
        """Run both phases of a pair. A newly started broker runs a warm-up pair first."""
        if name != self._name or self._broker is None:
            self.__exit__()
            self._broker = STARTERS[name](self._work / name, SETTINGS)
            self._name = name
            create_topic(self._broker.bootstrap, "load")
            self._compactions = Compactions(self._broker, pairs - pair + 2, self._keys)
            self._load = RoundTrips(self._broker.bootstrap)
            self._both(0)
        return self._both(pair)

    def _both(self, pair: int) -> dict[str, Any]:
        found = {}
        for phase in order(pair):
            took = _run(phase, self._load, self._compactions, self._seconds)
            if phase == "beside":
                self._seconds = took.seconds
            found[phase] = took.values()
        return found


def order(pair: int) -> tuple[str, ...]:
    """Return the order of the phases, which alternates. The warm-up pair measures their length."""
    return PHASES[::-1] if pair % 2 == 0 else PHASES


def _run(phase: str, load: RoundTrips, compactions: Compactions, seconds: float) -> Phase:
    if phase == "beside":
        return load.run(compactions.begin())
    time.sleep(SETTLE_S)
    return load.run(lambda elapsed: elapsed >= seconds)
