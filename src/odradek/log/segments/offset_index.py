"""The sparse index from offsets to file positions of one segment, and its file.

File ``<base>.index``: entries of 8 bytes, big-endian: int32 offset relative to the segment's base,
int32 position in the ``.log``. An entry names the *last* offset of a batch and the position where
that batch *begins*; it is made for the first batch after every `index.interval.bytes` of log
(``LogSegment.append``). Offsets and positions grow strictly.

Entries live in memory as two arrays (so that a lookup is one bisection in C) and are appended to
the file when the segment is rolled, flushed or closed. After a crash the file may lack entries of
a segment that recovery reads again anyway; a file that makes no sense is rebuilt from the
``.log``.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_right

from odradek.environment.files import READ_WRITE, Files, read_file, write_all

ENTRY_BYTES = 8
_SWAP = sys.byteorder == "little"


class CorruptIndex(ValueError):
    """The file is no index of this segment."""


class OffsetIndex:
    """The entries of one segment; `persisted` of them are in the file, -1: it is written anew."""

    __slots__ = ("offsets", "path", "persisted", "positions")

    def __init__(self, path: str) -> None:
        self.path = path
        self.offsets = array("i")
        self.positions = array("i")
        self.persisted = -1

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, relative_offset: int, position: int) -> None:
        """Adds an entry behind all others.

        The position first: another thread may look up meanwhile, by offset.
        """
        self.positions.append(position)
        self.offsets.append(relative_offset)

    def lookup(self, relative_offset: int) -> int:
        """The position from which to search for an offset: of the last entry at or below it, or
        0.
        """
        at = bisect_right(self.offsets, relative_offset)
        return self.positions[at - 1] if at else 0

    def load(self, files: Files, log_bytes: int) -> None:
        """Reads the file; FileNotFoundError, or CorruptIndex when it does not fit the ``.log``.

        Kafka preallocates the file of an active segment: zeros at the end are not entries.
        """
        data = read_file(files, self.path)
        used = -len(data.rstrip(b"\0")) // ENTRY_BYTES * -ENTRY_BYTES
        entries = array("i", data[: min(used, len(data) // ENTRY_BYTES * ENTRY_BYTES)])
        if _SWAP:
            entries.byteswap()
        offsets, positions = entries[0::2], entries[1::2]
        count = len(positions)
        while count and positions[count - 1] == 0:
            count -= 1
        self.offsets, self.positions = offsets[:count], positions[:count]
        self.persisted = count if count * ENTRY_BYTES == len(data) else -1
        if count and (
            self.positions[-1] >= log_bytes or min(self.offsets[0], self.offsets[-1]) < 0
        ):
            raise CorruptIndex(f"{self.path} points past {log_bytes} bytes of log")
        if count and (self.offsets[0] > self.offsets[-1] or self.positions[0] > self.positions[-1]):
            raise CorruptIndex(f"{self.path} does not grow")

    def persist(self, files: Files, *, sync: bool) -> None:
        """Appends what is not in the file yet (all of it after `load` found something else
        there).
        """
        count = len(self.positions)
        persisted = max(self.persisted, 0)
        if count == self.persisted and not sync:
            return
        entries = array("i", bytes(ENTRY_BYTES * (count - persisted)))
        entries[0::2] = self.offsets[persisted:count]
        entries[1::2] = self.positions[persisted:count]
        if _SWAP:
            entries.byteswap()
        append_entries(files, self.path, entries.tobytes(), persisted * ENTRY_BYTES, sync=sync)
        self.persisted = count

    def truncate(self, relative_offset: int) -> None:
        """Drops the entries of batches that end at or after the offset; the file follows at
        `persist`.
        """
        keep = bisect_right(self.offsets, relative_offset - 1)
        del self.offsets[keep:], self.positions[keep:]
        self.persisted = -1


def append_entries(files: Files, path: str, data: bytes, position: int, *, sync: bool) -> None:
    """Writes index entries at `position` and cuts what is behind them."""
    fd = files.open(path, READ_WRITE)
    try:
        write_all(files, fd, data, position)
        files.ftruncate(fd, position + len(data))
        if sync:
            files.fsync(fd)
    finally:
        files.close(fd)


def index_path(directory: str, base_offset: int, suffix: str) -> str:
    """The path of a segment's file: the base offset in 20 digits, and the suffix."""
    return os.path.join(directory, f"{base_offset:020d}{suffix}")  # noqa: PTH118
