"""Batches and logs for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.files import Files
from odradek.ids import TopicPartition, Uuid
from odradek.log import timestamps
from odradek.log.directories.log_manager import LogManager
from odradek.log.log_append_info import LogAppendInfo
from odradek.log.state.verification import NO_GUARD, Origin
from odradek.log.timestamps import TimestampOffset
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import Compression, parse_header
from odradek.records.control import EndTransactionMarker, build_marker, read_marker
from odradek.records.record import Record, build_batch, iter_batches, iter_records
from odradek.slicing import run_to_completion
from tests.helpers.work import run_here

TP = TopicPartition("topic", 0)
TOPIC_ID = Uuid(bytes(range(16)))
NOW_MS = 1_700_000_000_000


def batch_of(
    values: list[bytes],
    *,
    timestamp_ms: int = NOW_MS,
    timestamps: list[int] | None = None,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    stamps = timestamps or [timestamp_ms] * len(values)
    return build_batch(
        [Record(None, value, stamp) for value, stamp in zip(values, stamps, strict=True)],
        timestamp_ms=timestamp_ms,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def open_manager(
    root: Path,
    config: LogConfig,
    files: Files | None = None,
    clock: ManualClock | None = None,
    open_files_max: int | None = None,
    boot_id: str | None = None,
) -> LogManager:
    manager = LogManager(
        [str(root)],
        config,
        clock or ManualClock(NOW_MS),
        files=files,
        open_files_max=open_files_max,
        boot_id=boot_id,
    )
    manager.load("cluster", 1)
    return manager


def open_log(manager: LogManager) -> UnifiedLog:
    return manager.create(TP, TOPIC_ID)


def append(log: UnifiedLog, values: list[bytes], epoch: int = 0, **options: int) -> LogAppendInfo:
    """Append one batch of these values, and commit it."""
    now_ms = options.pop("now_ms", NOW_MS)
    batch = memoryview(batch_of(values, **options))  # type: ignore[arg-type]
    info = log.append_as_leader(batch, epoch, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)
    return info


def append_transactional(
    log: UnifiedLog, values: list[bytes], producer_id: int, base_sequence: int, **options: int
) -> LogAppendInfo:
    """Append a batch of a transaction that the coordinator has confirmed."""
    epoch, leader_epoch = options.pop("epoch", 0), options.pop("leader_epoch", 0)
    guard = options.pop("guard", None)
    if guard is None:
        guard = log.producers.verifications.start(producer_id, epoch, base_sequence, NOW_MS)
    batch = batch_of(
        values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        transactional=True,
    )
    info = log.append_as_leader(
        memoryview(batch), leader_epoch, now_ms=NOW_MS, origin=Origin(guard)
    )
    log.advance_high_watermark(log.log_end_offset)
    return info


def append_marker(
    log: UnifiedLog, producer_id: int, *, committed: bool, epoch: int = 0, **options: int
) -> LogAppendInfo:
    """End the transaction of a producer, as the coordinator of `coordinator_epoch` 0 does."""
    marker = EndTransactionMarker(committed, options.pop("coordinator_epoch", 0))
    origin = Origin(NO_GUARD, True, marker, options.pop("transaction_version", 1))
    leader_epoch, now_ms = options.pop("leader_epoch", 0), options.pop("now_ms", NOW_MS)
    batch = build_marker(producer_id, epoch, marker, now_ms)
    info = log.append_as_leader(memoryview(batch), leader_epoch, now_ms=now_ms, origin=origin)
    log.advance_high_watermark(log.log_end_offset)
    return info


def retain(manager: LogManager, now_ms: int) -> int:
    """Apply retention to all logs. Return the number of deleted segments."""
    return run_to_completion(manager.retain(now_ms))


def offset_for_timestamp(log: UnifiedLog, timestamp: int) -> TimestampOffset | None:
    """Run the search of `timestamps.offset_for_timestamp` in this thread."""
    return run_here(timestamps.offset_for_timestamp(log, timestamp))


def offset_of_max_timestamp(log: UnifiedLog) -> TimestampOffset | None:
    """Run the search of `timestamps.offset_of_max_timestamp` in this thread."""
    return run_here(timestamps.offset_of_max_timestamp(log))


def read_all(log: UnifiedLog, offset: int | None = None, max_bytes: int = 10**6) -> list[Record]:
    """Return all records from `offset`, read with one fetch after the other."""
    position = log.log_start_offset if offset is None else offset
    records: list[Record] = []
    while True:
        info = log.read(position, max_bytes, log.log_end_offset, min_one_message=True)
        if info.region is None:
            return records
        data = info.region.read()
        info.region.close()
        whole = [record for batch in iter_batches(data) for record in iter_records(batch)]
        assert whole, "a read with min_one_message has a whole batch"
        records += [record for record in whole if record.offset >= position]
        position = whole[-1].offset + 1


def read_committed(
    log: UnifiedLog, offset: int, max_bytes: int = 10**6
) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of the records that a read_committed consumer reads from `offset`.

    The consumer skips the aborted transactions of the response
    (``CompletedFetch.nextFetchedRecord``): the batches of a producer from the transaction's first
    offset to the abort marker.
    """
    position, found = offset, []
    while True:
        info = log.read(position, max_bytes, log.last_stable_offset, min_one_message=True)
        if info.region is None:
            return found
        aborted = sorted(log.aborted_in(position, info), key=lambda each: each[1])
        data = info.region.read()
        info.region.close()
        left_out: set[int] = set()
        whole = list(iter_batches(data))
        assert whole, "a read with min_one_message has a whole batch"
        for batch in whole:
            header = parse_header(batch)
            while aborted and aborted[0][1] <= header.last_offset:
                left_out.add(aborted.pop(0)[0])
            marker = read_marker(batch) if header.is_control else None
            if marker is not None and not marker.committed:
                left_out.discard(header.producer_id)
            if not header.is_control and header.producer_id not in left_out:
                records = [each for each in iter_records(batch) if each.offset >= position]
                found += [(each.offset, each.value) for each in records]
            position = header.last_offset + 1


def values_of(log: UnifiedLog, offset: int | None = None) -> list[bytes | None]:
    return [record.value for record in read_all(log, offset)]
