"""The sizes of the batches of a leader that are not committed yet.

A consumer waits for a number of bytes, and records become readable when the high watermark passes
them. The high watermark is an offset, so the leader keeps the size of each batch until then.
"""

from __future__ import annotations

from collections import deque

BATCHES_MAX = 10_000
"""Maximum number of sizes. Later batches count with the last one. The high watermark may stand
still while acks=1 appends go on, because the ISR is below its minimum.
"""


class UncommittedSizes:
    """The batches between high watermark and log end, from the first append of the epoch on."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        # (first offset, end offset, size in bytes)
        self._batches: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, first_offset: int, end_offset: int, size_bytes: int) -> None:
        """Add a batch that was appended at the log end."""
        batches = self._batches
        if len(batches) >= BATCHES_MAX:
            first_offset, _, before = batches.pop()
            size_bytes += before
        batches.append((first_offset, end_offset, size_bytes))

    def take(self, committed_offset: int, high_watermark: int) -> int | None:
        """Remove the batches below the new high watermark, and return their size.

        Args:
            committed_offset: The high watermark before.
            high_watermark: The new one.

        Returns:
            None if records from `committed_offset` on are not known, because an earlier leader
            appended them.
        """
        batches = self._batches
        is_known = bool(batches) and batches[0][0] <= committed_offset
        size_bytes = 0
        while batches and batches[0][1] <= high_watermark:
            size_bytes += batches.popleft()[2]
        return size_bytes if is_known else None
