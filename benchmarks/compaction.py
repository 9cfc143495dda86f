"""How fast a log is compacted, and in how much memory.

A worker process compacts a log of `keys` different keys, each written twice (records of 100 bytes
of value in batches of 1,000): MB of log a second, and the largest resident set of the worker. The
dedupe buffer is as large as the keys need, so that one pass is enough. `make evidence-compaction`
runs it. Its effect on produce and fetch: `compaction_beside`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from odradek.config.log_config import LogConfig
from odradek.environment.clock import SystemClock
from odradek.ids import TopicPartition, Uuid
from odradek.log.cleaner import segment_swap as swap
from odradek.log.cleaner.offset_map import SLOT_BYTES
from odradek.log.cleaner.process import CleanerProcess
from odradek.log.cleaner.selection import Budget, examine, job_for
from odradek.log.cleaner.worker_protocol import CleanedGroup, CleaningDone
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import HEADER_BYTES, write_crc
from odradek.records.record import Record, build_batch

BATCH_RECORDS = 1_000
VALUE = b"v" * 100
LOAD_FACTOR = 0.9
SAMPLE_S = 0.05
TP = TopicPartition("compacted", 0)


def fill(log: UnifiedLog, keys: int, *, seed: int = 1) -> None:
    """Every key twice, the second time in random order."""
    now_ms = SystemClock().time_ms()
    for batch in batches_of_keys(keys, seed=seed):
        log.append_as_leader(memoryview(batch), 0, now_ms=now_ms)
        log.advance_high_watermark(log.log_end_offset)
    log.roll(now_ms)


def batches_of_keys(keys: int, *, seed: int = 1) -> Iterator[bytearray]:
    """Every key twice, the second time in random order; a batch is good until the next one."""
    order = random.Random(seed)
    template = _Template(SystemClock().time_ms())
    for round_ in range(2):
        blocks = list(range(0, keys, BATCH_RECORDS))
        if round_:
            order.shuffle(blocks)
        for first in blocks:
            yield template.batch(first)


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
        "log_bytes": size,
        "left_bytes": log.size_bytes,
        "records_read": report.stats["records_read"],
        "records_written": report.stats["records_written"],
        "seconds": elapsed,
        "cpu_s": cpu.user + cpu.system,
        "worker_peak_bytes": peak.stop(),
        "buffer_bytes": buffer_bytes,
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
    """A log, written and compacted."""
    config = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=1 << 28)
    manager = LogManager([str(directory)], config, SystemClock())
    manager.load("cluster", 1)
    try:
        log = manager.create(TP, Uuid(bytes(16)))
        fill(log, keys)
        return compact(manager, log, int(keys / LOAD_FACTOR * 1.01) * SLOT_BYTES + (1 << 20))
    finally:
        manager.close(clean=False)
