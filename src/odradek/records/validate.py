"""Validate a client's record batch before the leader appends it.

Only the header is read, and the CRC is computed over the body: there is no work per record. The
order of the checks is Kafka's (``ProduceRequest.validateRecords``,
``UnifiedLog.analyzeAndValidateRecords``, ``LogValidator.validateBatch``). A batch with two faults
therefore gets the same error as in Kafka. Wrong content in a body with a correct checksum is stored
unchanged (see docs/deviations.md).
"""

from __future__ import annotations

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    Compression,
)
from odradek.records.checksum import crc32c
from odradek.records.compression import DECOMPRESSED_BYTES_MAX

UNUSUAL_ATTRIBUTES_MASK = CONTROL_MASK | TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK
RECORD_BYTES_MIN = 7
"""An empty record: length, attributes, two deltas, key and value length, number of headers."""
PACKED_RECORDS_MAX = DECOMPRESSED_BYTES_MAX // RECORD_BYTES_MIN
"""Maximum record count in the header of a packed batch. No reader would unpack more records."""
LENGTH_MIN_V0 = 14
"""Kafka's smallest record of any format. A shorter length is CORRUPT_MESSAGE."""

_unpack_header = HEADER.unpack_from
# As a number: in Python 3.11 the lookup of a member in its enumeration is a call.
_ZSTD = int(Compression.ZSTD)
MAGIC_POSITION = 16

Writable = memoryview | bytearray
HeaderTuple = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


class BatchRules:
    """The limits of one topic, read from its `LogConfig` once instead of at each batch.

    Args:
        transactional: The rules are for batches of a request that names a transactional id.
        trusted: The rules are for batches of the broker, which may be markers or have no sequence.
    """

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "log_append_time",
        "message_bytes_max",
        "transactional",
        "trusted",
        "unusual_attributes",
    )

    def __init__(
        self, config: LogConfig, *, transactional: bool = False, trusted: bool = False
    ) -> None:
        self.transactional = transactional
        self.trusted = trusted
        self.unusual_attributes = UNUSUAL_ATTRIBUTES_MASK
        if transactional:
            self.unusual_attributes &= ~TRANSACTIONAL_MASK
        self.message_bytes_max = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"


def validate_batch(batch: Writable, rules: BatchRules, now_ms: int) -> tuple[Writable, HeaderTuple]:
    """Return the batch and the 13 fields of its header.

    A valid batch is exactly one whole v2 batch. An incomplete batch after it is cut off, as in
    Kafka, so the returned batch may be shorter.

    Raises:
        KafkaError: Kafka's error code for an invalid batch.
    """
    size = len(batch)
    if size < HEADER_BYTES:
        batch = one_batch(batch)
    header: HeaderTuple = _unpack_header(batch)
    base_offset, length, _, magic, crc, attributes, last_delta, base_ts, max_ts, pid, _, seq, n = (
        header
    )
    if (
        length != size - LOG_OVERHEAD
        or magic != MAGIC_V2
        or base_offset
        or size > rules.message_bytes_max
        or crc32c(batch[21:]) != crc
        or last_delta != n - 1
        or n <= 0
        or attributes & rules.unusual_attributes
        or attributes & COMPRESSION_MASK > _ZSTD
        or (pid >= 0 and seq < 0)
        or (
            n * RECORD_BYTES_MIN > size - HEADER_BYTES
            and (n > PACKED_RECORDS_MAX or not attributes & COMPRESSION_MASK)
        )
        or max_ts > now_ms + rules.after_max_ms
        or base_ts < now_ms - rules.before_max_ms
    ):
        batch = one_batch(batch)
        _examine(batch, BatchHeader._make(header), rules, now_ms)
    return batch, header


def one_batch(batch: Writable) -> Writable:
    """Return the only batch (magic 2) in these bytes, without an incomplete one after it.

    Raises:
        KafkaError: There is no whole batch, more than one, or one of another magic.
    """
    size = _whole_batch_size(batch)
    if size is None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "there must be at least one record batch per partition"
        )
    if batch[MAGIC_POSITION] != MAGIC_V2:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "only record batches with magic version 2 are allowed"
        )
    if _whole_batch_size(batch[size:]) is not None:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "there must be exactly one record batch per partition"
        )
    if size < HEADER_BYTES:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch is corrupt (the size {size} is smaller than {HEADER_BYTES})",
        )
    return batch[:size]


def _whole_batch_size(data: Buffer) -> int | None:
    """Return the size of the first batch, or None if it is incomplete.

    Follows ``ByteBufferLogInputStream``.
    """
    if len(data) < LOG_OVERHEAD:
        return None
    length = int.from_bytes(data[8:12], "big", signed=True)
    if length < LENGTH_MIN_V0:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({LENGTH_MIN_V0})",
        )
    if len(data) <= MAGIC_POSITION:
        return None
    if data[MAGIC_POSITION] > MAGIC_V2:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {data[MAGIC_POSITION]}"
        )
    return length + LOG_OVERHEAD if length + LOG_OVERHEAD <= len(data) else None


def _examine(batch: Buffer, header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
    """Repeat the checks of an unusual batch one by one. Raise KafkaError for the first failure."""
    if header.is_transactional and not rules.transactional:
        # ``KafkaApis.handleProduceRequest``: a request without a transactional id cannot use it.
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"The base offset of the record batch should be 0, but it is {header.base_offset}",
        )
    # A transaction must end in its partitions even if their limit was lowered in the meantime.
    is_marker = rules.trusted and header.is_control
    if len(batch) > rules.message_bytes_max and not is_marker:
        raise too_large(len(batch), rules.message_bytes_max)
    if crc32c(batch[21:]) != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (stored crc = {header.crc})"
        )
    if header.compression > Compression.ZSTD:
        # Kafka responds UNKNOWN_SERVER_ERROR here. Old clients retry after that error.
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Unknown compression type id: {header.compression}",
        )
    _check_counts(header)
    _check_flags(header, rules)
    if not rules.log_append_time:
        _check_timestamp(header.base_timestamp, rules, now_ms)
        _check_timestamp(header.max_timestamp, rules, now_ms)


def too_large(size_bytes: int, bytes_max: int) -> KafkaError:
    """Return the error for a batch above ``max.message.bytes``."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size is {size_bytes} bytes which exceeds the maximum configured "
        f"value of {bytes_max}",
    )


def _check_counts(header: BatchHeader) -> None:
    if header.last_offset_delta < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Batch has an invalid offset range: [0, {header.last_offset_delta}]",
        )
    if header.record_count <= 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid reported count for record batch: {header.record_count}",
        )
    space = header.size_bytes - HEADER_BYTES
    if header.compression:
        space = DECOMPRESSED_BYTES_MAX
    if header.record_count * RECORD_BYTES_MIN > space:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records do not fit in a batch of {header.size_bytes} bytes",
        )
    if header.last_offset_delta + 1 != header.record_count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count of "
            f"records {header.record_count}",
        )


def _check_flags(header: BatchHeader, rules: BatchRules) -> None:
    if rules.trusted:
        return
    if header.is_control:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records"
        )
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id}",
        )
    if header.timestamp_type and rules.log_append_time:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "A producer must not set the timestamp type LogAppendTime"
        )


def _check_timestamp(timestamp: int, rules: BatchRules, now_ms: int) -> None:
    if timestamp == NO_TIMESTAMP:
        return
    earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    if not earliest <= timestamp <= latest:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {timestamp} is out of range. It should be within [{earliest}, {latest}]",
        )
