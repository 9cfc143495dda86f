"""A run of whole batches that another broker sent: checked, and cut into headers.

The batches keep their offsets and leader epochs. There is no work per record.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
)
from odradek.records.checksum import crc32c
from odradek.records.control import EndTransactionMarker, read_marker

BATCHES_A_RUN_MAX = 1_000
"""Maximum number of batches of one run, which bounds the time of its append."""

_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__  # `BatchHeader._make` without its check of the length
_max_timestamp = attrgetter("max_timestamp")


class UnexpectedAppendOffset(KafkaError):
    """The first batch begins below the end of the log, and ends at it or above.

    It is Kafka's ``UnexpectedAppendOffsetException``. DeleteRecords at the leader can move the log
    start into a batch. A follower that begins there fetches from the middle of the batch.

    Attributes:
        first_offset: The base offset of the batch.
    """

    def __init__(self, first_offset: int, next_offset: int) -> None:
        message = f"The leader's batch for offset {next_offset} begins at {first_offset}"
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.first_offset = first_offset


class BatchRun(NamedTuple):
    """Valid batches, one after the other.

    Attributes:
        records: The bytes of the batches.
        headers: The headers, in order.
        markers: The markers of transactions among the batches, by their number in `headers`.
        max_timestamp: The largest timestamp of a batch.
    """

    records: memoryview
    headers: list[BatchHeader]
    markers: dict[int, EndTransactionMarker]
    max_timestamp: int


def parse_run(
    records: memoryview,
    next_offset: int,
    last_epoch: int,
    leader_epoch: int,
    first_offset_min: int,
) -> BatchRun:
    """Return the run of whole batches at the beginning of a leader's response.

    A part of a batch at the end is left out, because a leader cuts its response at a size limit.
    Batches after the first `BATCHES_A_RUN_MAX` are left out, too. The caller appends them next.

    Args:
        records: The bytes from the leader.
        next_offset: The end of the log. Compaction at the leader may leave a gap above it.
        last_epoch: The leader epoch of the last batch of the log, or -1.
        leader_epoch: The leader epoch that the follower knows. Later batches are refused.
        first_offset_min: The lowest base offset of the first batch, at most `next_offset`. The
            batch ends at or above `next_offset` in any case.

    Raises:
        UnexpectedAppendOffset: The first batch is valid, but begins below `first_offset_min`.
        KafkaError: CORRUPT_MESSAGE. A batch is torn, has another format or a wrong CRC, does not
            continue the offsets, or has a leader epoch that falls or is too high.
    """
    headers: list[BatchHeader] = []
    markers: dict[int, EndTransactionMarker] = {}
    position, end = 0, len(records)
    log_end, next_offset = next_offset, first_offset_min
    while position + HEADER_BYTES <= end and len(headers) < BATCHES_A_RUN_MAX:
        header = _new_tuple(BatchHeader, _unpack_header(records, position))
        size = header[1] + LOG_OVERHEAD
        if size < HEADER_BYTES or header.magic != MAGIC_V2:
            raise _corrupt(f"magic {header.magic} and {size} bytes", next_offset)
        if position + size > end:
            break
        if crc32c(records[position + ATTRIBUTES_POSITION : position + size]) != header.crc:
            raise _corrupt("a wrong CRC", next_offset)
        base_offset, last_offset_delta, epoch = header[0], header.last_offset_delta, header[2]
        if not last_epoch <= epoch <= leader_epoch:
            raise _corrupt(f"epoch {epoch}, not {last_epoch} to {leader_epoch}", next_offset)
        if base_offset < next_offset or not 0 <= last_offset_delta < 2**31 - 1:
            raise _wrong_offsets(header, next_offset if headers else log_end, is_first=not headers)
        if header.attributes & CONTROL_MASK:
            marker = read_marker(records[position : position + size])
            if marker is not None:
                markers[len(headers)] = marker
        headers.append(header)
        next_offset, last_epoch = base_offset + last_offset_delta + 1, epoch
        position += size
    if not headers or headers[0].base_offset + headers[0].last_offset_delta < log_end:
        raise _corrupt(f"{end} bytes without a whole batch", log_end)
    return BatchRun(records[:position], headers, markers, max(map(_max_timestamp, headers)))


def _wrong_offsets(header: BatchHeader, next_offset: int, *, is_first: bool) -> KafkaError:
    base_offset, last_offset_delta = header.base_offset, header.last_offset_delta
    is_valid = base_offset >= 0 and last_offset_delta < 2**31 - 1
    if is_first and is_valid and base_offset < next_offset <= base_offset + last_offset_delta:
        return UnexpectedAppendOffset(base_offset, next_offset)
    return _corrupt(f"offsets {base_offset} + {last_offset_delta}", next_offset)


def _corrupt(what: str, next_offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"The leader's batch for offset {next_offset} has {what}"
    )
