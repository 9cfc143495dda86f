"""One cleaning, from the files of a log to ``.cleaned`` files beside them, run by a worker.

First the dirty segments are read into the offset map, as far as it has room. Then all segments up
to that offset are copied, group by group, without superseded records. The CRC of every batch is
checked. A log with a damaged batch is not cleaned at all, because a new CRC would hide the damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from odradek.environment.clock import Clock
from odradek.environment.files import READ, Files, OpenFile
from odradek.log.cleaner.batch_filter import BatchFilter, CleanerStats, parse_body
from odradek.log.cleaner.offset_map import OffsetMap
from odradek.log.cleaner.output import CleanedSegment
from odradek.log.cleaner.record_spans import RecordSpan
from odradek.log.cleaner.transactions import CleanedTransactions, aborted_transactions
from odradek.log.cleaner.worker_protocol import (
    CleanedGroup,
    CleaningDone,
    CleaningFailed,
    CleaningJob,
    Report,
)
from odradek.log.segments.log_segment import LOG_SUFFIX
from odradek.log.segments.offset_index import ENTRY_BYTES, index_path
from odradek.log.segments.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.records.batch import (
    HEADER_BYTES,
    INT32_MAX,
    MAGIC_V2,
    BatchHeader,
    crc_is_valid,
    parse_header,
)
from odradek.records.record import CorruptRecord, body_of

READ_BYTES_MIN = 1 << 16

Batches = Iterator[tuple[BatchHeader, memoryview]]


class CorruptLog(Exception):
    """A batch of the log is incomplete, or does not match its checksum."""


class Throttle:
    """A limit of bytes per second for reads and writes. None means no limit."""

    def __init__(
        self, bytes_per_second: float | None, clock: Clock, wait: Callable[[float], object]
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._started_ms = clock.monotonic_ms()
        self._count = 0

    def passed(self, size: int) -> None:
        if self._rate is None:
            return
        self._count += size
        due_ms = self._started_ms + 1000 * self._count / self._rate
        early_ms = due_ms - self._clock.monotonic_ms()
        if early_ms > 0:
            self._wait(early_ms / 1000)


def reports(
    job: CleaningJob,
    files: Files,
    directory: str,
    clock: Clock,
    wait: Callable[[float], object],
) -> Iterator[Report]:
    """Clean one log, and yield the reports to the broker. The last one is not a `CleanedGroup`.

    Args:
        job: The log and the range.
        files: The file system of the worker.
        directory: The directory of the log, as the worker names it.
        clock: The clock of the throttle.
        wait: Delays the worker for a number of seconds.
    """
    started_ms = clock.monotonic_ms()
    cleaning = Cleaning(job, files, directory, Throttle(job.bytes_per_second, clock, wait))
    try:
        yield from cleaning.groups()
        yield cleaning.done((clock.monotonic_ms() - started_ms) / 1000)
    except OSError as error:
        yield CleaningFailed(error.errno or -1, str(error))
    except CorruptLog as error:
        yield CleaningFailed(0, str(error))


class Cleaning:
    """One cleaning job. `groups` does the work."""

    def __init__(self, job: CleaningJob, files: Files, directory: str, throttle: Throttle) -> None:
        self._job = job
        self._files = files
        self._directory = directory
        self._throttle = throttle
        self.stats = CleanerStats()
        self._end_offset = job.first_dirty_offset

    def groups(self) -> Iterator[CleanedGroup]:
        """Clean the log, and yield each group after its files were synced.

        Raises:
            OSError: A file cannot be read or written.
            CorruptLog: The log has a damaged batch.
        """
        job = self._job
        aborted = aborted_transactions(self._files, self._directory)
        offset_map = self._build_map(aborted)
        self._end_offset = offset_map.latest_offset + 1
        self.stats.map_utilization = offset_map.utilization
        segments = [each for each in job.segments if each[0] < self._end_offset]
        if not segments:
            return
        transactions = CleanedTransactions(aborted, segments[0][0])
        batch_filter = BatchFilter(
            offset_map,
            transactions,
            {pid: (offset, epoch) for pid, offset, epoch in job.last_records},
            job.upper_bound,
            job.now_ms,
            job.delete_retention_ms,
            self.stats,
        )
        for group in group_segments(segments, job):
            yield self._clean_group(group, batch_filter)
        self.stats.keyless = offset_map.keyless

    def done(self, elapsed_s: float) -> CleaningDone:
        stats = {name: getattr(self.stats, name) for name in CleanerStats.__slots__}
        return CleaningDone(self._end_offset, elapsed_s, stats)

    # -- the map -----------------------------------------------------------------------------------

    def _build_map(self, aborted: list[AbortedTransaction]) -> OffsetMap:
        job = self._job
        start = job.first_dirty_offset
        offset_map = OffsetMap(
            start, job.dedupe_buffer_bytes, job.load_factor, job.upper_bound - start
        )
        transactions = CleanedTransactions(aborted, start)
        for at, (base, size) in enumerate(job.segments):
            following = job.segments[at + 1][0] if at + 1 < len(job.segments) else job.upper_bound
            if following <= start:
                continue
            if not self._map_segment(base, size, offset_map, transactions):
                return offset_map
            offset_map.mark_covered_up_to(following - 1)  # offsets may be missing at its end
        return offset_map

    def _map_segment(
        self, base: int, size: int, offset_map: OffsetMap, transactions: CleanedTransactions
    ) -> bool:
        """Add the records of a segment to the map. Return False when the map is full."""
        start = self._job.first_dirty_offset
        for header, batch in self._batches(base, size):
            self.stats.map_bytes_read += len(batch)
            if header.last_offset < start:
                continue
            if header.is_control:
                transactions.marker_is_unneeded(batch, header)
            elif not transactions.is_aborted(header) and header.record_count:
                records = self._parsed(batch, header)
                self.stats.map_records += len(records)
                if not offset_map.put_records(records, header.base_offset):
                    return False
            offset_map.mark_covered_up_to(header.last_offset)
        return True

    def _parsed(self, batch: memoryview, header: BatchHeader) -> list[RecordSpan]:
        try:
            return parse_body(body_of(batch, header), header)
        except CorruptRecord as error:
            raise self._corrupt(header, str(error)) from error

    # -- the copy ----------------------------------------------------------------------------------

    def _clean_group(
        self, group: Sequence[tuple[int, int]], batch_filter: BatchFilter
    ) -> CleanedGroup:
        job = self._job
        output = CleanedSegment(
            self._files,
            self._directory,
            group[0][0],
            job.index_interval_bytes,
            job.segment_index_bytes,
        )
        for base, size in group:
            self._copy_segment(base, size, batch_filter, output)
        still_indexed = batch_filter.transactions.still_indexed
        output.finish(still_indexed, self._path(group[-1][0]))
        report = CleanedGroup([base for base, _ in group], output.size, bool(still_indexed))
        still_indexed.clear()
        return report

    def _copy_segment(
        self, base: int, size: int, batch_filter: BatchFilter, output: CleanedSegment
    ) -> None:
        for header, batch in self._batches(base, size):
            self.stats.bytes_read += len(batch)
            try:
                kept = batch_filter.apply(batch, header)
            except CorruptRecord as error:
                raise self._corrupt(header, str(error)) from error
            if len(kept):
                output.append(kept)
                self.stats.bytes_written += len(kept)
                self._throttle.passed(len(kept))

    # -- reading -----------------------------------------------------------------------------------

    def _path(self, base: int) -> str:
        return index_path(self._directory, base, LOG_SUFFIX)

    def _corrupt(self, header: BatchHeader, what: str) -> CorruptLog:
        return CorruptLog(f"the batch at offset {header.base_offset}: {what}")

    def _batches(self, base: int, size: int) -> Batches:
        """Yield the batches of one segment after checking size, offsets and checksum.

        A view is valid until the next batch is requested.

        Raises:
            CorruptLog: A batch is incomplete, misplaced or damaged.
        """
        files, position, next_offset = self._files, 0, base
        handle = OpenFile(files, files.open(self._path(base), READ))
        requested = chunk_bytes = max(self._job.io_buffer_bytes, READ_BYTES_MIN)
        while position < size:
            requested = min(requested, size - position)
            chunk = memoryview(files.pread(handle.fd, requested, position))
            if len(chunk) < requested or requested < HEADER_BYTES:
                raise CorruptLog(f"segment {base} ends in the middle of a batch")
            self._throttle.passed(len(chunk))
            at = 0
            while len(chunk) - at >= HEADER_BYTES:
                header = parse_header(chunk, at)
                end = at + header.size_bytes
                if header.size_bytes < HEADER_BYTES or position + end > size:
                    raise self._corrupt(header, f"its size {header.size_bytes} is wrong")
                if end > len(chunk):
                    break
                batch = chunk[at:end]
                if header.magic != MAGIC_V2 or not crc_is_valid(batch):
                    raise self._corrupt(header, "its checksum is wrong")
                if not next_offset <= header.base_offset <= header.last_offset:
                    raise self._corrupt(
                        header, f"it is out of order after offset {next_offset - 1}"
                    )
                yield header, batch
                at, next_offset = end, header.last_offset + 1
            requested = chunk_bytes if at else parse_header(chunk).size_bytes
            position += at


def group_segments(
    segments: Sequence[tuple[int, int]], job: CleaningJob
) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of adjacent segments that together fit into one segment and its index.

    Offsets within a segment, and index entries, are 32 bits relative to its first offset.
    """
    group: list[tuple[int, int]] = []
    total = 0
    for at, (base, size) in enumerate(segments):
        end = segments[at + 1][0] if at + 1 < len(segments) else job.upper_bound
        if group and (
            total + size > job.segment_bytes
            or _index_bytes(total + size, job) > job.segment_index_bytes
            or (size and end - 1 - group[0][0] > INT32_MAX)
        ):
            yield group
            group, total = [], 0
        group.append((base, size))
        total += size
    if group:
        yield group


def _index_bytes(size: int, job: CleaningJob) -> int:
    """Return the maximum size of the larger index over `size` bytes of log."""
    return size // max(job.index_interval_bytes, 1) * max(ENTRY_BYTES, TIME_ENTRY_BYTES)
