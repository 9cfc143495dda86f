"""The groups of segments that are merged: limited by segment size, indexes and 32-bit offsets."""

from __future__ import annotations

from typing import Any

from odradek.log.cleaner.cleaning import group_segments
from odradek.log.cleaner.worker_protocol import CleaningJob
from odradek.records.batch import INT32_MAX


def groups(segments: list[tuple[int, int]], upper_bound: int, **changes: Any) -> list[list[int]]:
    limits = {"segment_bytes": 1_000, "segment_index_bytes": 1 << 20, "index_interval_bytes": 4096}
    job = CleaningJob(
        name="t-0",
        directory="",
        segments=segments,
        first_dirty_offset=0,
        upper_bound=upper_bound,
        now_ms=0,
        delete_retention_ms=0,
        dedupe_buffer_bytes=0,
        load_factor=0.9,
        io_buffer_bytes=0,
        **{**limits, **changes},
    )
    return [[base for base, _ in group] for group in group_segments(segments, job)]


def test_a_group_is_no_larger_than_a_segment() -> None:
    assert groups([(0, 500), (1, 500), (2, 1), (3, 1_500), (4, 1)], 5) == [[0, 1], [2], [3], [4]]


def test_a_group_needs_no_more_index_entries_than_an_index_holds() -> None:
    segments = [(base, 120) for base in range(4)]
    assert groups(segments, 4, segment_index_bytes=24, index_interval_bytes=100) == [[0, 1], [2, 3]]


def test_offsets_of_a_group_are_32_bits_from_its_first() -> None:
    last = INT32_MAX  # the largest distance from offset 0 that fits
    assert groups([(0, 1), (5, 1)], last + 1) == [[0, 5]]
    assert groups([(0, 1), (5, 1)], last + 2) == [[0], [5]]
    assert groups([(0, 1), (5, 0)], last + 2) == [[0, 5]], "an empty one has no offsets"
