"""The aborted transactions of one segment, which readers of committed records must skip.

File ``<base>.txnindex``: entries of 34 bytes, big-endian (``AbortedTxn``)::

    int16 version 0
    int64 producer id
    int64 first offset of the transaction
    int64 last offset, which is the offset of its abort marker
    int64 last stable offset after the marker

An entry is in the index of the segment that has the marker, in the order of the markers. An index
without entries has no file.

An entry is written just before its marker. After a crash the file may lack entries, or have the
entry of a marker that was never written. Recovery rebuilds it with the other indexes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from odradek.environment.files import (
    READ_WRITE,
    UPDATE,
    Files,
    OpenFile,
    read_file,
    write_all,
    write_file,
)
from odradek.log.residency import NotResident
from odradek.log.segments.offset_index import CorruptIndex

TXN_INDEX_SUFFIX = ".txnindex"
ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">18xq")
ENTRY_BYTES = ENTRY.size
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One entry. `last_offset` is the offset of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The index of one segment. `size` bytes of whole entries are in the file.

    The entries are kept in memory after their first use.
    """

    __slots__ = ("_data", "_files", "_is_rebuilt", "path", "size")

    def __init__(self, files: Files, path: str, size: int = 0, *, is_rebuilt: bool = False) -> None:
        """Use an existing file of `size` bytes, or none.

        With `is_rebuilt` the entries are in memory only until `write_rebuilt`, because the file is
        damaged.
        """
        self._files = files
        self.path = path
        self.size = size
        self._is_rebuilt = is_rebuilt
        self._data: bytearray | None = None if size else bytearray()

    def __len__(self) -> int:
        return self.size // ENTRY_BYTES

    def append(self, entry: AbortedTransaction) -> None:
        """Append one entry.

        Raises:
            OSError: The index is unchanged. There may be torn bytes after it, which `truncate`
                cuts off.
        """
        data = self._loaded()
        packed = ENTRY.pack(_VERSION, *entry)
        if not self._is_rebuilt:
            flags = READ_WRITE if self.size else READ_WRITE | os.O_TRUNC
            handle = OpenFile(self._files, self._files.open(self.path, flags))
            write_all(self._files, handle.fd, packed, self.size)
        data += packed
        self.size += ENTRY_BYTES

    def write_rebuilt(self) -> None:
        """Replace the damaged file, and return when the new one is on the disk.

        A power cut leaves the damaged file or the new one. A missing file would be an index without
        entries, and readers of committed records would see aborted ones.
        """
        if self._is_rebuilt:
            write_file(self._files, self.path, bytes(self._loaded()), sync=True)
            self._is_rebuilt = False

    def load(self) -> None:
        """Read the entries into memory unless they are loaded."""
        self._loaded()

    def overlapping(
        self, first_offset: int, upper_offset: int, *, wait: bool = True
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions that overlap [first, upper), and whether the search is complete.

        It is complete if later segments cannot have further overlapping transactions: all
        transactions below the last stable offset of an entry have ended.

        Raises:
            NotResident: Without `wait`, the entries are not in memory.
        """
        found = []
        if not wait and self._data is None:
            raise NotResident
        for entry in self.entries(first_offset):
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def entries(self, first_offset: int = 0) -> Iterator[AbortedTransaction]:
        """Yield the entries whose marker is at or above `first_offset`, in order."""
        data = self._loaded()
        for number in range(self._first_at(data, first_offset), len(data) // ENTRY_BYTES):
            yield AbortedTransaction._make(ENTRY.unpack_from(data, number * ENTRY_BYTES)[1:])

    def _first_at(self, data: bytearray, offset: int) -> int:
        """Return the number of the first entry whose last offset is `offset` or larger."""
        low, high = 0, len(data) // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if _LAST_OFFSET.unpack_from(data, middle * ENTRY_BYTES)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate(self, offset: int) -> None:
        """Remove the entries whose marker is at or above `offset`.

        The remains of a failed append are removed as well.
        """
        data = self._loaded()
        self.size = self._first_at(data, offset) * ENTRY_BYTES
        self._data = data[: self.size]  # another thread may read the old entries
        try:
            handle = OpenFile(self._files, self._files.open(self.path, UPDATE))
        except FileNotFoundError:
            return
        self._files.ftruncate(handle.fd, self.size)

    def check(self, base_offset: int) -> None:
        """Check that the file is an index of the segment with that base offset.

        Raises:
            CorruptIndex: It is not.
        """
        if self._files.size(self.path) % ENTRY_BYTES:
            raise CorruptIndex(f"{self.path} ends in the middle of an entry")
        data, last = self._loaded(), base_offset - 1
        for version, _, first, marker, _ in ENTRY.iter_unpack(data):
            if version != _VERSION or marker <= last or first > marker:
                raise CorruptIndex(f"{self.path} has an invalid entry")
            last = marker

    def sync(self) -> None:
        """Return when the entries are on the disk."""
        try:
            handle = OpenFile(self._files, self._files.open(self.path, UPDATE))
        except FileNotFoundError:
            return
        self._files.fsync(handle.fd)

    def drop(self) -> None:
        """Free the memory. The file is read again when it is needed."""
        if self.size and not self._is_rebuilt:
            self._data = None

    def _loaded(self) -> bytearray:
        data = self._data
        if data is None:
            data = self._data = bytearray(read_file(self._files, self.path)[: self.size])
        return data
