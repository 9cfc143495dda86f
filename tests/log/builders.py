"""Batches and logs for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

from odradek.clock import ManualClock
from odradek.config.log_config import LogConfig
from odradek.ids import TopicPartition, Uuid
from odradek.log.files import Files
from odradek.log.log import LogAppendInfo, UnifiedLog
from odradek.log.manager import LogManager
from odradek.records.batch import Compression
from odradek.records.record import Record, build_batch, iter_batches, iter_records

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
) -> bytearray:
    stamps = timestamps or [timestamp_ms] * len(values)
    return build_batch(
        [Record(None, value, stamp) for value, stamp in zip(values, stamps, strict=True)],
        timestamp_ms=timestamp_ms,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def open_manager(
    root: Path,
    config: LogConfig,
    files: Files | None = None,
    clock: ManualClock | None = None,
    open_files_max: int | None = None,
) -> LogManager:
    manager = LogManager(
        [str(root)],
        config,
        clock or ManualClock(NOW_MS),
        files=files,
        open_files_max=open_files_max,
    )
    manager.load("cluster", 1)
    return manager


def open_log(manager: LogManager) -> UnifiedLog:
    return manager.create(TP, TOPIC_ID)


def append(log: UnifiedLog, values: list[bytes], epoch: int = 0, **options: int) -> LogAppendInfo:
    """Appends one batch of these values, and makes it visible."""
    now_ms = options.pop("now_ms", NOW_MS)
    batch = memoryview(batch_of(values, **options))  # type: ignore[arg-type]
    info = log.append_as_leader(batch, epoch, now_ms=now_ms)
    log.high_watermark = log.log_end_offset
    return info


def read_all(log: UnifiedLog, offset: int | None = None, max_bytes: int = 10**6) -> list[Record]:
    """All records from `offset` on, read like a consumer: fetch by fetch."""
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


def values_of(log: UnifiedLog, offset: int | None = None) -> list[bytes | None]:
    return [record.value for record in read_all(log, offset)]
