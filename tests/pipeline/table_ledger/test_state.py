"""The fold of commits: offsets, counts, gaps, overlaps and identities by partition."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange
from odradek.pipeline.ledger.state import (
    FINDINGS_MAX,
    LedgerState,
    PartitionKey,
    Source,
    Span,
    fold,
    lost_ranges,
)

SOURCE = Source("c", "id-of-t")
KEY = PartitionKey("c", "t", "id-of-t", 0)


def commit(
    batch_id: int, start: int, end: int, *, rejected: int = 0, source: Source = SOURCE
) -> BatchCommit:
    """Return a commit of all offsets of partition 0 from `start` to before `end`."""
    rows = end - start
    return BatchCommit(
        "q",
        batch_id,
        rows - rejected,
        (ReadRange("t", 0, start, end - 1, rows, rejected),),
        (PlannedRange("t", 0, start, end),),
        epoch=1,
        cluster_id=source.cluster_id,
        topic_ids={"t": source.topic_id} if source.topic_id else {},
    )


def in_format_1(one: BatchCommit) -> BatchCommit:
    fields = json.loads(one.to_json())
    kept = {name: fields[name] for name in ("query_id", "batch_id", "rows", "ranges", "planned")}
    for read in kept["ranges"]:
        del read["rejected"]
    return BatchCommit.from_json(json.dumps(kept))


def test_consecutive_batches_have_one_range_without_gaps() -> None:
    state = fold([commit(0, 5, 10, rejected=2), commit(1, 10, 12)])
    partition = state.partitions[KEY]
    assert (partition.start_offset, partition.next_offset) == (5, 12)
    assert (partition.batches, partition.rows, partition.rejected) == (2, 7, 2)
    assert (partition.gaps.count, partition.overlaps.count) == (0, 0)
    assert state.next_offsets() == {"t": {"0": 12}}
    assert (state.newest_batch("q"), state.newest_batch("p")) == (1, None)
    assert (state.query_id, state.commits, state.epoch) == ("q", 2, 1)


def test_gap_and_overlap_are_named() -> None:
    partition = fold([commit(0, 0, 10), commit(1, 15, 20), commit(2, 18, 25)]).partitions[KEY]
    assert partition.gaps.newest == (Span(10, 15),)
    assert partition.overlaps.newest == (Span(18, 20),)
    assert partition.next_offset == 25


def test_findings_have_a_limit_and_are_still_counted() -> None:
    state = fold(commit(n, 10 * n, 10 * n + 1) for n in range(FINDINGS_MAX + 5))
    gaps = state.partitions[KEY].gaps
    assert (gaps.count, len(gaps.newest)) == (FINDINGS_MAX + 4, FINDINGS_MAX)
    assert gaps.newest[-1] == Span(10 * (FINDINGS_MAX + 3) + 1, 10 * (FINDINGS_MAX + 4))


def test_topic_that_was_created_again_is_another_topic() -> None:
    again = Source("c", "another-id")
    state = fold([commit(0, 0, 10), commit(1, 0, 4, source=again)])
    assert state.partitions[KEY].next_offset == 10
    assert state.partitions[PartitionKey("c", "t", "another-id", 0)].next_offset == 4
    assert state.next_offsets() == {"t": {"0": 4}}
    assert all(one.overlaps.count == 0 for one in state.partitions.values())


def test_commits_without_ids_take_the_ids_of_the_next_commit() -> None:
    state = fold([in_format_1(commit(0, 0, 10, rejected=1)), commit(1, 10, 12)])
    assert list(state.partitions) == [KEY]
    assert (state.partitions[KEY].batches, state.partitions[KEY].rejected) == (2, 1)
    assert fold([commit(2, 12, 13, source=Source(None, None))], state).partitions.keys() == {KEY}


def test_first_versions_without_planned_ranges_show_no_gap_at_a_transaction_marker() -> None:
    first = replace(in_format_1(commit(0, 0, 10)), planned=None)
    state = fold([first, replace(first, batch_id=1, ranges=(ReadRange("t", 0, 11, 19, 9),))])
    assert state.partitions[PartitionKey(None, "t", None, 0)].gaps.count == 0
    assert fold([commit(2, 22, 30)], state).partitions[KEY].gaps.count == 0


def test_rejected_records_of_two_partitions_in_format_1_are_unknown() -> None:
    two = replace(
        commit(0, 0, 10, rejected=3),
        ranges=(ReadRange("t", 0, 0, 9, 10), ReadRange("t", 1, 0, 4, 5)),
    )
    state = fold([two])
    assert {one.partition: state.partitions[one].rejected for one in state.partitions} == {
        0: None,
        1: None,
    }


def test_accepted_loss_is_kept_and_is_no_gap() -> None:
    lossy = replace(
        commit(1, 10, 20),
        ranges=(ReadRange("t", 0, 14, 19, 6),),
        rows=6,
        lost=(PlannedRange("t", 0, 10, 14),),
    )
    partition = fold([commit(0, 0, 10), lossy]).partitions[KEY]
    assert partition.losses.newest == (Span(10, 14),)
    assert (partition.gaps.count, partition.rows) == (0, 16)


@pytest.mark.parametrize(
    ("read", "earliest", "lost"),
    [
        ((ReadRange("t", 0, 14, 19, 6),), 14, (PlannedRange("t", 0, 10, 14),)),
        ((ReadRange("t", 0, 14, 19, 6),), 10, ()),
        ((ReadRange("t", 0, 14, 19, 6),), 18, (PlannedRange("t", 0, 10, 14),)),
        ((), 14, (PlannedRange("t", 0, 10, 14),)),
        ((), 99, (PlannedRange("t", 0, 10, 20),)),
    ],
    ids=["removed", "markers only", "removed after the read", "rest empty", "all removed"],
)
def test_lost_offsets_lie_before_the_first_record_and_the_earliest_offset(
    read: tuple[ReadRange, ...], earliest: int, lost: tuple[PlannedRange, ...]
) -> None:
    planned = (PlannedRange("t", 0, 10, 20),)
    assert lost_ranges(planned, read, {("t", 0): earliest}) == lost


SOURCES = st.sampled_from([SOURCE, Source("c", "other"), Source("d", "x"), Source(None, None)])
BATCHES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10), SOURCES, st.booleans()), max_size=12
)


def commits_of(batches: list[tuple[int, int, Source, bool]]) -> list[BatchCommit]:
    return [
        replace(one, planned=None) if old else one
        for one, old in (
            (commit(n, start, start + size, source=source), old)
            for n, (start, size, source, old) in enumerate(batches)
        )
    ]


@given(BATCHES, st.integers(0, 12))
def test_state_after_its_json_continues_like_the_whole_fold(
    batches: list[tuple[int, int, Source, bool]], cut: int
) -> None:
    commits = commits_of(batches)
    fields = json.loads(json.dumps(fold(commits[:cut]).to_fields()))
    assert fold(commits[cut:], LedgerState.from_fields(fields)) == fold(commits)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=12))
def test_gaps_and_overlaps_are_exactly_the_offsets_covered_zero_times_and_again(
    spans: list[tuple[int, int]],
) -> None:
    """Without a gap and an overlap, the batches cover each offset once."""
    state = fold(commit(n, start, start + size) for n, (start, size) in enumerate(spans))
    if not spans:
        assert state == LedgerState()
        return
    partition = state.partitions[KEY]
    covered = [offset for start, size in spans for offset in range(start, start + size)]
    whole = sorted(covered) == list(range(partition.start_offset, partition.next_offset))
    in_order = all(a[0] + a[1] == b[0] for a, b in itertools.pairwise(spans))
    assert (partition.gaps.count + partition.overlaps.count == 0) == in_order
    assert whole or partition.gaps.count + partition.overlaps.count > 0
    assert partition.rows == len(covered)
