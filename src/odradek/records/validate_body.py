"""Validate the records of a client's batch one by one, and recompress them if required.

Kafka reads the records of every batch. Here only two kinds of topics need it. Clients may write to
internal topics, and a coordinator cannot load a damaged record. Compacted topics cannot keep
records without a key.
"""

from __future__ import annotations

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError, RecordsRefused
from odradek.offloading import Work
from odradek.records.batch import HEADER_BYTES, BatchHeader, Compression
from odradek.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    Body,
    CorruptCompression,
    released_after,
    unpack_in_thread,
)
from odradek.records.recompress import recompressed, target_compression
from odradek.records.record import CorruptRecord
from odradek.records.scan import bytes_left_over, check_offset_deltas, check_records
from odradek.records.validate import BatchRules, Writable, validate_batch

UNPACKED_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size in bytes to which a batch is unpacked for the validation of its records."""
RECORDS_MAX = 100_000
"""Maximum number of validated records in a batch."""


def open_batch(
    batch: Writable, config: LogConfig, now_ms: int, *, checked: bool, where: str = ""
) -> Work[Writable]:
    """Validate the records of a batch, and return it in the topic's compression.

    Small uncompressed batches take only the first slice. Nothing is unpacked before the header and
    the CRC were validated as for an append.

    Args:
        batch: The records of one partition in a produce request.
        config: The configs of the topic.
        now_ms: The time of the request.
        checked: Whether each record must decode, have the next offset, and have a key if the topic
            is compacted. Otherwise only the offsets are checked, and only to recompress.
        where: The partition, for error messages.

    Raises:
        KafkaError: The error of `validate_batch`. MESSAGE_TOO_LARGE for more than RECORDS_MAX
            records. INVALID_RECORD for damaged records. CORRUPT_MESSAGE if a batch that is only
            recompressed cannot be unpacked.
        RecordsRefused: INVALID_RECORD for records without a key in a compacted topic.
    """
    batch, fields = validate_batch(batch, BatchRules(config, transactional=True), now_ms)
    header = BatchHeader._make(fields)
    if checked and header.record_count > RECORDS_MAX:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"more than {RECORDS_MAX} records")
    target = target_compression(config)
    if target == header.compression:
        target = None
    if not checked and target is None:
        return batch
    packed = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    bytes_max = UNPACKED_BYTES_MAX if checked else DECOMPRESSED_BYTES_MAX
    try:
        body = yield from unpack_in_thread(Compression(header.compression), packed, bytes_max)
    except CorruptCompression as error:
        if checked:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"cannot unpack: {error}") from error
    work = _opened(batch, header, body, target, config, where if checked else None)
    return (yield from released_after(body, work))


def _opened(
    batch: Writable,
    header: BatchHeader,
    body: Body,
    target: Compression | None,
    config: LogConfig,
    where: str | None,
) -> Work[Writable]:
    try:
        if where is not None:
            keyless, end = yield from check_records(body, header.record_count)
            if keyless and config.cleanup_compact:
                raise _without_keys(keyless, where)
            if target is not None and end != body.size:
                raise bytes_left_over(body.size - end, header.record_count)
        elif target is not None:
            yield from check_offset_deltas(body, header.record_count)
        if target is None:
            return batch
    except CorruptRecord as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    return memoryview((yield from recompressed(batch, header, body, target, config)))


def _without_keys(indexes: list[int], where: str) -> RecordsRefused:
    what = f"Compacted topic cannot accept message without key in topic partition {where}"
    return RecordsRefused(dict.fromkeys(indexes, what))
