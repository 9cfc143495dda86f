"""The sizes of batches that are not committed yet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.replication.uncommitted_sizes import UncommittedSizes


def test_sizes_of_committed_batches_are_returned_once() -> None:
    sizes = UncommittedSizes()
    sizes.add(3, 5, 100)
    sizes.add(5, 6, 20)
    sizes.add(6, 9, 3)
    assert sizes.take(3, 6) == 120
    assert sizes.take(6, 9) == 3
    assert len(sizes) == 0


def test_records_of_an_earlier_leader_have_no_size() -> None:
    sizes = UncommittedSizes()
    assert sizes.take(0, 2) is None
    sizes.add(3, 5, 100)
    assert sizes.take(2, 5) is None
    sizes.add(5, 6, 7)
    assert sizes.take(5, 6) == 7


def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.replication.uncommitted_sizes.BATCHES_MAX", 2)
    sizes = UncommittedSizes()
    for offset in range(5):
        sizes.add(offset, offset + 1, 10)
    assert len(sizes) == 2
    assert sizes.take(0, 1) == 10
    assert sizes.take(1, 4) == 0
    assert sizes.take(4, 5) == 40


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 99)), max_size=30), st.data())
def test_all_bytes_are_reported(batches: list[tuple[int, int]], data: st.DataObject) -> None:
    sizes, end_offset, ends = UncommittedSizes(), 0, []
    for count, size_bytes in batches:
        sizes.add(end_offset, end_offset + count, size_bytes)
        end_offset += count
        ends.append(end_offset)
    committed = total = 0
    while committed < end_offset:
        high_watermark = data.draw(st.sampled_from([each for each in ends if each > committed]))
        taken = sizes.take(committed, high_watermark)
        assert taken is not None
        total += taken
        committed = high_watermark
    assert total == sum(size_bytes for _, size_bytes in batches)
