"""The sparse index from timestamps to offsets of one segment, and its file.

File ``<base>.timeindex``: entries of 12 bytes, big-endian: int64 timestamp in milliseconds, int32
offset relative to the segment's base. An entry (T, O) means that no batch up to offset O has a
larger timestamp than T, and that the batch that ends at O has the timestamp T. Timestamps are
strictly increasing. An entry is added with each entry of the offset index if the largest timestamp
has increased. One more is added when the segment is closed or rolled, so that the last entry of an
inactive segment has its largest timestamp.

Memory, file, and the state after a crash are as for the offset index (see `offset_index`).
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

from odradek.environment.files import Files, read_file
from odradek.log.segments.offset_index import CorruptIndex, append_entries
from odradek.records.batch import NO_TIMESTAMP

ENTRY = struct.Struct(">qi")
ENTRY_BYTES = ENTRY.size


class TimeIndex:
    """The entries of one segment. `persisted` is the number in the file; -1: rewrite the file."""

    __slots__ = ("offsets", "path", "persisted", "timestamps")

    def __init__(self, path: str) -> None:
        self.path = path
        self.timestamps = array("q")
        self.offsets = array("i")
        self.persisted = -1

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def last_timestamp(self) -> int:
        timestamps = self.timestamps
        return timestamps[-1] if timestamps else NO_TIMESTAMP

    @property
    def last_offset(self) -> int:
        """The relative offset of the last entry, or 0 without entries."""
        offsets = self.offsets
        return offsets[-1] if offsets else 0

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry unless the last entry has this timestamp or a larger one."""
        if timestamp > self.last_timestamp:
            self.offsets.append(relative_offset)  # first, because a lookup uses the timestamps
            self.timestamps.append(timestamp)

    def extend(self, timestamps: list[int], relative_offsets: list[int]) -> None:
        """Add each entry whose timestamp is larger than that of the last entry by then."""
        last, added, offsets = self.last_timestamp, [], []
        for timestamp, offset in zip(timestamps, relative_offsets, strict=True):
            if timestamp > last:
                added.append(timestamp)
                offsets.append(offset)
                last = timestamp
        self.offsets.fromlist(offsets)  # first, as in `maybe_append`
        self.timestamps.fromlist(added)

    def lookup(self, timestamp: int) -> int:
        """Return the relative offset at which to start the search: all records before are older."""
        offsets = self.offsets  # first, as `truncate` replaces the timestamps first
        at = bisect_right(self.timestamps, timestamp - 1)
        return offsets[at - 1] if at else 0

    def load(self, files: Files) -> None:
        """Read the file. Zeros at the end are not entries.

        Raises:
            FileNotFoundError: The file does not exist.
            CorruptIndex: The file is not a time index.
        """
        data = read_file(files, self.path)
        used = -len(data.rstrip(b"\0")) // ENTRY_BYTES * -ENTRY_BYTES
        whole = min(used, len(data) // ENTRY_BYTES * ENTRY_BYTES)
        entries = list(ENTRY.iter_unpack(memoryview(data)[:whole]))
        while entries and entries[-1] == (0, 0):
            entries.pop()
        self.timestamps = array("q", [timestamp for timestamp, _ in entries])
        self.offsets = array("i", [offset for _, offset in entries])
        self.persisted = len(entries) if len(entries) * ENTRY_BYTES == len(data) else -1
        if entries and (self.timestamps[0] > self.timestamps[-1] or self.offsets[-1] < 0):
            raise CorruptIndex(f"the entries of {self.path} do not increase")

    def persist(self, files: Files, *, sync: bool) -> None:
        """Append the entries that are not in the file yet."""
        count = len(self.timestamps)
        persisted = max(self.persisted, 0)
        if count == self.persisted and not sync:
            return
        data = b"".join(
            ENTRY.pack(timestamp, offset)
            for timestamp, offset in zip(
                self.timestamps[persisted:count], self.offsets[persisted:count], strict=True
            )
        )
        append_entries(files, self.path, data, persisted * ENTRY_BYTES, sync=sync)
        self.persisted = count

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries of batches that end at or above the offset."""
        keep = bisect_right(self.offsets, relative_offset - 1)
        self.timestamps = self.timestamps[:keep]
        self.offsets = self.offsets[:keep]
        self.persisted = -1
