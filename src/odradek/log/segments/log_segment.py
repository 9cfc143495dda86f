"""One segment of a log: its ``.log`` file with consecutive whole batches, and its indexes.

After a crash the end of the last segment's ``.log`` may be torn (a part of a batch, or bytes that
never reached the disk). Recovery cuts it off after the last valid batch. Index entries are in the
file only for segments that were rolled, flushed or closed. Recovery rebuilds the others.
"""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from odradek.environment.files import (
    READ,
    READ_WRITE,
    UPDATE,
    Buffer,
    OpenFile,
    sync_new_file,
    unlink_if_exists,
    write_all,
)
from odradek.log.file_pool import NO_DESCRIPTOR_ERRNOS, FilePool, PooledFile
from odradek.log.residency import NotResident, read_resident, read_waiting
from odradek.log.segments.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from odradek.log.segments.offset_index import CorruptIndex, OffsetIndex, index_path
from odradek.log.segments.time_index import ENTRY as TIME_ENTRY
from odradek.log.segments.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from odradek.log.segments.time_index import TimeIndex
from odradek.log.segments.transaction_index import (
    TXN_INDEX_SUFFIX,
    AbortedTransaction,
    TransactionIndex,
)
from odradek.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    OFFSETS,
    BatchHeader,
    parse_header,
)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"
EXPIRED_SUFFIX = ".expired.deleted"
"""Suffix of the ``.log`` that retention has deleted. It is evidence of how long the log was. Kafka
removes it as it does any ``.deleted`` file.
"""
COPY_SUFFIX = ".tmp"
"""Suffix of an unfinished copy. The next start removes it."""
COPY_BYTES = 1_048_576
"""Number of bytes that `copy_below` copies at once."""

NEVER_MS = 2**63 - 1
PROBE_BYTES = 4096
"""Number of bytes per read in the search for an offset: about one index interval."""
LARGE_GAP_BYTES = 2 * PROBE_BYTES
"""Index entries this far apart have a large batch between them, or before the second one."""
ALLOCATE_FROM_BYTES = 1_048_576
"""A file smaller than this gets no space ahead, because most partitions are small."""
ALLOCATE_BYTES_MAX = 16 * 1_048_576
"""Maximum space ahead of one file. Otherwise it is as large as the file."""
LOADED_INDEX_BYTES_MAX = 64 * 1_048_576
"""Maximum memory of the indexes of inactive segments, over all logs."""

INDEX_OVERHEAD_BYTES = 1024
"""Size of the objects of a segment's indexes, in addition to the entries."""

PENDING_ENTRIES_MAX = 1024
"""Maximum number of index entries that are not yet in the arrays."""

_unpack_offsets = OFFSETS.unpack_from
_OFFSETS_BYTES = OFFSETS.size
_drain_lock = threading.Lock()
FAST_REINDEX_BYTES_MAX = 16_384
"""A segment up to this size is read and indexed faster than its files are created."""

_logger = logging.getLogger(__name__)


class IndexCache:
    """The inactive segments whose indexes are loaded. The least recently used are dropped."""

    def __init__(self, bytes_max: int = LOADED_INDEX_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._loaded: OrderedDict[LogSegment, int] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._loaded)

    def touch(self, segment: LogSegment, size_bytes: int) -> None:
        """Note that the indexes of `segment` were used. Drop others if too many are in memory."""
        with self._lock:
            self._bytes += size_bytes - self._loaded.pop(segment, 0)
            self._loaded[segment] = size_bytes
            while self._bytes > self.bytes_max and len(self._loaded) > 1:
                victim, freed_bytes = self._loaded.popitem(last=False)
                self._bytes -= freed_bytes
                victim.drop_indexes()

    def forget(self, segment: LogSegment) -> None:
        with self._lock:
            self._bytes -= self._loaded.pop(segment, 0)


class IndexBuilder:
    """The indexes of a segment, built from the batches in its ``.log`` as appends build them."""

    __slots__ = (
        "_base_offset",
        "_interval_bytes",
        "bytes_since_entry",
        "index",
        "max_timestamp",
        "max_timestamp_offset",
        "time_index",
    )

    def __init__(self, segment: LogSegment) -> None:
        self._base_offset = segment.base_offset
        self._interval_bytes = segment.index_interval_bytes
        self.index = OffsetIndex(segment.path(INDEX_SUFFIX))
        self.time_index = TimeIndex(segment.path(TIME_INDEX_SUFFIX))
        self.bytes_since_entry = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = segment.base_offset

    def add(self, header: BatchHeader, position: int) -> None:
        """Add a batch that is in the file, as `LogSegment.append` does."""
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset
        if self.bytes_since_entry > self._interval_bytes:
            self.index.append(header.last_offset - self._base_offset, position)
            self.time_index.maybe_append(
                self.max_timestamp, self.max_timestamp_offset - self._base_offset
            )
            self.bytes_since_entry = 0
        self.bytes_since_entry += header.size_bytes


class LogSegment:
    """One segment. The log that owns it appends to it, and any thread may read it.

    Attributes:
        size: Number of bytes of whole batches in the file.
        max_timestamp: The largest batch timestamp, known after `load_timestamps` was called.
            Appends keep it up to date.
        max_timestamp_offset: The last offset of the batch with that timestamp.
        txn_index: None as long as no transaction was aborted in the segment.
        roll_after_timestamp: The next append with a later record timestamp goes to a new segment.
        roll_after_ms: The next append at a later time of the clock goes to a new segment.
    """

    __slots__ = (
        "_allocate_at",
        "_allocated",
        "_begun",
        "_cache",
        "_held",
        "_load_lock",
        "_modified_ms",
        "_pending",
        "_pool",
        "_pwrite",
        "_timestamps_known",
        "active",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "deleted",
        "directory",
        "file",
        "first_timestamp",
        "index",
        "index_interval_bytes",
        "index_room",
        "max_timestamp",
        "max_timestamp_offset",
        "roll_after_ms",
        "roll_after_timestamp",
        "roll_jitter_ms",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        pool: FilePool,
        cache: IndexCache,
        *,
        size: int,
        created_ms: int,
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._pwrite = pool.files.pwrite
        self.directory = directory
        self.base_offset = base_offset
        flags = UPDATE if size else READ_WRITE  # a file with batches is never created again
        self.file = PooledFile(pool, index_path(directory, base_offset, LOG_SUFFIX), flags)
        self.size = size
        self._allocated = False
        self._begun = False
        self._allocate_at = max(ALLOCATE_FROM_BYTES, size)
        self.created_ms = created_ms
        self.active = False
        self.deleted = False
        self.index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        self.txn_index: TransactionIndex | None = None
        self.index_interval_bytes = 4096
        self.bytes_since_index_entry = 0
        self.index_room = 0
        self._pending: list[int] = []
        self._held = False
        self._load_lock = threading.Lock()
        self._modified_ms = -1
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._timestamps_known = size == 0
        self.roll_jitter_ms = 0
        self.roll_after_timestamp = NEVER_MS
        self.roll_after_ms = NEVER_MS

    def path(self, suffix: str) -> str:
        return index_path(self.directory, self.base_offset, suffix)

    # -- appending ---------------------------------------------------------------------------------

    def append(self, batch: Buffer, size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one whole batch of `size` bytes at the end with one system call.

        Raises:
            OSError: The segment's state is unchanged, but a part of the batch may be in the file
                after `size`. The caller cuts it off with `cut_torn_write`.
        """
        file, position = self.file, self.size
        handle = file.handle or file.open()
        file.used = True
        if position > self._allocate_at:
            self._allocate_ahead(handle, position)
        written = self._pwrite(handle.fd, batch, position)
        if written != size:
            write_all(self._pool.files, handle.fd, memoryview(batch)[written:], position + written)
        self.size = position + size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self._pending += (last_offset, position, self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index_entry = 0
            self.index_room -= 1
        self.bytes_since_index_entry += size

    def append_batches(self, batches: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Write several whole batches with one system call. The indexes are as after `append`.

        Raises:
            OSError: As for `append`.
        """
        handle, position = self.file.open(), self.size
        if position > self._allocate_at:
            self._allocate_ahead(handle, position)
        write_all(self._pool.files, handle.fd, batches, position)
        max_timestamp, at_offset = self.max_timestamp, self.max_timestamp_offset
        since_entry, interval = self.bytes_since_index_entry, self.index_interval_bytes
        for header in headers:
            last_offset = header.base_offset + header.last_offset_delta
            if header.max_timestamp > max_timestamp:
                max_timestamp, at_offset = header.max_timestamp, last_offset
            if since_entry > interval:
                self._pending += (last_offset, position, max_timestamp, at_offset)
                since_entry = 0
                self.index_room -= 1
            size = header.batch_length + LOG_OVERHEAD
            since_entry += size
            position += size
        self.max_timestamp, self.max_timestamp_offset = max_timestamp, at_offset
        self.bytes_since_index_entry = since_entry
        self.size = position

    def _drain(self) -> None:
        """Move the entries that `append` added to `_pending` to the indexes. May run on any thread.

        The hot path adds an entry without a call: it extends one list by one tuple. That is atomic
        with respect to the removal of the first entries here.
        """
        with _drain_lock:
            index, time_index, pending = self.index, self.time_index, self._pending
            assert index is not None and time_index is not None
            entries, base = pending[: len(pending) // 4 * 4], self.base_offset
            index.extend([each - base for each in entries[::4]], entries[1::4])
            time_index.extend(entries[2::4], [each - base for each in entries[3::4]])
            del pending[: len(entries)]

    def _allocate_ahead(self, handle: OpenFile, position: int) -> None:
        """Reserve space for the next batches.

        A failure is ignored. The next attempt follows when the file has grown by the same length.
        """
        length = min(position, ALLOCATE_BYTES_MAX)
        self._allocate_at = position + length
        try:
            reserved = self._pool.files.allocate(handle.fd, position, length)
        except OSError as error:
            _logger.debug("no space ahead for %s: %s", self.file.path, error)
            return
        self._allocated = self._allocated or reserved

    def _release_reserved_space(self) -> None:
        """Release the space after the end of the file. A failure only wastes that space."""
        if not self._allocated:
            return
        try:
            self._pool.files.ftruncate(self.file.open().fd, self.size)
        except OSError as error:
            _logger.warning(
                "the space behind the end of %s is not released: %s. The file occupies more of the "
                "disk than it needs",
                self.file.path,
                error,
            )
        self._allocated = False

    def cut_torn_write(self, end_offset: int) -> None:
        """Cut off the remains of a failed append after the last whole batch.

        These are its own bytes, and the index entry of an abort marker. The last whole batch ends
        before `end_offset`. A file that is not open needs no cut, because `append` opens it before
        it writes. Without a free descriptor the index entry stays, and the next entry overwrites
        it.
        """
        handle = self.file.handle
        if handle is not None:
            self._pool.files.ftruncate(handle.fd, self.size)
        if self.txn_index is None:
            return
        try:
            self.txn_index.truncate(end_offset)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR_ERRNOS:
                raise

    def append_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction to the index."""
        if self.txn_index is None:
            path = self.path(TXN_INDEX_SUFFIX)
            self.txn_index = TransactionIndex(self._pool.files, path)
        self.txn_index.append(aborted)

    def find_txn_index(self) -> None:
        """Use the existing ``.txnindex`` when a log is opened."""
        path = self.path(TXN_INDEX_SUFFIX)
        self.txn_index = TransactionIndex(self._pool.files, path, self._pool.files.size(path))

    def reset_txn_index(self) -> None:
        """Remove the index. Recovery adds the entries again."""
        if self.txn_index is not None:
            self._pool.files.unlink(self.txn_index.path)
            self.txn_index = None

    def rebuild_txn_index(self) -> None:
        """Forget the entries of the index, which is damaged. The file stays until the new one."""
        if self.txn_index is not None:
            path = self.txn_index.path
            self.txn_index = TransactionIndex(self._pool.files, path, is_rebuilt=True)

    def begin(self, first_timestamp: int) -> None:
        """Record the largest timestamp of the first batch, which is or will be appended."""
        self.first_timestamp = first_timestamp
        self._begun = True

    def set_index_interval(self, index_interval_bytes: int) -> None:
        """Set the number of bytes of log between two index entries."""
        self.index_interval_bytes = index_interval_bytes

    def set_index_limit(self, segment_index_bytes: int) -> None:
        """Set `index_room`, the number of entries until the next call; 0 when the index is full."""
        index, time_index = self.indexes()
        offset_room = segment_index_bytes // OFFSET_ENTRY_BYTES - len(index)
        time_room = segment_index_bytes // TIME_ENTRY_BYTES - 1 - len(time_index)
        self.index_room = min(offset_room, time_room, PENDING_ENTRIES_MAX)

    def set_roll_times(self, segment_ms: int, segment_jitter_ms: int) -> None:
        """Set the roll by time: from the first batch's timestamp if it has one."""
        limit_ms = segment_ms - segment_jitter_ms
        self.roll_after_timestamp = self.roll_after_ms = NEVER_MS
        if self.size == 0 and not self._begun:
            return
        if self.first_timestamp >= 0:
            self.roll_after_timestamp = self.first_timestamp + limit_ms
        else:
            self.roll_after_ms = self.created_ms + limit_ms

    # -- becoming active and inactive --------------------------------------------------------------

    def make_active(self) -> None:
        """Load the data that appends need. The indexes stay in memory until `make_inactive`."""
        self.active = True
        self.indexes()
        self._cache.forget(self)
        self.load_timestamps()
        self.load_first_timestamp()
        if self.txn_index is not None:
            self.txn_index.load()

    def make_inactive(self) -> None:
        """Allow the indexes to be dropped from memory. Called when they are closed."""
        self.active = False
        if self.max_timestamp < 0:
            with suppress(OSError):  # before the release, which changes it
                self._modified_ms = self._pool.files.modified_ms(self.file.path)
        self._release_reserved_space()
        self._cache.touch(self, _index_bytes(*self.indexes()))

    def close_indexes(self, *, sync: bool) -> None:
        """Write both indexes. The time index ends with the largest timestamp."""
        index, time_index = self.indexes()
        self.load_timestamps()
        time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        index.persist(self._pool.files, sync=sync)
        time_index.persist(self._pool.files, sync=sync)
        if sync and self.txn_index is not None:
            self.txn_index.sync()

    def create_index_file(self) -> bool:
        """Write one of the indexes that has no file, so that `close_indexes` creates none.

        Returns:
            False if both have a file.
        """
        for index in self.indexes():
            if index.persisted < 0:
                index.persist(self._pool.files, sync=False)
                return True
        return False

    def is_fast_to_reindex(self) -> bool:
        """Return whether the next start reads the segment faster than its files are written.

        That is a small segment without index files. Some file systems need a millisecond to create
        a file.
        """
        if self.size > FAST_REINDEX_BYTES_MAX:
            return False
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            with suppress(FileNotFoundError):
                self._pool.files.size(self.path(suffix))
                return False
        return True

    def create_files(self) -> None:
        """Create the files, so that the base offset of an empty segment survives."""
        self.file.open()
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            OpenFile(self._pool.files, self._pool.files.open(self.path(suffix), READ_WRITE))

    def flush(self, *, indexes: bool) -> None:
        """Return when the ``.log``, and with `indexes` the written index entries, are on the disk.

        Do nothing if the owner deletes the segment in the meantime.
        """
        files = self._pool.files
        try:
            handle = self.file.open()  # keeps the file open even if the owner closes the segment
            files.fsync(handle.fd)
            if indexes:
                self.sync_indexes()
        except FileNotFoundError:
            if not self.deleted:
                raise

    def sync_indexes(self) -> None:
        """Return when the written index entries are on the disk."""
        files = self._pool.files
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            handle = OpenFile(files, files.open(self.path(suffix), UPDATE))
            files.fsync(handle.fd)
        if self.txn_index is not None:
            self.txn_index.sync()

    # -- indexes -----------------------------------------------------------------------------------

    def indexes(self, *, wait: bool = True) -> tuple[OffsetIndex, TimeIndex]:
        """Return both indexes. Load them, or rebuild them from the ``.log``, if not in memory.

        Raises:
            NotResident: Without `wait`, the indexes are not in memory.
        """
        index, time_index = self.index, self.time_index
        if index is None or time_index is None:
            if not wait:
                raise NotResident
            return self._load_indexes()
        if self._pending:
            self._drain()
        return index, time_index

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        with self._load_lock:  # threads that look up the same segment wait for one load
            index, time_index = self.index, self.time_index
            if index is None or time_index is None:
                index, time_index = self._read_indexes()
                self.index, self.time_index = index, time_index
        if not self.active:
            self._cache.touch(self, _index_bytes(index, time_index))
        return index, time_index

    def _read_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        index = OffsetIndex(self.path(INDEX_SUFFIX))
        time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX))
        if not self.size:
            return index, time_index
        try:
            index.load(self._pool.files, self.size)
            time_index.load(self._pool.files)
        except (FileNotFoundError, CorruptIndex) as error:
            soon = isinstance(error, FileNotFoundError) and self.size <= FAST_REINDEX_BYTES_MAX
            level = logging.DEBUG if soon else logging.WARNING
            _logger.log(level, "rebuilding the indexes of %s: %s", self.file.path, error)
            return self._rebuild_indexes()
        return index, time_index

    def hold(self) -> None:
        """Keep the file open and the indexes in memory as long as the segment is referenced.

        Called before other files get the segment's names. May run on any thread, and waits for the
        disk.
        """
        self._held = True
        self.file.keep()
        self.indexes()
        if self.txn_index is not None:
            self.txn_index.load()

    def release(self) -> None:
        """Undo `hold`: the names still belong to this segment."""
        self._held = False
        self.file.undo_keep()

    def drop_indexes(self) -> None:
        """Free the memory of an inactive segment's indexes, unless the segment is held."""
        if self._held:
            return
        self.index = self.time_index = None
        if self.txn_index is not None:
            self.txn_index.drop()

    def index_builder(self) -> IndexBuilder:
        """Return empty indexes, to be filled from the ``.log``; see `recover_to`."""
        return IndexBuilder(self)

    def recover_to(self, size: int, built: IndexBuilder) -> None:
        """Cut the file after `size` valid bytes, and write the indexes that were built from them.

        The file is cut even without a torn end, because a killed broker may have reserved space
        there. The index of aborted transactions is empty afterwards. It needs the producers, which
        are loaded later.
        """
        self.reset_txn_index()
        self._pool.files.ftruncate(self.file.open().fd, size)
        self.size = size
        self._pending.clear()
        self.index, self.time_index = built.index, built.time_index
        self.bytes_since_index_entry = built.bytes_since_entry
        self._take_timestamps(built)
        self.close_indexes(sync=False)
        self.make_inactive()

    def _take_timestamps(self, built: IndexBuilder) -> None:
        self.max_timestamp = built.max_timestamp
        self.max_timestamp_offset = built.max_timestamp_offset
        self._timestamps_known = True

    def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Read the ``.log`` in pieces of some KiB. Other threads can run after each piece."""
        built = self.index_builder()
        for position, header in self.headers(0):
            built.add(header, position)
        if self.active:
            self.bytes_since_index_entry = built.bytes_since_entry
        if not self._timestamps_known:
            self._take_timestamps(built)
        return built.index, built.time_index

    def load_first_timestamp(self, *, wait: bool = True) -> None:
        """Load `first_timestamp`, the largest timestamp of the first batch.

        Raises:
            NotResident: Without `wait`, the disk would have to be read.
        """
        if self.size and self.first_timestamp < 0:
            if not wait:
                raise NotResident
            for _, header in islice(self.headers(0), 1):
                self.first_timestamp = header.max_timestamp

    def load_timestamps(self, *, wait: bool = True) -> None:
        """Load `max_timestamp` from the last entry of the time index.

        A close, a roll and recovery all end the time index with the largest timestamp.

        Raises:
            NotResident: Without `wait`, the disk would have to be read.
        """
        if self._timestamps_known:
            return
        if not wait:
            raise NotResident
        if self.index is None and self._read_last_time_entry():
            return
        _, time_index = self.indexes()
        self.max_timestamp = time_index.last_timestamp
        self.max_timestamp_offset = self.base_offset + time_index.last_offset
        self._timestamps_known = True

    def largest_timestamp(self, *, wait: bool = True) -> int:
        """Return the largest record timestamp, or the file's modification time if there is none.

        Raises:
            NotResident: Without `wait`, the disk would have to be read.
        """
        self.load_timestamps(wait=wait)
        if self.max_timestamp >= 0:
            return self.max_timestamp
        if self.active:
            return self._pool.files.modified_ms(self.file.path)
        if self._modified_ms < 0:
            if not wait:
                raise NotResident
            self._modified_ms = self._pool.files.modified_ms(self.file.path)
        return self._modified_ms

    def _read_last_time_entry(self) -> bool:
        """Read the largest timestamp of an inactive segment from the end of its time index."""
        files, path = self._pool.files, self.path(TIME_INDEX_SUFFIX)
        try:
            position = files.size(path) - TIME_ENTRY_BYTES
            if position < 0:
                return False
            handle = OpenFile(files, files.open(path, READ))
            entry = files.pread(handle.fd, TIME_ENTRY_BYTES, position)
        except FileNotFoundError:
            return False
        timestamp, relative_offset = TIME_ENTRY.unpack(entry)
        if position % TIME_ENTRY_BYTES or (timestamp, relative_offset) == (0, 0):
            return False
        self.max_timestamp = timestamp
        self.max_timestamp_offset = self.base_offset + relative_offset
        self._timestamps_known = True
        return True

    # -- reading -----------------------------------------------------------------------------------

    def locate(  # noqa: C901 - calls are what this path costs
        self, offset: int, *, wait: bool = True
    ) -> tuple[int, int] | None:
        """Return (position, size) of the first batch whose last offset is `offset` or greater.

        The result is None if there is no such batch.

        Raises:
            NotResident: Without `wait`, the disk would have to be read.
        """
        index = self.index
        if index is None or self._pending:
            index, _ = self.indexes(wait=wait)
        positions = index.positions  # before the offsets: see `OffsetIndex`
        offsets = index.offsets
        relative_offset = offset - self.base_offset
        at = bisect_right(offsets, relative_offset)
        position = positions[at - 1] if at else 0
        end, file = self.size, self.file
        handle = file.open() if wait else file.open_resident()  # held until the last read
        files, read = self._pool.files, read_waiting if wait else read_resident
        if at < len(positions) and not (at and offsets[at - 1] == relative_offset):
            following = positions[at]
            if position + LARGE_GAP_BYTES < following < end:
                # Each large batch has an entry, so the next entry most likely is the batch itself.
                chunk = read(files, handle.fd, _OFFSETS_BYTES, following, _OFFSETS_BYTES)
                if len(chunk) == _OFFSETS_BYTES:
                    base_offset, length, last_offset_delta = _unpack_offsets(chunk)
                    if base_offset <= offset <= base_offset + last_offset_delta and length > 0:
                        return following, length + LOG_OVERHEAD
        while position < end:
            chunk = read(files, handle.fd, PROBE_BYTES, position, _OFFSETS_BYTES)
            at, last = 0, len(chunk) - _OFFSETS_BYTES
            if last < 0:
                return None  # the file became shorter
            while at <= last:
                base_offset, length, last_offset_delta = _unpack_offsets(chunk, at)
                if base_offset + last_offset_delta >= offset:
                    return position + at, length + LOG_OVERHEAD
                if length <= 0:
                    return None
                at += length + LOG_OVERHEAD
            position += at
        return None

    def offset_bound(self, position: int, *, wait: bool = True) -> int | None:
        """Return an offset above all batches before `position`, close to them if indexed.

        The result is None if the index has no entry after `position`.

        Raises:
            NotResident: Without `wait`, the disk would have to be read.
        """
        index, _ = self.indexes(wait=wait)
        at = bisect_left(index.positions, position)
        offsets = index.offsets
        return self.base_offset + offsets[at] if at < len(offsets) else None

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of every whole batch from `position`, where a batch begins."""
        handle, pread, end = self.file.open(), self._pool.files.pread, self.size
        while position + HEADER_BYTES <= end:
            chunk = pread(handle.fd, PROBE_BYTES, position)
            at, last = 0, len(chunk) - HEADER_BYTES
            if last < 0:
                return
            while at <= last:
                header = parse_header(chunk, at)
                if header.size_bytes < HEADER_BYTES or position + at + header.size_bytes > end:
                    return
                yield position + at, header
                at += header.size_bytes
            position += at

    def read_batch(self, position: int, size: int) -> bytes:
        """Return one whole batch, or fewer bytes if the file became shorter."""
        handle = self.file.open()
        return self._pool.files.pread(handle.fd, size, position)

    def next_offset(self) -> int:
        """Return the offset after the last batch, or the base offset if there is no batch."""
        last = self.last_batch()
        return self.base_offset if last is None else last.last_offset + 1

    def last_batch(self) -> BatchHeader | None:
        """Return the header of the last batch, or None if there is no batch."""
        index, _ = self.indexes()
        last, positions = None, index.positions
        for _, header in self.headers(positions[-1] if positions else 0):
            last = header
        return last

    # -- cutting and removing ----------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Remove all batches from the first batch that ends at `offset` or above.

        The ``.log`` is cut last. After an error the batches are still found, and the repeated call
        cuts the indexes as well.

        Returns:
            The number of removed bytes.
        """
        found = self.locate(offset)
        if found is None:
            return 0
        index, time_index = self.indexes()
        index.truncate(offset - self.base_offset)
        time_index.truncate(offset - self.base_offset)
        max_timestamp = time_index.last_timestamp
        max_timestamp_offset = self.base_offset + time_index.last_offset
        # Larger timestamps may follow the last entry, which has the largest timestamp up to it.
        for position, header in self.headers(index.positions[-1] if len(index) else 0):
            if position >= found[0]:
                break
            if header.max_timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = header.max_timestamp, header.last_offset
        if self.txn_index is not None:
            self.txn_index.truncate(offset)
        self._pool.files.ftruncate(self.file.open().fd, found[0])
        cut, self.size = self.size - found[0], found[0]
        self.bytes_since_index_entry = 0
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        self._timestamps_known = True
        return cut

    def copy_below(self, offset: int) -> LogSegment | None:
        """Return a segment with the batches below `offset`, in a new file of the same name.

        The new file is synced. This segment keeps its file and its indexes for its readers, and
        cannot be appended to.

        Returns:
            The new segment, or None if there is no batch at or above the offset.
        """
        found = self.locate(offset)
        if found is None:
            return None
        files, temporary = self._pool.files, self.file.path + COPY_SUFFIX
        self.hold()
        source = self.file.open()
        target = OpenFile(files, files.open(temporary, READ_WRITE | os.O_TRUNC))
        position, end = 0, found[0]
        while position < end:
            piece = files.pread(source.fd, min(COPY_BYTES, end - position), position)
            write_all(files, target.fd, piece, position)
            position += len(piece)
        sync_new_file(files, target.fd)
        files.replace(temporary, self.file.path)
        self.retire()
        copy = LogSegment(
            self.directory,
            self.base_offset,
            self._pool,
            self._cache,
            size=end,
            created_ms=self.created_ms,
        )
        copy.set_index_interval(self.index_interval_bytes)
        built = copy.index_builder()
        for position, header in copy.headers(0):
            built.add(header, position)
        copy.recover_to(end, built)
        if self.txn_index is not None:
            copy.find_txn_index()
            assert copy.txn_index is not None
            copy.txn_index.truncate(offset)
        return copy

    def retire(self) -> None:
        """Close the file permanently: the segment is no longer part of an open log."""
        self.deleted = True
        self.file.retire()
        self._cache.forget(self)

    def mark_deleted(self, *, expired: bool = False) -> list[str]:
        """Rename the files to ``.deleted``. Return their paths, to be removed later.

        A call that is repeated after an error also returns the paths of the files that the first
        call has renamed.

        Raises:
            OSError: A file could not be renamed.
        """
        is_repeated = self.deleted
        self.retire()
        paths = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            is_expired = expired and suffix == LOG_SUFFIX
            deleted = path + (EXPIRED_SUFFIX if is_expired else DELETED_SUFFIX)
            try:
                self._pool.files.replace(path, deleted)
            except FileNotFoundError:
                if not is_repeated:
                    continue
            paths.append(deleted)
        return paths

    def remove_files(self) -> None:
        """Remove the files immediately, because they have no data."""
        self.retire()
        for suffix in SEGMENT_SUFFIXES:
            unlink_if_exists(self._pool.files, self.path(suffix))


def _index_bytes(index: OffsetIndex, time_index: TimeIndex) -> int:
    """Return the memory that loaded indexes take."""
    entries = len(index) * OFFSET_ENTRY_BYTES + len(time_index) * TIME_ENTRY_BYTES
    return INDEX_OVERHEAD_BYTES + entries


def last_expired_segment(names: Collection[str]) -> str | None:
    """Return the name of the last ``.log`` that retention has deleted, or None."""
    return max((name for name in names if name.endswith(EXPIRED_SUFFIX)), default=None)
