"""A run of whole batches that another broker sent: checked, and cut into headers.

The batches keep their offsets and leader epochs. There is no work per record.
"""

from __future__ import annotations

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


class BatchRun(NamedTuple):
    """Valid batches, one after the other.

    Attributes:
        records: The bytes of the batches.
        headers: The headers, in order.
        markers: The markers of transactions among the batches, by their number in `headers`.
    """

    records: memoryview
    headers: list[BatchHeader]
    markers: dict[int, EndTransactionMarker]


def parse_run(
    records: memoryview, next_offset: int, last_epoch: int, leader_epoch: int
) -> BatchRun:
    """Return the run of whole batches at the beginning of a leader's response.

    A part of a batch at the end is left out, because a leader cuts its response at a size limit.
    Batches after the first `BATCHES_A_RUN_MAX` are left out, too. The caller appends them next.

    Args:
        records: The bytes from the leader.
        next_offset: The end of the log. Compaction at the leader may leave a gap above it.
        last_epoch: The leader epoch of the last batch of the log, or -1.
        leader_epoch: The leader epoch that the follower knows. Later batches are refused.

    Raises:
        KafkaError: CORRUPT_MESSAGE. A batch is torn, has another format or a wrong CRC, does not
            continue the offsets, or has a leader epoch that falls or is too high.
    """
    headers: list[BatchHeader] = []
    markers: dict[int, EndTransactionMarker] = {}
    position, end = 0, len(records)
    while position + HEADER_BYTES <= end and len(headers) < BATCHES_A_RUN_MAX:
        header = BatchHeader._make(_unpack_header(records, position))
        size = header[1] + LOG_OVERHEAD
        if size < HEADER_BYTES or header.magic != MAGIC_V2:
            raise _corrupt(f"magic {header.magic} and {size} bytes", next_offset)
        if position + size > end:
            break
        if crc32c(records[position + ATTRIBUTES_POSITION : position + size]) != header.crc:
            raise _corrupt("a wrong CRC", next_offset)
        base_offset, last_offset_delta, epoch = header[0], header.last_offset_delta, header[2]
        if base_offset < next_offset or not 0 <= last_offset_delta < 2**31 - 1:
            raise _corrupt(f"offsets {base_offset} + {last_offset_delta}", next_offset)
        if not last_epoch <= epoch <= leader_epoch:
            raise _corrupt(f"epoch {epoch}, not {last_epoch} to {leader_epoch}", next_offset)
        if header.attributes & CONTROL_MASK:
            marker = read_marker(records[position : position + size])
            if marker is not None:
                markers[len(headers)] = marker
        headers.append(header)
        next_offset, last_epoch = base_offset + last_offset_delta + 1, epoch
        position += size
    if not headers:
        raise _corrupt(f"{end} bytes without a whole batch", next_offset)
    return BatchRun(records[:position], headers, markers)


def _corrupt(what: str, next_offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"The leader's batch for offset {next_offset} has {what}"
    )
