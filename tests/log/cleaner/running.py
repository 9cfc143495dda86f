"""Compaction without a process: all steps of the cleaner in sequence, on any `Files`."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.environment.clock import ManualClock
from odradek.log.cleaner import segment_swap as swap
from odradek.log.cleaner.cleaning import Cleaning, Throttle
from odradek.log.cleaner.selection import Budget, LogToClean, examine, job_for
from odradek.log.cleaner.worker_protocol import CleanedGroup, CleaningDone
from odradek.log.directories.log_manager import LogManager
from odradek.log.state.verification import NOT_VERIFIED, Origin
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import Compression
from odradek.records.record import Record, build_batch, iter_batches, iter_records
from tests.log.builders import NOW_MS

KeyValue = tuple[bytes | None, bytes | None]


def append_pairs(
    log: UnifiedLog,
    pairs: Iterable[KeyValue],
    *,
    timestamp_ms: int = NOW_MS,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    base_sequence: int = -1,
    producer_epoch: int = 0,
    transactional: bool = False,
) -> int:
    """Append these keys and values as one batch. Return its first offset."""
    batch = build_batch(
        [Record(key, value, timestamp_ms) for key, value in pairs],
        timestamp_ms=timestamp_ms,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    origin = Origin(NOT_VERIFIED) if transactional else None
    now_ms = max(NOW_MS, timestamp_ms)
    info = log.append_as_leader(memoryview(batch), 0, now_ms=now_ms, origin=origin)
    log.advance_high_watermark(log.log_end_offset)
    return info.first_offset


def to_clean(manager: LogManager, log: UnifiedLog, now_ms: int = NOW_MS) -> LogToClean | None:
    """Return the cleanable part, after all records were flushed and the checkpoint was written."""
    log.flush()
    manager.checkpoint()
    return examine(log, manager.cleaned_offset(log), manager.flushed_offset(log), now_ms)


def cleaning_of(chosen: LogToClean, now_ms: int = NOW_MS, budget: Budget | None = None) -> Cleaning:
    job = job_for(chosen, budget or Budget(1 << 16), now_ms)
    throttle = Throttle(None, ManualClock(), lambda _: None)
    return Cleaning(job, chosen.log.log_dir.files, chosen.log.directory, throttle)


def swap_in(log: UnifiedLog, group: CleanedGroup, now_ms: int = NOW_MS) -> None:
    old = [segment for segment in log.segments if segment.base_offset in group.bases]
    assert swap.begin_swap(log, old)
    swap.prepare_swap(log, old)
    assert swap.finish_swap(log, old, group.size, now_ms, has_aborted=group.has_aborted)
    log.log_dir.files.fsync_dir(log.directory)


def compact(
    manager: LogManager,
    log: UnifiedLog,
    *,
    now_ms: int = NOW_MS,
    budget: Budget | None = None,
    roll: bool = True,
) -> CleaningDone | None:
    """Clean the log up to its active segment, as far as one pass reaches."""
    if roll:
        log.roll(now_ms)
    chosen = to_clean(manager, log, now_ms)
    if chosen is None or not chosen.upper_bound:
        return None
    cleaning = cleaning_of(chosen, now_ms, budget)
    for group in cleaning.groups():
        swap_in(log, group, now_ms)
    done = cleaning.done(0)
    manager.write_cleaned_offset(log, done.end_offset, chosen.truncations)
    return done


def stored(log: UnifiedLog) -> list[Record]:
    """Return every record of the log, read as a consumer reads, across gaps and emptied batches."""
    position, records = log.log_start_offset, []
    while True:
        info = log.read(position, 1 << 20, log.log_end_offset, min_one_message=True)
        if info.region is None:
            return records
        data = info.region.read()
        info.region.close()
        for batch in iter_batches(data):
            records += [r for r in iter_records(batch) if r.offset >= position]
            last_offset = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big")
        position = last_offset + 1


def pairs_of(log: UnifiedLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in stored(log)]
