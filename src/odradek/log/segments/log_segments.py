"""The segments of one log, in the order of their base offsets (Kafka's ``LogSegments``).

Only the owner of the log changes the list. Other threads take a copy (`from_offset`), which may
contain segments that the owner has deleted or replaced in the meantime.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from odradek.log.segments.log_segment import LogSegment


class LogSegments:
    """At least one segment. The last one, `active`, is appended to. `bases` are the base offsets.

    There is no active segment until `UnifiedLog` calls `activate_last`.
    """

    __slots__ = ("_segments", "active", "bases")

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        assert segments
        self._segments = list(segments)
        self.bases = [segment.base_offset for segment in segments]
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, at: int) -> LogSegment:
        return self._segments[at]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    # -- looking up --------------------------------------------------------------------------------

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that holds `offset`, or would hold it."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return a copy of the list from the segment that holds `offset`. From any thread."""
        segments = list(self._segments)
        at = bisect_right(segments, offset, key=_base_offset)
        return segments[max(at - 1, 0) :]

    def below(self, offset: int) -> list[LogSegment]:
        """Return the segments that begin before `offset`."""
        return [segment for segment in self._segments if segment.base_offset < offset]

    def locate_resident(self, offset: int) -> tuple[LogSegment, int, int] | None:
        """Return (segment, position, size) of the first batch that ends at `offset` or later.

        Raises:
            NotResident: The disk would have to be read.
        """
        at = bisect_right(self.bases, offset) - 1
        if at < 0:
            at = 0
        segment = self._segments[at]
        found = segment.locate(offset, wait=False)
        if found is not None:
            return segment, *found
        for segment in self._segments[at + 1 :]:
            found = segment.locate(offset, wait=False)
            if found is not None:
                return segment, *found
        return None

    def end_position_resident(self, segment: LogSegment, max_offset: int) -> int:
        """Return the position of the first batch of `segment` that ends at `max_offset` or later.

        The result is the end of the segment if there is no such batch.

        Raises:
            NotResident: The disk would have to be read.
        """
        at = bisect_right(self.bases, segment.base_offset)
        if at < len(self.bases) and max_offset >= self.bases[at]:
            return segment.size
        found = segment.locate(max_offset, wait=False)
        return segment.size if found is None else found[0]

    def aborted_transactions(
        self, first_offset: int, upper_offset: int, *, wait: bool = True
    ) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of aborted transactions that overlap [first, upper).

        Raises:
            NotResident: Without `wait`, the disk would have to be read.
        """
        found: list[tuple[int, int]] = []
        for segment in self.from_offset(first_offset):
            txn_index = segment.txn_index
            if txn_index is None:
                continue
            aborted, complete = txn_index.overlapping(first_offset, upper_offset, wait=wait)
            found += [(each.producer_id, each.first_offset) for each in aborted]
            if complete:
                break
        return found

    def have_aborted(self, first_offset: int) -> bool:
        """Return whether a segment from `first_offset` on has aborted transactions."""
        return any(segment.txn_index is not None for segment in self.from_offset(first_offset))

    def are_in_place(self, segments: Sequence[LogSegment]) -> bool:
        """Return whether these segments are in the list, one after the other."""
        at = self.index_of(segments[0].base_offset)
        found = self._segments[at : at + len(segments)]
        return len(found) == len(segments) and all(map(_is, found, segments))

    # -- changes, by the owner of the log ----------------------------------------------------------

    def activate_last(self) -> None:
        """Append to the last segment from now on."""
        self.active = self._segments[-1]
        self.active.make_active()

    def roll(self, segment: LogSegment) -> None:
        """Append to `segment` from now on."""
        self.active.make_inactive()
        self._segments.append(segment)
        self.bases.append(segment.base_offset)
        self.activate_last()

    def remove_first(self, count: int) -> list[LogSegment]:
        """Remove and return the first segments. At least one segment stays."""
        assert count < len(self._segments)
        taken = self._segments[:count]
        del self._segments[:count], self.bases[:count]
        return taken

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Replace the old segments by a compacted one."""
        at = self._segments.index(old[0])
        self._segments[at : at + len(old)] = [new]
        self.bases[at : at + len(old)] = [new.base_offset]

    def remove_after(self, offset: int) -> list[LogSegment]:
        """Remove and return the segments after the segment with the offset, which becomes active.

        At least one segment must begin at or below the offset: see `restart`.
        """
        keep = bisect_right(self.bases, offset)
        assert keep
        removed = self._segments[keep:]
        del self._segments[keep:], self.bases[keep:]
        self.activate_last()
        return removed

    def replace_active(self, segment: LogSegment) -> None:
        """Replace the active segment by one with the same base offset and fewer batches."""
        assert segment.base_offset == self.bases[-1]
        self._segments[-1] = segment
        self.activate_last()

    def restart(self, segment: LogSegment) -> list[LogSegment]:
        """Replace all segments by one empty segment, and return the removed ones."""
        removed = list(self._segments)
        self._segments[:], self.bases[:] = [segment], [segment.base_offset]
        self.activate_last()
        return removed


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset


def _is(one: LogSegment, other: LogSegment) -> bool:
    return one is other
