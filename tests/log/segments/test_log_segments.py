"""The segments of a log, compared with a list of (base offset, end offset)."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.environment.files import RealFiles
from odradek.log.file_pool import FilePool
from odradek.log.residency import NotResident
from odradek.log.segments.log_cut import LogCut, cut_segments
from odradek.log.segments.log_segment import IndexCache, LogSegment
from odradek.log.segments.log_segments import LogSegments
from odradek.records.batch import HEADER_BYTES, LOG_OVERHEAD, OFFSETS

BATCH_BYTES = HEADER_BYTES


class Segments(RuleBasedStateMachine):
    """Batches of one record each; `model` has the offsets of each segment."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.pool = FilePool(RealFiles(), 100)
        self.cache = IndexCache()
        self.segments = LogSegments([self.new_segment(0)])
        self.segments.activate_last()
        self.model: list[tuple[int, list[int]]] = [(0, [])]
        self.end = 0

    def new_segment(self, base_offset: int) -> LogSegment:
        path = str(self.directory.name)
        segment = LogSegment(path, base_offset, self.pool, self.cache, size=0, created_ms=0)
        segment.create_files()
        segment.set_index_interval(100)
        return segment

    def teardown(self) -> None:
        self.directory.cleanup()

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        for _ in range(count):
            batch = bytearray(BATCH_BYTES)
            OFFSETS.pack_into(batch, 0, self.end, BATCH_BYTES - LOG_OVERHEAD, 0)
            self.segments.active.append(batch, BATCH_BYTES, self.end, 0)
            self.model[-1][1].append(self.end)
            self.end += 1

    @precondition(lambda self: self.model[-1][1])
    @rule()
    def roll(self) -> None:
        self.segments.active.close_indexes(sync=False)
        self.segments.roll(self.new_segment(self.end))
        self.model.append((self.end, []))

    @precondition(lambda self: len(self.model) > 1)
    @rule(data=st.data())
    def remove_first(self, data: Any) -> None:
        count = data.draw(st.integers(1, len(self.model) - 1))
        taken = self.segments.remove_first(count)
        assert [segment.base_offset for segment in taken] == [
            base for base, _ in self.model[:count]
        ]
        del self.model[:count]

    @rule(data=st.data())
    def truncate(self, data: Any) -> None:
        offset = data.draw(st.integers(self.model[0][0], self.end))
        removed: list[LogSegment] = []

        def discard(segment: LogSegment) -> None:
            segment.remove_files()
            removed.append(segment)

        cut = LogCut(offset, None, has_readers=False)
        end = cut_segments(self.segments, cut, self.new_segment, discard)
        kept = [(base, [o for o in at if o < offset]) for base, at in self.model if base <= offset]
        assert end == min(self.end, offset)
        assert [each.base_offset for each in reversed(removed)] == [
            base for base, _ in self.model[len(kept) :]
        ]
        self.model, self.end = kept, min(self.end, offset)

    @rule()
    def restart(self) -> None:
        removed = self.segments.restart(self.new_segment(self.end + 10))
        assert [segment.base_offset for segment in removed] == [base for base, _ in self.model]
        self.end += 10
        self.model = [(self.end, [])]

    @invariant()
    def every_offset_is_found_where_the_list_has_it(self) -> None:
        assert self.segments.bases == [base for base, _ in self.model]
        assert [segment.base_offset for segment in self.segments] == self.segments.bases
        assert self.segments.active is self.segments[-1]
        assert self.segments.active.active
        for segment in self.segments:
            segment.indexes()
        for base, offsets in self.model:
            for offset in offsets:
                found = self.segments.locate_resident(offset)
                assert found is not None
                assert (found[0].base_offset, found[1]) == (
                    base,
                    offsets.index(offset) * BATCH_BYTES,
                )
                assert self.segments.from_offset(offset)[0].base_offset == base
        assert self.segments.locate_resident(self.end) is None
        assert self.segments.size_bytes == BATCH_BYTES * sum(len(at) for _, at in self.model)


TestSegments = Segments.TestCase
TestSegments.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_indexes_that_are_not_in_memory_are_not_loaded() -> None:
    machine = Segments()
    machine.append(5)
    machine.roll()
    machine.append(1)
    machine.segments[0].drop_indexes()
    with pytest.raises(NotResident):
        machine.segments.locate_resident(2)
    assert machine.segments.locate_resident(5) is not None
    assert machine.segments[0].locate(2) == (2 * BATCH_BYTES, BATCH_BYTES)
    assert machine.segments.locate_resident(2) is not None
    machine.teardown()


def test_segments_are_in_place_only_one_after_the_other() -> None:
    machine = Segments()
    for _ in range(3):
        machine.append(2)
        machine.roll()
    first, second, third, _ = machine.segments
    assert machine.segments.are_in_place([first, second])
    assert not machine.segments.are_in_place([first, third])
    compacted = machine.new_segment(first.base_offset)
    machine.segments.replace([first, second], compacted)
    assert list(machine.segments)[:2] == [compacted, third]
    assert not machine.segments.are_in_place([first])
    assert machine.segments.bases == [0, 4, 6]
    machine.teardown()
