"""The sparse index from offsets to file positions of one segment, and its file.

File ``<base>.index``: entries of 8 bytes, big-endian: int32 offset relative to the segment's base,
int32 position in the ``.log``. An entry has the *last* offset of a batch and the position where
that batch *begins*. It is added for the first batch after every `index.interval.bytes` of log
(``LogSegment.append``). Offsets and positions are strictly increasing.

In memory the entries are two arrays, so that a lookup is one bisection in C. Another thread may
look up at the same time, and reads `positions` before `offsets`. A truncation replaces both arrays,
in the other order. The reader then has at least as many positions as offsets. They are appended to
the file when the segment is rolled, flushed or closed. After a crash the file may lack entries of a
segment that recovery reads again anyway. An invalid file is rebuilt from the ``.log``.
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
    """The file is not an index of this segment."""


class OffsetIndex:
    """The entries of one segment. `persisted` is the number in the file; -1: rewrite the file."""

    __slots__ = ("offsets", "path", "persisted", "positions")

    def __init__(self, path: str) -> None:
        self.path = path
        self.offsets = array("i")
        self.positions = array("i")
        self.persisted = -1

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry after all others.

        The position is added first, because another thread may look up by offset at the same time.
        """
        self.positions.append(position)
        self.offsets.append(relative_offset)

    def extend(self, relative_offsets: list[int], positions: list[int]) -> None:
        """Add entries after all others, in the order of `append`."""
        self.positions.fromlist(positions)
        self.offsets.fromlist(relative_offsets)

    def lookup(self, relative_offset: int) -> int:
        """Return the position of the last entry at or below an offset, or 0.

        The search for the offset starts there.
        """
        positions = self.positions
        at = bisect_right(self.offsets, relative_offset)
        return positions[at - 1] if at else 0

    def load(self, files: Files, log_bytes: int) -> None:
        """Read the file.

        Kafka preallocates the file of an active segment, so zeros at the end are not entries.

        Raises:
            FileNotFoundError: The file does not exist.
            CorruptIndex: The file does not match the ``.log``.
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
            raise CorruptIndex(f"the entries of {self.path} do not increase")

    def persist(self, files: Files, *, sync: bool) -> None:
        """Append the entries that are not in the file yet.

        A file that `load` rejected is rewritten.
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
        """Drop the entries of batches that end at or above the offset.

        `persist` updates the file.
        """
        keep = bisect_right(self.offsets, relative_offset - 1)
        self.offsets = self.offsets[:keep]
        self.positions = self.positions[:keep]
        self.persisted = -1


def append_entries(files: Files, path: str, data: bytes, position: int, *, sync: bool) -> None:
    """Write index entries at `position` and cut off the bytes after them."""
    fd = files.open(path, READ_WRITE)
    try:
        write_all(files, fd, data, position)
        files.ftruncate(fd, position + len(data))
        if sync:
            files.fsync(fd)
    finally:
        files.close(fd)


def index_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of a segment's file: the base offset in 20 digits, and the suffix."""
    return os.path.join(directory, f"{base_offset:020d}{suffix}")  # noqa: PTH118
