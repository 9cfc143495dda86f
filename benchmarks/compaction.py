"""How fast a log is compacted, and in how much memory.

A worker process compacts a log of `keys` different keys, each written twice. The records have
values of 100 bytes and are in batches of 1,000. The results are MB of log per second and the
largest resident set of the worker. A dedupe buffer that is too small for the keys needs several
passes. `make evidence-compaction` runs it. `compaction_beside` measures the effect on produce and
fetch.
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
DEFAULT_BUFFER_BYTES = 134_217_728  # log.cleaner.dedupe.buffer.size
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
    """Clean a log with one worker, in as many passes as the dedupe buffer needs, swaps included."""
    log.flush()
    manager.checkpoint()
    now_ms = SystemClock().time_ms()
    size = log.size_bytes
    began = time.monotonic()
    process = CleanerProcess()
    peak = _Peak(process.pid)
    passes, records_read, cleaned = 0, 0.0, None
    while True:
        chosen = examine(log, cleaned, manager.flushed_offset(log), now_ms)
        assert chosen is not None
        if not chosen.cleanable_bytes:
            break
        process.start(job_for(chosen, Budget(buffer_bytes, LOAD_FACTOR), now_ms))
        done = _one_pass(process, log, now_ms)
        passes, cleaned = passes + 1, done.end_offset
        records_read += done.stats["records_read"]
    elapsed = time.monotonic() - began
    cpu = psutil.Process(process.pid).cpu_times()
    process.close()
    return {
        "log_bytes": size,
        "left_bytes": log.size_bytes,
        "passes": passes,
        "records_read": records_read,
        "seconds": elapsed,
        "cpu_s": cpu.user + cpu.system,
        "worker_peak_bytes": peak.stop(),
        "buffer_bytes": buffer_bytes,
    }


def _one_pass(process: CleanerProcess, log: UnifiedLog, now_ms: int) -> CleaningDone:
    while isinstance(report := process.report(), CleanedGroup):
        old = [segment for segment in log.segments if segment.base_offset in report.bases]
        assert swap.begin_swap(log, old)
        swap.prepare_swap(log, old)
        swap.finish_swap(log, old, report.size, now_ms, has_aborted=report.has_aborted)
        process.resume()
    assert isinstance(report, CleaningDone), report
    return report


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


def buffer_for(keys: int) -> int:
    """A dedupe buffer with room for all keys, so that one pass is enough."""
    return int(keys / LOAD_FACTOR * 1.01) * SLOT_BYTES + (1 << 20)


def speed(directory: Path, keys: int, buffer_bytes: int) -> dict[str, float]:
    """Write a log and compact it."""
    config = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=1 << 28)
    manager = LogManager([str(directory)], config, SystemClock())
    manager.load("cluster", 1)
    try:
        log = manager.create(TP, Uuid(bytes(16)))
        fill(log, keys)
        return compact(manager, log, buffer_bytes)
    finally:
        manager.close(clean=False)
