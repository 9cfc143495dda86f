"""The segments of one log, in the order of their base offsets (Kafka's ``LogSegments``).

Only the owner of the log changes the list, or the thread that truncates the log. Other threads see
the list before or after a change, because each change replaces the segments and their base offsets
together. The list that they see may contain segments that were deleted or replaced in the meantime.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from odradek.log.segments.log_segment import LogSegment


class LogSegments:
    """At least one segment. The last one, `active`, is appended to.

    There is no active segment until `UnifiedLog` calls `activate_last`.
    """

    __slots__ = ("_lists", "active")

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        # The segments and their base offsets. Neither list is ever changed.
        self._lists: tuple[list[LogSegment], list[int]]
        self._set(list(segments))
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._lists[0])

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._lists[0])

    def __getitem__(self, at: int) -> LogSegment:
        return self._lists[0][at]

    @property
    def bases(self) -> list[int]:
        """The base offsets. The list does not change: a change of the segments makes a new one."""
        return self._lists[1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._lists[0])

    # -- looking up --------------------------------------------------------------------------------

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that holds `offset`, or would hold it."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return a copy of the list from the segment that holds `offset`. From any thread."""
        segments, bases = self._lists
        return segments[max(bisect_right(bases, offset) - 1, 0) :]

    def below(self, offset: int) -> list[LogSegment]:
        """Return the segments that begin before `offset`."""
        return [segment for segment in self._lists[0] if segment.base_offset < offset]

    def locate_resident(self, offset: int) -> tuple[LogSegment, int, int] | None:
        """Return (segment, position, size) of the first batch that ends at `offset` or later.

        Raises:
            NotResident: The disk would have to be read.
        """
        segments, bases = self._lists
        at = bisect_right(bases, offset) - 1
        if at < 0:
            at = 0
        segment = segments[at]
        found = segment.locate(offset, wait=False)
        if found is not None:
            return segment, *found
        for segment in segments[at + 1 :]:
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
        bases = self._lists[1]
        at = bisect_right(bases, segment.base_offset)
        if at < len(bases) and max_offset >= bases[at]:
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
        found = self.from_offset(segments[0].base_offset)[: len(segments)]
        return len(found) == len(segments) and all(map(_is, found, segments))

    # -- changes, by the owner of the log or the thread that truncates it --------------------------

    def _set(self, segments: list[LogSegment]) -> None:
        assert segments
        self._lists = segments, [segment.base_offset for segment in segments]

    def activate_last(self) -> None:
        """Append to the last segment from now on.

        Raises:
            OSError: The segment cannot be read. The call can be repeated.
        """
        self.active = self._lists[0][-1]
        self.active.make_active()

    def roll(self, segment: LogSegment) -> None:
        """Append to `segment` from now on."""
        self.active.make_inactive()
        segments, bases = self._lists
        self._lists = [*segments, segment], [*bases, segment.base_offset]
        self.activate_last()

    def remove_first(self, count: int) -> list[LogSegment]:
        """Remove and return the first segments. At least one segment stays."""
        segments = self._lists[0]
        self._set(segments[count:])
        return segments[:count]

    def replace(self, old: Sequence[LogSegment], new: LogSegment) -> None:
        """Replace the old segments, which are not appended to, by a compacted one."""
        assert self.active is not old[-1]
        segments = list(self._lists[0])
        at = segments.index(old[0])
        segments[at : at + len(old)] = [new]
        self._set(segments)

    def remove_last(self) -> None:
        """Remove the last segment. The caller calls `activate_last` before an append."""
        segments, bases = self._lists
        assert len(segments) > 1
        self._lists = segments[:-1], bases[:-1]
        self.active = segments[-2]

    def replace_active(self, segment: LogSegment) -> None:
        """Replace the active segment by one with the same base offset and fewer batches."""
        assert segment.base_offset == self.active.base_offset
        self._set([*self._lists[0][:-1], segment])
        self.activate_last()

    def restart(self, segment: LogSegment) -> list[LogSegment]:
        """Replace all segments by one empty segment, and return the removed ones."""
        removed = self._lists[0]
        self._set([segment])
        self.activate_last()
        return removed


def _is(one: LogSegment, other: LogSegment) -> bool:
    return one is other
