"""The append of a leader's batches to a follower's log: cut into pieces, one for each segment.

The functions are pure: they compute what `UnifiedLog.append_as_follower` writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.log_segments import LogSegments
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.records.batch import INT32_MAX, TRANSACTIONAL_MASK
from odradek.records.batch_run import BatchRun


def lowest_first_offset(segments: LogSegments, log_end: int) -> int:
    """Return the lowest base offset of the next batch of a log that starts at its end.

    It is below the log end if no batch exists and the log begins inside a batch
    (`LogTruncations.truncate_fully_and_start_at`).
    """
    if len(segments) > 1 or segments.active.size:
        return log_end
    return segments.active.base_offset


def piece_end(
    run: BatchRun, start: int, segment: LogSegment, segment_bytes: int, now_ms: int
) -> int:
    """Return the number of the first batch after `start` that does not belong in `segment`.

    The batch at `start` does. A batch that is larger than a segment has a segment of its own.
    """
    headers = run.headers
    if now_ms > segment.roll_after_ms:
        return start + 1
    latest, offset_max = segment.roll_after_timestamp, segment.base_offset + INT32_MAX
    if (
        segment.size + len(run.records) <= segment_bytes
        and len(headers) - start <= segment.index_room
        and run.max_timestamp <= latest
        and headers[-1].last_offset <= offset_max
    ):
        return len(headers)
    size, room = segment.size + headers[start].size_bytes, segment.index_room - 1
    for at in range(start + 1, len(headers)):
        header = headers[at]
        size += header.size_bytes
        if (
            size > segment_bytes
            or room <= 0
            or header.max_timestamp > latest
            or header.last_offset > offset_max
        ):
            return at
        room -= 1
    return len(headers)


def aborted_transactions(
    run: BatchRun, start: int, end: int, ongoing: Mapping[int, int]
) -> list[AbortedTransaction]:
    """Return the transactions that markers among these batches abort, with their index entries.

    Args:
        run: The batches.
        start: The number of the first batch.
        end: The number after the last batch.
        ongoing: First offset -> producer id of the transactions that are open before the batches,
            in the order of the offsets.
    """
    found: list[AbortedTransaction] = []
    if all(marker.committed for marker in run.markers.values()):
        return found
    open_now = dict(ongoing)
    first_offsets = {producer_id: first for first, producer_id in ongoing.items()}
    for at in range(start, end):
        header = run.headers[at]
        if not header.attributes & TRANSACTIONAL_MASK:
            continue
        producer_id, marker = header.producer_id, run.markers.get(at)
        if marker is None:
            if not header.is_control and producer_id not in first_offsets:
                first_offsets[producer_id] = header.base_offset
                open_now[header.base_offset] = producer_id
            continue
        first_offset = first_offsets.pop(producer_id, None)
        if first_offset is None:
            continue
        del open_now[first_offset]
        if not marker.committed:
            stable = next(iter(open_now), header.base_offset + 1)
            found.append(AbortedTransaction(producer_id, first_offset, header.base_offset, stable))
    return found
