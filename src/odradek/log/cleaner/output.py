"""One segment that a cleaning writes. Until the swap its files end in ``.cleaned``.

The files are ``.log.cleaned``, ``.index.cleaned``, ``.timeindex.cleaned`` and, if aborted
transactions remain, ``.txnindex.cleaned``. `finish` syncs them all. A crash before the swap leaves
them behind, and the next start removes them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from odradek.environment.files import (
    READ_WRITE,
    Buffer,
    Files,
    FsyncLacksSpace,
    OpenFile,
    write_all,
)
from odradek.log.segments.log_cut import CLEANED_SUFFIX
from odradek.log.segments.log_segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from odradek.log.segments.offset_index import ENTRY_BYTES, OffsetIndex, index_path
from odradek.log.segments.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from odradek.log.segments.time_index import TimeIndex
from odradek.log.segments.transaction_index import (
    TXN_INDEX_SUFFIX,
    AbortedTransaction,
    TransactionIndex,
)
from odradek.records.batch import NO_TIMESTAMP, parse_header

WRITE_BYTES = 1 << 18


class CleanedSegment:
    """A segment to which batches are appended. It is written in larger pieces."""

    def __init__(
        self, files: Files, directory: str, base_offset: int, interval_bytes: int, index_bytes: int
    ) -> None:
        self._files = files
        self._directory = directory
        self._interval_bytes = interval_bytes
        self._entries_max = index_bytes // max(ENTRY_BYTES, TIME_ENTRY_BYTES) - 1
        self.base_offset = base_offset
        self.size = 0
        self._pieces: list[Buffer] = []
        self._waiting = 0
        self._since_entry = 0
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, base_offset
        self._index = OffsetIndex(self._path(INDEX_SUFFIX))
        self._time_index = TimeIndex(self._path(TIME_INDEX_SUFFIX))
        self._log = OpenFile(files, files.open(self._path(LOG_SUFFIX), READ_WRITE | os.O_TRUNC))

    def _path(self, suffix: str) -> str:
        return index_path(self._directory, self.base_offset, suffix + CLEANED_SUFFIX)

    def append(self, batch: Buffer) -> None:
        """Add one batch and its index entries, as `LogSegment.append` does."""
        header = parse_header(batch)
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._max_timestamp_offset = header.last_offset
        if self._since_entry > self._interval_bytes and len(self._index) < self._entries_max:
            self._index.append(header.last_offset - self.base_offset, self.size)
            self._add_time()
            self._since_entry = 0
        self._since_entry += len(batch)
        self._pieces.append(bytes(batch))
        self.size += len(batch)
        self._waiting += len(batch)
        if self._waiting >= WRITE_BYTES:
            self._write()

    def _add_time(self) -> None:
        offset = self._max_timestamp_offset - self.base_offset
        self._time_index.maybe_append(self._max_timestamp, offset)

    def _write(self) -> None:
        write_all(self._files, self._log.fd, b"".join(self._pieces), self.size - self._waiting)
        self._pieces.clear()
        self._waiting = 0

    def finish(self, aborted: Iterable[AbortedTransaction], newest: str) -> None:
        """Sync all files. The ``.log`` gets the modification time of the file `newest`.

        Raises:
            OSError: ENOSPC as well. The files can be written again, because no log has them yet.
        """
        self._write()
        try:
            self._files.fsync(self._log.fd)
            self._add_time()
            self._index.persist(self._files, sync=True)
            self._time_index.persist(self._files, sync=True)
            self._write_transactions(aborted)
        except FsyncLacksSpace as error:
            raise OSError(errno.ENOSPC, str(error)) from error
        self._files.copy_modified(newest, self._path(LOG_SUFFIX))

    def _write_transactions(self, aborted: Iterable[AbortedTransaction]) -> None:
        index = TransactionIndex(self._files, self._path(TXN_INDEX_SUFFIX))
        for entry in aborted:
            index.append(entry)
        if len(index):
            index.sync()
