"""How fast a log is compacted, in how much memory, and how long requests take beside it.

``python -m benchmarks.compaction [--keys 10000000] [--scale 1.0] [--out FILE]``

1. A worker process compacts a log of `keys` different keys, each written twice (records of 100
   bytes of value in batches of 1,000): MB of log a second, and the worker's largest resident set.
   The dedupe buffer is as large as the keys need.
2. A broker is produced to and fetched from by one client as fast as it goes, without and with a
   compaction (of a tenth of the keys) beside it: round trips a second, median and 99th percentile
   of a request's time.

`--scale` shrinks both. Everything runs on this machine, on the disk of ``--dir``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from conformance.adapters.base import create_topic
from conformance.peer.server import start_odradek
from tests.helpers.requests import fetch, produce
from tests.helpers.wire import WireClient

from benchmarks.machine import description
from odradek.clock import SystemClock
from odradek.config.log_config import LogConfig
from odradek.ids import TopicPartition, Uuid
from odradek.log.cleaner import swap
from odradek.log.cleaner.choose import Budget, examine, job_for
from odradek.log.cleaner.job import CleanedGroup, CleaningDone
from odradek.log.cleaner.offset_map import SLOT_BYTES
from odradek.log.cleaner.process import CleanerProcess
from odradek.log.log import UnifiedLog
from odradek.log.manager import LogManager
from odradek.records.batch import HEADER_BYTES, write_crc
from odradek.records.record import Record, build_batch

BATCH_RECORDS = 1_000
VALUE = b"v" * 100
LOAD_FACTOR = 0.9
MEGABYTE = 1_000_000
SAMPLE_S = 0.05
LOAD_RECORDS = 100
LOOK_EVERY = 20
TP = TopicPartition("compacted", 0)


def fill(log: UnifiedLog, keys: int, *, seed: int = 1) -> None:
    """Every key twice, the second time in random order."""
    order = random.Random(seed)
    now_ms = SystemClock().time_ms()
    blocks_of = _Template(now_ms)
    for round_ in range(2):
        blocks = list(range(0, keys, BATCH_RECORDS))
        if round_:
            order.shuffle(blocks)
        for first in blocks:
            batch = blocks_of.batch(first)
            log.append_as_leader(memoryview(batch), 0, now_ms=now_ms)
            log.high_watermark = log.log_end_offset
    log.roll(now_ms)


class _Template:
    """Batches that differ in their keys only, made without encoding record by record."""

    def __init__(self, now_ms: int) -> None:
        records = [Record(b"key-%012d" % 0, VALUE, now_ms)] * BATCH_RECORDS
        self._batch = build_batch(records, timestamp_ms=now_ms)
        body = bytes(self._batch[HEADER_BYTES:])
        self._pieces = body.split(b"%012d" % 0)

    def batch(self, first: int) -> bytearray:
        """The keys from number `first` on."""
        out = [self._pieces[0]]
        for at, piece in enumerate(self._pieces[1:], first):
            out += (b"%012d" % at, piece)
        self._batch[HEADER_BYTES:] = b"".join(out)
        write_crc(self._batch)
        self._batch[:8] = bytes(8)  # the log wrote an offset there
        return self._batch


def compact(manager: LogManager, log: UnifiedLog, buffer_bytes: int) -> dict[str, float]:
    """One cleaning by one worker, swaps included."""
    log.flush()
    manager.checkpoint()
    now_ms = SystemClock().time_ms()
    chosen = examine(log, None, manager.flushed_offset(log), now_ms)
    assert chosen is not None
    began = time.monotonic()
    process = CleanerProcess()
    peak = _Peak(process.pid)
    size = log.size_bytes
    process.start(job_for(chosen, Budget(buffer_bytes, LOAD_FACTOR), now_ms))
    while isinstance(report := process.report(), CleanedGroup):
        old = [segment for segment in log.segments if segment.base_offset in report.bases]
        assert swap.begin_swap(log, old)
        swap.prepare_swap(log, old)
        swap.finish_swap(log, old, report.size, now_ms, has_aborted=report.has_aborted)
        process.go_on()
    elapsed = time.monotonic() - began
    assert isinstance(report, CleaningDone), report
    cpu = psutil.Process(process.pid).cpu_times()
    process.close()
    return {
        "log_mb": size / MEGABYTE,
        "left_mb": log.size_bytes / MEGABYTE,
        "keys": report.stats["records_written"],
        "seconds": elapsed,
        "mb_per_s": size / MEGABYTE / elapsed,
        "mb_per_cpu_s": size / MEGABYTE / (cpu.user + cpu.system),
        "records_per_s": report.stats["records_read"] / elapsed,
        "worker_rss_mb": peak.stop() / MEGABYTE,
        "buffer_mb": buffer_bytes / MEGABYTE,
    }


class _Peak:
    """The largest resident set of a process, sampled."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._largest = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            try:
                self._largest = max(self._largest, self._process.memory_info().rss)
            except psutil.NoSuchProcess:
                return

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        return self._largest


def speed(directory: Path, keys: int) -> dict[str, float]:
    """Part 1."""
    config = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=1 << 28)
    manager = LogManager([str(directory)], config, SystemClock())
    manager.load("cluster", 1)
    try:
        log = manager.create(TP, Uuid(bytes(16)))
        fill(log, keys)
        return compact(manager, log, int(keys / LOAD_FACTOR * 1.01) * SLOT_BYTES + (1 << 20))
    finally:
        manager.close(clean=False)


# -- beside produce and fetch ----------------------------------------------------------------------


def beside(directory: Path, keys: int, seconds: float) -> dict[str, dict[str, float]]:
    """Part 2: the same load on a broker without and with a compaction."""
    settings = {"log.cleaner.backoff.ms": "200"}
    with start_odradek(directory, settings) as broker:
        create_topic(broker.bootstrap, "load")
        create_topic(
            broker.bootstrap,
            TP.topic,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="1",
            segment_bytes=str(1 << 20),
        )
        write_keys(broker.bootstrap, keys)
        RoundTrips(broker.bootstrap).run(lambda elapsed: elapsed > seconds / 4)
        alone = RoundTrips(broker.bootstrap).run(lambda elapsed: elapsed > seconds)
        set_topic_config(broker.bootstrap, TP.topic, "min.cleanable.dirty.ratio", "0.01")
        children = psutil.Process(broker.pid).children
        deadline = time.monotonic() + 60
        while not children():
            assert time.monotonic() < deadline, broker.log_text()[-2000:]
            time.sleep(0.005)
        during = RoundTrips(broker.bootstrap).run(lambda _: not children())
        assert f"compacted {TP} up to" in broker.log_text(), broker.log_text()[-2000:]
    return {"alone": alone, "beside a compaction": during}


def write_keys(address: str, keys: int) -> None:
    """Every key twice, by a client."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 20})
    for _ in range(2):
        for number in range(keys):
            while True:
                try:
                    producer.produce(TP.topic, VALUE, b"key-%012d" % number, 0)
                    break
                except BufferError:
                    producer.poll(0.05)
    assert producer.flush(300) == 0


def set_topic_config(address: str, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


class RoundTrips:
    """One client that produces a batch, waits, and fetches it back, over and over."""

    def __init__(self, address: str) -> None:
        self._address = address
        now_ms = SystemClock().time_ms()
        records = [Record(None, VALUE, now_ms)] * LOAD_RECORDS
        self._batch = bytes(build_batch(records, timestamp_ms=now_ms))

    def run(self, is_over: Callable[[float], bool]) -> dict[str, float]:
        produced: list[float] = []
        fetched: list[float] = []
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
                    produced.append(middle - begin)
                    fetched.append(now - middle)
        elapsed = now - began
        return {
            "seconds": elapsed,
            "round_trips_per_s": len(produced) / elapsed,
            "produce_p50_us": 1e6 * statistics.median(produced),
            "produce_p99_us": 1e6 * percentile(produced, 0.99),
            "fetch_p50_us": 1e6 * statistics.median(fetched),
            "fetch_p99_us": 1e6 * percentile(fetched, 0.99),
        }


def percentile(times: list[float], share: float) -> float:
    return statistics.quantiles(times, n=1000)[int(share * 1000) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=("speed", "beside"))
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    keys = max(int(arguments.keys * arguments.scale), BATCH_RECORDS)
    result: dict[str, Any] = {"machine": description()}
    for name, work in _parts(keys, arguments.seconds * arguments.scale):
        if arguments.only and not name.startswith(arguments.only):
            continue
        with tempfile.TemporaryDirectory(prefix="compaction-", dir=arguments.dir) as directory:
            result[name] = work(Path(directory))
            print(name, json.dumps(result[name], indent=1), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _parts(keys: int, seconds: float) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    yield f"speed, {keys} keys", lambda directory: speed(directory, keys)
    yield "beside produce and fetch", lambda directory: beside(directory, keys // 10, seconds)


if __name__ == "__main__":
    main()
