"""Reads for followers: a region of committed records, or a copy of records that may be truncated.

A region is sent by sendfile, which hands over pages of the file. A leader that is deposed truncates
records above the high watermark in place, possibly while a response is sent. A follower would then
get zeros, or parts of other batches whose offsets and epochs no CRC covers. A region therefore ends
at the high watermark. Records above it are copied when the response is made, if it has no region.
Otherwise the follower fetches them next.
"""

from __future__ import annotations

from functools import partial

from odradek.environment.files import Files
from odradek.log.log_read import LogReadInfo
from odradek.log.residency import read_resident, read_waiting
from odradek.log.unified_log import UnifiedLog


def read_for_follower(
    log: UnifiedLog, offset: int, max_bytes: int, high_watermark: int, *, wait: bool
) -> LogReadInfo:
    """Read as `UnifiedLog.read` does, either a region or `LogReadInfo.copied`.

    Args:
        log: The leader's log.
        offset: The first offset.
        max_bytes: The maximum size of region or copy. The first batch may be larger.
        high_watermark: The high watermark, or an earlier one.
        wait: Whether the disk may be read. Then this may run on any thread, and the owner confirms
            the result (`UnifiedLog.confirm`).

    Raises:
        KafkaError: As for `UnifiedLog.read`.
        NotResident: Without `wait`, the disk would have to be read.
    """
    end, files = log.log_end_offset, log.log_dir.files
    if wait:
        copy = partial(_copy_uncommitted, files, offset, high_watermark, wait=True)
        return log.read(offset, max_bytes, end, min_one_message=True, complete=copy)
    found = log.read_resident(offset, max_bytes, end, min_one_message=True)
    try:
        return _copy_uncommitted(files, offset, high_watermark, found, wait=False)
    except OSError as error:
        raise log.read_failed(error, offset) from error


def _copy_uncommitted(
    files: Files, offset: int, high_watermark: int, read: LogReadInfo, *, wait: bool
) -> LogReadInfo:
    """Return the read from `offset` with a region that ends at the high watermark.

    If it has no committed record, return a copy of the records and no region. A follower in sync
    reads from the high watermark on, or above it, so its fetch needs no look-up of the position.
    """
    segment, region = read.segment, read.region
    if segment is None or region is None:
        return read
    start = 0
    if offset < high_watermark and high_watermark > segment.base_offset:
        found = segment.locate(high_watermark, wait=wait)
        if found is None:
            return read
        start = max(found[0] - region.position, 0)
    if start >= region.length:
        return read
    if start:
        region.shorten(start)
        return read
    fetch = read_waiting if wait else read_resident
    copied = fetch(files, region.held().fd, region.length, region.position, region.length)
    region.close()
    return LogReadInfo(None, read.first_batch_cut, segment, read.aborted, read.truncations, copied)
