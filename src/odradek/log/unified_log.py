"""The log of one partition: segments in offset order, with appends at the end and reads anywhere.

The module is synchronous and uses no asyncio. One thread owns a log: it appends, reads, rolls,
truncates, deletes and closes. `flush`, `read`, and the searches of `timestamps` may run on other
threads at the same time. Regions may be used on any thread.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from odradek.config.log_config import LONG_MAX, LogConfig
from odradek.environment.files import make_directory
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition, Uuid
from odradek.log import retention
from odradek.log.file_pool import NO_DESCRIPTOR_ERRNOS, NO_SPACE_ERRNOS
from odradek.log.follower_append import aborted_transactions, lowest_first_offset, piece_end
from odradek.log.log_append_info import FollowerAppendInfo, LogAppendInfo, duplicate_info
from odradek.log.log_dir import LogDir
from odradek.log.log_flusher import LogFlusher
from odradek.log.log_read import NOTHING_READ, LogReadInfo, aborted_in, cut_region, read_segments
from odradek.log.segments.log_cut import LogCut, cut_segments, remove_unlisted_segments, undo_swaps
from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.log_segments import LogSegments
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.log.state import checkpoints
from odradek.log.state.leader_epochs import LeaderEpochFileCache
from odradek.log.state.producer_files import (
    reload_producers,
    remove_producer_files,
    write_producer_files,
)
from odradek.log.state.producer_state_manager import ProducerBatch, ProducerStateManager
from odradek.log.state.verification import Origin
from odradek.records.batch import (
    INT32_MAX,
    LEADER_FIELDS,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    stamp,
)
from odradek.records.batch_run import BatchRun, parse_run
from odradek.records.control import EndTransactionMarker
from odradek.records.validate import BatchRules, Writable, validate_batch

POSITION_HINTS_MAX = 64
"""Maximum number of remembered (offset, position) pairs of consumers at the end of the log."""

UNWRITTEN_EPOCH = -2
"""Not the epoch of any batch: the next append writes ``leader-epoch-checkpoint`` first."""

_pack_leader_fields = LEADER_FIELDS.pack_into
_logger = logging.getLogger(__name__)


class UnifiedLog:
    """The log of one partition; see the module.

    The log owns its high watermark: every record below it is committed. The high watermark advances
    with an append that commits and with `advance_high_watermark`, which the partition calls. A
    truncation moves it back.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        log_dir: LogDir,
        config: LogConfig,
        *,
        topic_id: Uuid | None,
        has_torn_topic_id: bool = False,
        on_disk: bool,
        segments: list[LogSegment],
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        recovery_point: int,
        epochs: LeaderEpochFileCache,
        producers: ProducerStateManager,
        jitter_ms: int = 0,
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.log_dir = log_dir
        self.topic_id = topic_id
        self.has_torn_topic_id = has_torn_topic_id
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), log_end_offset)
        self.epochs = epochs
        self.producers = producers
        self.segments = LogSegments(segments)
        self.flusher = LogFlusher(
            topic_partition, directory, log_dir, self.segments, recovery_point, weakref.ref(self)
        )
        self.closed = False
        self.jitter_ms = jitter_ms
        # The epoch whose first batch needs no write of the file. Entries that loading has removed
        # may still be in the file.
        self._written_epoch = UNWRITTEN_EPOCH if epochs.dirty else epochs.latest
        self.on_disk = on_disk
        self._hints: dict[int, int] = {}
        self.truncations = 0
        self._cut: LogCut | None = None
        self.segments.activate_last()
        self.update_config(config)

    # -- state -------------------------------------------------------------------------------------

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch that wrote to the log, or -1 if there is none."""
        return self.epochs.latest

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def recovery_point(self) -> int:
        """The offset below which every batch is on the disk."""
        return self.flusher.recovery_point

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def update_config(self, config: LogConfig) -> None:
        """Use new topic configs from now on."""
        self.config = config
        self._rules = BatchRules(config)
        self._special_rules: dict[bool, BatchRules] = {}
        self._flush_messages = config.flush_messages
        self._segment_bytes = config.segment_bytes
        self._set_segment_limits(self.segments.active)

    def _rules_for(self, origin: Origin) -> BatchRules:
        """Return the rules for transactions, created on demand: most logs have no transactions."""
        rules = self._special_rules.get(origin.coordinator)
        if rules is None:
            rules = BatchRules(self.config, transactional=True, trusted=origin.coordinator)
            self._special_rules[origin.coordinator] = rules
        return rules

    def _set_segment_limits(self, segment: LogSegment) -> None:
        segment.set_index_interval(self.config.index_interval_bytes)
        segment.set_index_limit(self.config.segment_index_bytes)
        self._set_roll_times(segment)

    def _set_roll_times(self, segment: LogSegment) -> None:
        jitter_ms = min(self.jitter_ms, self.config.segment_jitter_ms, self.config.roll_ms)
        segment.set_roll_times(self.config.roll_ms, jitter_ms)

    # -- high watermark ----------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Commit all records below `offset`, at most up to the log's end.

        Returns:
            Whether the high watermark has moved.
        """
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    # -- transactions ------------------------------------------------------------------------------

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset at that high watermark: earlier transactions have ended."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(max(first_unstable, self.log_start_offset), high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that readers of committed records can read."""
        return self.stable_offset(self.high_watermark)

    def aborted_in(
        self, first_offset: int, read: LogReadInfo, *, wait: bool = True
    ) -> list[tuple[int, int]]:
        """Return the aborted transactions that overlap a read; see `log_read.aborted_in`."""
        return aborted_in(self.segments, first_offset, read, self.log_end_offset, wait=wait)

    # -- appending ---------------------------------------------------------------------------------

    def append_as_leader(  # noqa: C901 - calls are what this path costs
        self,
        batch: Writable,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin | None = None,
        commit: bool = False,
    ) -> LogAppendInfo:
        """Append one v2 batch, which is changed in place: validate it, fill its header, write it.

        With `commit` the high watermark follows, unless the append must be flushed first.

        Raises:
            KafkaError: The batch is refused, or KAFKA_STORAGE_ERROR. After a full disk the log is
                unchanged, and appends may succeed later. An I/O error takes the directory offline.
        """
        if self.log_dir.offline or self.closed:
            raise self.log_dir.error()
        rules = self._rules if origin is None else self._rules_for(origin)
        batch, header = validate_batch(batch, rules, now_ms)
        _, length, _, _, _, attributes, last_delta, _, max_timestamp, producer_id, epoch, seq, _ = (
            header
        )
        if producer_id >= 0:
            producers = self.producers
            producer = producers.producers.get(producer_id)
            if producer is None or origin or seq != producer.expected or epoch != producer.epoch:
                producer = None
                found = producers.check(producer_id, epoch, seq, last_delta, attributes, origin)
                if found is not None:
                    return self._duplicate_info(found)
        append_time = NO_TIMESTAMP
        if attributes & TIMESTAMP_TYPE_MASK or rules.log_append_time:
            max_timestamp, append_time = stamp(batch, header, now_ms, rules.log_append_time)
        first_offset = self.log_end_offset
        last_offset = first_offset + last_delta
        size = length + LOG_OVERHEAD
        _pack_leader_fields(batch, 0, first_offset, length, leader_epoch)
        segment = self.segments.active
        try:
            if (
                size > self._segment_bytes - segment.size
                or max_timestamp > segment.roll_after_timestamp
                or now_ms > segment.roll_after_ms
                or last_offset - segment.base_offset > INT32_MAX
                or segment.index_room <= 0
            ):
                segment = self._segment_for(size, last_offset, max_timestamp, now_ms)
            if leader_epoch != self._written_epoch:
                self._write_first_of_epoch(leader_epoch)
            if origin is not None and origin.marker is not None:
                self._write_aborted(segment, producer_id, origin.marker)
            segment.append(batch, size, last_offset, max_timestamp)
        except OSError as error:
            raise self._append_failed(error) from error
        if segment.size == size:
            self._begin_segment(segment, max_timestamp)
        self.log_end_offset = last_offset + 1
        if producer_id >= 0:
            if producer is None:
                what = (last_delta, last_offset, max_timestamp, attributes, origin)
                producers.update(producer_id, epoch, seq, *what)
            else:
                producer.append(seq, last_delta, last_offset, max_timestamp)
        must_flush = last_offset + 1 - self.flusher.recovery_point >= self._flush_messages
        if commit and not must_flush:
            self.high_watermark = last_offset + 1
        start = self.log_start_offset
        return LogAppendInfo(first_offset, last_offset, append_time, start, False, must_flush)

    def append_as_follower(
        self, records: memoryview, leader_epoch: int, *, now_ms: int
    ) -> FollowerAppendInfo:
        """Append a run of whole batches unchanged, with their offsets and leader epochs.

        All batches that go to one segment are written with one system call. Producers are not
        checked, as in Kafka, because the leader has accepted the batches. The leader of a mirrored
        partition appends in the same way.

        At most `BATCHES_A_RUN_MAX` batches are appended, and a part of a batch at the end of
        `records` is left out. See `FollowerAppendInfo.size_bytes`.

        Args:
            records: Batches from the leader, the first one at or above the log's end.
            leader_epoch: The leader epoch of the fetch. No batch may have a later one.
            now_ms: The time, for rolls.

        Raises:
            KafkaError: CORRUPT_MESSAGE for an invalid batch: nothing is appended. Or
                KAFKA_STORAGE_ERROR: whole batches before the error are appended.
        """
        assert not self.is_truncating
        if self.log_dir.offline or self.closed:
            raise self.log_dir.error()
        end = self.log_end_offset
        lowest = lowest_first_offset(self.segments, end) if self.log_start_offset == end else end
        run = parse_run(records, end, self.epochs.epoch_for(end - 1), leader_epoch, lowest)
        try:
            self._write_epochs_of(run)
            self._append_run(run, now_ms)
        except OSError as error:
            self.epochs.truncate_from_end(self.log_end_offset)
            self._written_epoch = UNWRITTEN_EPOCH
            raise self._append_failed(error) from error
        if self.producers.unreplicated:
            # Forget the ended transactions below the high watermark. Only reads of committed
            # records do that otherwise, and a follower has none.
            self.producers.first_unstable_offset(self.high_watermark)
        end, must_flush = self.log_end_offset, self.unflushed_messages >= self._flush_messages
        return FollowerAppendInfo(end, len(run.records), len(run.headers), must_flush)

    def _write_epochs_of(self, run: BatchRun) -> None:
        """Write the epochs that begin in the run to the file, before their batches."""
        epoch = run.headers[-1].partition_leader_epoch
        if epoch == self._written_epoch and not self.epochs.dirty:
            return
        if not self.on_disk:
            self._create_directory()
        for header in run.headers:
            if header.partition_leader_epoch != self.epochs.latest:
                start = max(header.base_offset, self.log_start_offset)
                self.epochs.assign(header.partition_leader_epoch, start)
        if self.epochs.dirty:
            self._write_epochs(sync=False)
        self._written_epoch = epoch

    def _append_run(self, run: BatchRun, now_ms: int) -> None:
        headers, producers, count = run.headers, self.producers, len(run.headers)
        start = position = 0
        while start < count:
            segment = self._segment_for_batch(headers[start], now_ms)
            end = piece_end(run, start, segment, self._segment_bytes, now_ms)
            piece = headers[start:end]
            size = len(run.records) - position if end == count else sum(h.size_bytes for h in piece)
            if run.markers:
                # Before the markers: a full disk must not leave a marker without its entry.
                for aborted in aborted_transactions(run, start, end, producers.ongoing):
                    self._append_aborted(segment, aborted)
            segment.append_batches(run.records[position : position + size], piece)
            self.log_end_offset = piece[-1].last_offset + 1
            producers.replay_run(piece, run.markers, start)
            start, position = end, position + size

    def _segment_for_batch(self, header: BatchHeader, now_ms: int) -> LogSegment:
        """Return the segment for a batch of a leader, which may be larger than a segment."""
        segment = self.segments.active
        if segment.index_room <= 0:
            segment.set_index_limit(self.config.segment_index_bytes)
        is_far = header.last_offset - segment.base_offset > INT32_MAX
        if is_far or self._must_roll(segment, header.size_bytes, header.max_timestamp, now_ms):
            # A gap that compaction left may be larger than an index entry can express.
            is_far = header.last_offset - self.log_end_offset > INT32_MAX
            segment = self._roll(now_ms, header.base_offset if is_far else self.log_end_offset)
        if not segment.size:
            segment.begin(header.max_timestamp)
            self._set_roll_times(segment)
        return segment

    def _duplicate_info(self, found: ProducerBatch) -> LogAppendInfo:
        """Return the result of the original batch, with the flush if it is required."""
        is_flushed = found.last_offset < self.recovery_point
        must_flush = not is_flushed and self.unflushed_messages >= self._flush_messages
        return duplicate_info(found, self.log_start_offset, must_flush)

    def _append_failed(self, error: OSError) -> KafkaError:
        """Undo a failed append: cut off the torn batch, or take the directory offline."""
        what = f"append to {self.topic_partition} failed: {error}"
        if error.errno not in NO_SPACE_ERRNOS | NO_DESCRIPTOR_ERRNOS:
            return self.log_dir.fail(error, what)
        try:
            self.segments.active.cut_torn_write(self.log_end_offset)
        except OSError as cut_error:
            return self.log_dir.fail(cut_error, f"cutting a torn write of {self.topic_partition}")
        _logger.warning("%s. The partial write was cut off. Free space or descriptors", what)
        return self.log_dir.append_refused(error, what)

    def _write_aborted(
        self, segment: LogSegment, producer_id: int, marker: EndTransactionMarker
    ) -> None:
        """Write the index entry of a marker that aborts a transaction.

        The entry is written before its marker, so that a full disk leaves no marker without it.
        """
        # This call removes the ended transactions whose markers are below the high watermark.
        # Reads of committed records do that too, but the partition may have no such readers.
        self.producers.first_unstable_offset(self.high_watermark)
        if marker.committed:
            return
        aborted = self.producers.aborted_by(producer_id, self.log_end_offset)
        if aborted is not None:
            self._append_aborted(segment, aborted)

    def _append_aborted(self, segment: LogSegment, aborted: AbortedTransaction) -> None:
        if segment.txn_index is None:
            self.flusher.file_created()
        segment.append_aborted(aborted)

    def _write_first_of_epoch(self, leader_epoch: int) -> None:
        """Write the start of an epoch to its file, before the first batch of the epoch."""
        if not self.on_disk:
            self._create_directory()
        self.begin_leader_epoch(leader_epoch)
        if self.epochs.dirty:
            self._write_epochs(sync=False)
        self._written_epoch = leader_epoch

    def _create_directory(self) -> None:
        """Create the directory and the topic id's file. An empty log has no files."""
        self.log_dir.prepare_directory(self.topic_partition)
        make_directory(self.log_dir.files, self.directory)
        self._write_topic_id(self.topic_id)
        self.on_disk = True
        self.log_dir.directory_created(self.flusher)

    def write_leader_epochs(self) -> None:
        """Write the epochs that the loader found in batches and not in the file.

        The next flush syncs the file, before the recovery point passes the first batches of these
        epochs.

        Raises:
            OSError: The file could not be written.
        """
        self._write_epochs(sync=False)
        self._written_epoch = self.epochs.latest

    def _write_epochs(self, *, sync: bool) -> None:
        is_new = self.log_end_offset == 0 and not sync
        self.epochs.write(self.log_dir.files, self.directory, sync=sync, new=is_new)
        if not sync:
            self.flusher.epochs_written()

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Write ``partition.metadata`` for a log that was opened without one."""
        try:
            self._write_topic_id(topic_id)
        except OSError as error:
            raise self.log_dir.io_failed(error, f"the topic id of {self.directory}") from error
        self.topic_id = topic_id

    def _write_topic_id(self, topic_id: Uuid | None) -> None:
        if topic_id is not None:
            path = f"{self.directory}/{checkpoints.PARTITION_METADATA_FILE}"
            checkpoints.write_topic_id(self.log_dir.files, path, topic_id)

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Start a leader epoch at the log's end, before the new leader serves requests.

        The epoch is written to the file before its first batch. Until then no reader needs it.
        """
        assert not self.is_truncating
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def _begin_segment(self, segment: LogSegment, first_timestamp: int) -> None:
        segment.begin(first_timestamp)
        self._set_segment_limits(segment)

    # -- rolling -----------------------------------------------------------------------------------

    def _segment_for(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> LogSegment:
        """Return the active segment if the batch fits, or a new one after a roll."""
        if size > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch of {size} bytes exceeds the segment size {self._segment_bytes}",
            )
        segment = self.segments.active
        segment.set_index_limit(self.config.segment_index_bytes)
        # An empty segment rolls only if its base offset is too far away for an index entry.
        is_far = last_offset - segment.base_offset > INT32_MAX
        if is_far or self._must_roll(segment, size, max_timestamp, now_ms):
            return self._roll(now_ms, self.log_end_offset)
        return segment

    def _must_roll(self, segment: LogSegment, size: int, max_timestamp: int, now_ms: int) -> bool:
        return segment.size > 0 and (
            size > self._segment_bytes - segment.size
            or max_timestamp > segment.roll_after_timestamp
            or now_ms > segment.roll_after_ms
            or segment.index_room <= 0
        )

    def roll(self, now_ms: int, *, in_steps: bool = False) -> None:
        """Start a new segment at the log's end, unless the active one is empty.

        With `in_steps`, one call creates at most one index file, and only the last call rolls.
        """
        active = self.segments.active
        try:
            if active.size and not (in_steps and active.create_index_file()):
                self._roll(now_ms, self.log_end_offset)
        except OSError as error:
            raise self._append_failed(error) from error

    def _roll(self, now_ms: int, base_offset: int) -> LogSegment:
        """Start a new segment, or change nothing. The next flush syncs the files of the old one."""
        self.flusher.sync_head()
        segment = self._new_segment(base_offset, now_ms)
        rolled = self.segments.active
        try:
            segment.file.open()  # an active segment needs no index files
            rolled.close_indexes(sync=False)
            write_producer_files(self.log_dir.files, self.directory, base_offset, self.producers)
        except OSError:
            segment.remove_files()
            raise
        self.flusher.segment_rolled(rolled)
        self.segments.roll(segment)
        self._hints.clear()
        self._set_segment_limits(segment)
        return segment

    def _new_segment(self, base_offset: int, now_ms: int, size: int = 0) -> LogSegment:
        pool, cache = self.log_dir.pool, self.log_dir.cache
        return LogSegment(self.directory, base_offset, pool, cache, size=size, created_ms=now_ms)

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        min_one_message: bool,
        *,
        with_aborted: bool = False,
        complete: Callable[[LogReadInfo], LogReadInfo] | None = None,
    ) -> LogReadInfo:
        """Read whole batches from the batch that contains `offset` up to `max_offset` (exclusive).

        The region is cut at `max_bytes`, possibly inside a batch, as in Kafka. With
        `min_one_message` its first batch is always whole. The caller closes the region.

        Runs on any thread, and waits for the disk. The last step is `complete`, which may read.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE outside of log start and end, or KAFKA_STORAGE_ERROR.
        """
        truncations = self.truncations
        while True:
            self._check_readable(offset)
            segments = self.segments.from_offset(offset)
            try:
                found = read_segments(segments, offset, max_bytes, max_offset, min_one_message)
                if with_aborted:
                    found.aborted = self.aborted_in(offset, found)
                if complete is not None:
                    found = complete(found)
            except OSError as error:
                if not (isinstance(error, FileNotFoundError) and any(s.deleted for s in segments)):
                    raise self.read_failed(error, offset) from error
                if truncations == self.truncations and not self.is_truncating:
                    continue  # the owner deleted or replaced segments in the meantime
                found = LogReadInfo(None)  # a truncation removes segments
            found.truncations = truncations
            return found

    def read_resident(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        min_one_message: bool,
        *,
        with_aborted: bool = False,
    ) -> LogReadInfo:
        """Read as `read` does, on the owner's thread, without waiting for the disk.

        Raises:
            NotResident: The read would have to wait. The caller runs `read` on a thread, and passes
                the outcome to `confirm`.
        """
        self._check_readable(offset)
        if offset >= max_offset:
            return NOTHING_READ
        try:
            found = self._read_resident(offset, max_bytes, max_offset, min_one_message)
            if with_aborted:
                found.aborted = aborted_in(
                    self.segments, offset, found, self.log_end_offset, wait=False
                )
        except OSError as error:
            raise self.read_failed(error, offset) from error
        return found

    def confirm(self, offset: int, found: LogReadInfo) -> bool:
        """Return whether the outcome of `read` on a thread is still valid.

        It is not valid if the log was truncated in the meantime. Runs on the owner's thread.

        Raises:
            KafkaError: As for `read`.
        """
        self._check_readable(offset)
        return found.truncations == self.truncations

    def _check_readable(self, offset: int) -> None:
        if self.log_dir.offline or self.closed:
            raise self.log_dir.error()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is outside of "
                f"[{self.log_start_offset}, {self.log_end_offset}]",
            )

    def read_failed(self, error: OSError, offset: int) -> KafkaError:
        """Return the error to raise. It takes the directory offline unless it is temporary."""
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            return self.log_dir.error(f"read failed: {error}")
        if self.closed:
            return self.log_dir.error("the log was closed")
        return self.log_dir.fail(error, f"reading {self.topic_partition} at {offset}")

    def _read_resident(
        self, offset: int, max_bytes: int, max_offset: int, min_one_message: bool
    ) -> LogReadInfo:
        segments = self.segments
        segment, first_size = segments.active, 0
        position = self._hints.get(offset, -1)
        if position < 0:
            found = segments.locate_resident(offset)
            if found is None:
                return LogReadInfo(None)
            segment, position, first_size = found
        to_end = max_offset >= self.log_end_offset and segment is segments.active
        end = segment.size if to_end else segments.end_position_resident(segment, max_offset)
        if end - position > max_bytes:
            if not first_size:
                # The size of a batch at a hint is looked up only if the limit may cut the batch.
                first_size = (segment.locate(offset, wait=False) or (0, 0))[1]
        elif to_end:
            self._remember(self.log_end_offset, end)
        file = segment.file.open_resident()
        return cut_region(segment, file, position, end, first_size, max_bytes, min_one_message)

    def _remember(self, offset: int, position: int) -> None:
        """Remember where a consumer at the log's end reads next, so that it needs no search."""
        if len(self._hints) >= POSITION_HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch <= `epoch`; (-1, -1) if undefined."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    # -- making durable ----------------------------------------------------------------------------

    def flush(self) -> None:
        """Return when all records appended before the call are on the disk. May run on any thread.

        Concurrent calls share an fsync. A failed one takes the directory offline for good.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, because the fsync failed or the directory is offline.
        """
        self.flush_to(self.log_end_offset)

    def flush_to(self, offset: int) -> None:
        """Flush the records below `offset` only (a rolled segment's end); otherwise as `flush`."""
        self.flusher.flush_to(offset)

    # -- cutting -----------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> None:
        """Raise the log start offset to `offset`. Readers no longer see the records below it.

        The next retention pass deletes the segments.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete records of {self.topic_partition} up to {offset}: beyond the high "
                f"watermark {self.high_watermark}",
            )
        self.raise_log_start(offset)

    def raise_log_start(self, offset: int) -> None:
        """Advance the log start offset, at most to the high watermark. It never decreases."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.log_dir.request_checkpoint()

    def discard(self, segment: LogSegment, *, expired: bool = False) -> None:
        """Rename the files of a segment that is no longer in the list. They are removed later."""
        due_ms = self.log_dir.clock.time_ms() + self.config.file_delete_delay_ms
        self.log_dir.remove_later(segment.mark_deleted(expired=expired), due_ms)

    def replace_segments(
        self, old: Sequence[LogSegment], size: int, now_ms: int, *, has_aborted: bool
    ) -> None:
        """Replace the old segments by a compacted one, whose files already have their names."""
        new = self._new_segment(old[0].base_offset, now_ms, size)
        new.set_index_interval(self.config.index_interval_bytes)
        if has_aborted:
            new.find_txn_index()
        self.segments.replace(old, new)
        for segment in old[1:]:
            remove_producer_files(self.log_dir.files, self.directory, segment.base_offset)

    def delete_old_segments(
        self, now_ms: int, *, wait: bool = True, limit: int = LONG_MAX
    ) -> retention.Deletion:
        """Delete at most `limit` segments by time, size and log start.

        If all segments are deletable, the log rolls first. Each call does one step of the roll.

        Raises:
            NotResident: Without `wait`, the disk would have to be read: see `load_for_retention`.
        """
        count, size_bytes, log_start = 0, (lambda: self.size_bytes), (lambda: self.log_start_offset)
        try:
            for rule in retention.rules(self.config, now_ms, size_bytes, log_start, wait=wait):
                ends = self.log_end_offset, self.high_watermark
                found = retention.count_deletable(self.segments, *ends, rule, limit - count)
                if found == len(self.segments):
                    self.roll(now_ms, in_steps=True)
                    return retention.Deletion(count, is_rolling=True)
                if found:
                    self._delete_first(found, rule.reason)
                count += found
        except OSError as error:
            raise self.log_dir.io_failed(error, f"retention of {self.topic_partition}") from error
        return retention.Deletion(count, is_rolling=False)

    def load_for_retention(self, now_ms: int) -> None:
        """Read the data that `delete_old_segments` needs without `wait`. May run on any thread."""
        segments = self.segments.from_offset(0)
        try:
            retention.load(self.config, segments, now_ms)
        except OSError as error:
            is_removed = isinstance(error, FileNotFoundError) and any(s.deleted for s in segments)
            if not self.closed and not is_removed:
                problem = f"retention of {self.topic_partition}"
                raise self.log_dir.io_failed(error, problem) from error

    def _delete_first(self, count: int, reason: str) -> None:
        self.flusher.sync_next_head(count)
        taken = self.segments.remove_first(count)
        self.raise_log_start(self.segments.bases[0])
        for segment in taken:
            _logger.info("deleting %s: %s", segment.file.path, reason)
            self.discard(segment, expired=True)
            remove_producer_files(self.log_dir.files, self.directory, segment.base_offset)

    def prepare_truncation(self, offset: int, *, base: int | None = None) -> bool:
        """Begin a truncation; see `truncation.LogTruncations`, which calls this and `cut`.

        The high watermark, the log start offset and the recovery point are those of the truncated
        log from now on, so that the checkpoints can be written before the cut. With `base`
        no batch stays, and the log has one segment with that base offset.

        Returns:
            False if there is nothing to cut. Epochs without a record are removed then.
        """
        assert not self.is_truncating
        if base is None and offset >= self.log_end_offset:
            # This broker led the epochs, and another leader was elected before a record came.
            self.epochs.truncate_from_end(self.log_end_offset)
            if self.epochs.dirty:
                self._written_epoch = UNWRITTEN_EPOCH
            return False
        if base is None and offset < self.segments.bases[0]:
            base = offset
        self._cut = LogCut(offset, base, has_readers=offset < self.high_watermark)
        self._hints.clear()
        self.truncations += 1
        first_base = self.segments.bases[self.segments.index_of(offset)] if base is None else base
        self.flusher.begin_truncation(first_base)
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = offset if base is not None else min(self.log_start_offset, offset)
        return True

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation was prepared and is not yet on the disk."""
        return self._cut is not None

    def cut(self) -> None:
        """Carry out the prepared truncation in the page cache. Runs on any thread.

        Producers and epochs are truncated as well (KIP-101).

        Raises:
            OSError: The call can be repeated.
        """
        cut = self._cut
        assert cut is not None
        if self.closed:
            return
        files, end = self.log_dir.files, -1
        if not self.on_disk:
            self._create_directory()
            if self.closed:  # the deletion found no directory
                files.remove_tree(self.directory)
                return
        self.flusher.truncate(partial(self._cut_segments, cut))
        if cut.base is None:
            end = self.log_end_offset
            self.log_start_offset = min(self.log_start_offset, end)
            self.epochs.truncate_from_end(end)
        else:
            self.epochs.clear()
            self.high_watermark = cut.offset
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        # If it was deleted in the meantime, a new topic may have a directory of its name.
        if self.epochs.dirty and not self.closed:
            self._write_epochs(sync=False)
        self._written_epoch = self.epochs.latest
        remove_unlisted_segments(files, self.directory, self.segments.bases, self.log_end_offset)
        self.producers.replace_by(
            reload_producers(files, self.directory, list(self.segments), self.log_end_offset, end)
        )

    def _cut_segments(self, cut: LogCut) -> int:
        undo_swaps(self.log_dir.files, self.directory)
        make = partial(self._new_segment, now_ms=self.log_dir.clock.time_ms())
        self.log_end_offset = cut_segments(self.segments, cut, make, self.discard)
        self._set_segment_limits(self.segments.active)
        return self.log_end_offset

    def end_truncation(self) -> None:
        """Allow appends again: the truncation is on the disk."""
        self.truncations += 1
        self._cut = None

    # -- ending ------------------------------------------------------------------------------------

    def close(self, *, clean: bool = True, sync: bool = True) -> None:
        """Write the data that the next start needs, sync it, and close every file.

        Args:
            clean: False writes nothing, because the directory failed or the log is deleted.
            sync: False leaves the complete files to the page cache.
        """
        if self.closed:
            return
        if clean:
            self.write_before_close(sync_follows=sync)
            if sync:
                self.sync_before_close()
        self.closed = True  # first, because reads on other threads check it
        self.flusher.close()
        for segment in self.segments:
            segment.retire()

    def write_before_close(self, *, sync_follows: bool) -> None:
        """Write leader epochs, indexes and producers to the page cache.

        Raises:
            KafkaError: The directory fails.
        """
        if self.closed or self.log_dir.offline:
            return
        try:
            self._write_before_close(sync_follows=sync_follows)
        except OSError as error:
            raise self.log_dir.io_failed(error, f"closing {self.topic_partition}") from error

    def _write_before_close(self, *, sync_follows: bool) -> None:
        if self.epochs.dirty:
            self._write_epochs(sync=False)
        active = self.segments.active
        if active.size or active.base_offset:
            active.file.open()
            active.cut_torn_write(self.log_end_offset)
            if not sync_follows and len(self.segments) == 1 and active.is_fast_to_reindex():
                return
            active.close_indexes(sync=False)
            if sync_follows:
                active.create_files()  # an index without entries was not written
            write_producer_files(
                self.log_dir.files, self.directory, self.log_end_offset, self.producers
            )

    def sync_before_close(self) -> None:
        """Return when records and indexes are on the disk.

        No file is changed, so a thread may be abandoned in this call.

        Raises:
            KafkaError: The directory fails, or the log was closed in the meantime.
        """
        if self.closed or self.log_dir.offline:
            return
        self.flush()
        active = self.segments.active
        if active.size or active.base_offset:
            try:
                active.sync_indexes()
            except OSError as error:
                if self.closed:
                    raise self.log_dir.error("the log was closed") from error
                raise self.log_dir.io_failed(error, f"closing {self.topic_partition}") from error
        self.flusher.mark_synced()
