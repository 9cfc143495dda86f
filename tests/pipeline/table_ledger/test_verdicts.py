"""The check whether a batch may be skipped because the table has it, without Spark."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange
from odradek.pipeline.ledger.state import LedgerState, Source, fold
from odradek.pipeline.ledger.verdicts import (
    check_continues,
    check_not_older,
    check_removed,
    check_repeated,
    check_sources,
    differences,
    next_starts,
)

TABLE = "/lake/table"
PLANNED = (PlannedRange("t", 0, 10, 20), PlannedRange("t", 1, 0, 5))
READ = (ReadRange("t", 0, 11, 17, 4),)
BATCH = BatchCommit("q", 7, 4, READ, PLANNED)


def of_an_older_version(commit: BatchCommit) -> BatchCommit:
    """Return the commit as an older version without planned ranges wrote it."""
    fields = json.loads(commit.to_json())
    old = {name: fields[name] for name in ("query_id", "batch_id", "rows", "ranges")}
    return BatchCommit.from_json(json.dumps(old))


def test_batch_with_the_same_plan_is_skipped_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check_repeated(TABLE, BATCH, BATCH)
    assert caplog.records == []


def test_records_that_compaction_removed_in_between_make_no_difference() -> None:
    assert differences(BATCH, replace(BATCH, rows=0, ranges=())) == []
    assert differences(of_an_older_version(BATCH), replace(BATCH, rows=0, ranges=())) == []


@pytest.mark.parametrize(
    ("planned", "message"),
    [
        ((PlannedRange("t", 0, 10, 30), PLANNED[1]), "t-0 had offsets 10 to 19 and now has .* 29"),
        ((PlannedRange("t", 0, 0, 20), PLANNED[1]), "t-0 had offsets 10 to 19 and now has .* 0 to"),
        (PLANNED[:1], "t-1 had offsets 0 to 4 and now has no offsets"),
        ((*PLANNED, PlannedRange("u", 0, 0, 1)), "u-0 had no offsets and now has offsets 0 to 0"),
        ((), r"t-0 had offsets 10 to 19 and now has no offsets \(2 partitions differ\)"),
    ],
)
def test_batch_with_another_plan_is_refused_in_one_line(
    planned: tuple[PlannedRange, ...], message: str
) -> None:
    with pytest.raises(PipelineError, match=message) as refused:
        check_repeated(TABLE, BATCH, replace(BATCH, planned=planned))
    message = str(refused.value)
    assert "\n" not in message
    assert f"Batch 7 of {TABLE}" in message
    assert message.endswith("or continue from the tables with --rebuild-checkpoint.")


def test_batch_without_a_commit_below_later_ones_is_refused() -> None:
    with pytest.raises(PipelineError, match="no commit of batch 7"):
        check_repeated(TABLE, None, BATCH)


def test_batch_of_another_query_is_refused() -> None:
    with pytest.raises(PipelineError, match="of another query"):
        check_repeated(TABLE, replace(BATCH, query_id="p"), BATCH)


def test_commit_of_an_older_version_within_the_plan_is_skipped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        check_repeated(TABLE, of_an_older_version(BATCH), BATCH)
    [warning] = caplog.messages
    assert f"Batch 7 of {TABLE} was committed by an older version" in warning


@pytest.mark.parametrize(
    "planned",
    [
        (PlannedRange("t", 0, 12, 20),),
        (PlannedRange("t", 0, 10, 17),),
        (PlannedRange("t", 1, 10, 20),),
        (),
    ],
)
def test_commit_of_an_older_version_outside_of_the_plan_is_refused(
    planned: tuple[PlannedRange, ...],
) -> None:
    with pytest.raises(PipelineError, match="t-0 had records 11 to 17 and now has"):
        check_repeated(TABLE, of_an_older_version(BATCH), replace(BATCH, planned=planned))


@pytest.mark.parametrize(
    "read", [(ReadRange("t", 0, 11, 18, 5),), (*READ, ReadRange("t", 1, 0, 0, 1))]
)
def test_records_that_a_commit_of_an_older_version_does_not_have_are_not_skipped(
    read: tuple[ReadRange, ...],
) -> None:
    """The plan of an emptied checkpoint contains the old records, and others too."""
    with pytest.raises(PipelineError, match="and now has offsets"):
        check_repeated(TABLE, of_an_older_version(BATCH), replace(BATCH, ranges=read))


PLANS = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 2)),
    st.tuples(st.integers(0, 4), st.integers(1, 4)),
).map(
    lambda plan: tuple(
        PlannedRange(topic, partition, start, start + size)
        for (topic, partition), (start, size) in sorted(plan.items())
    )
)


@given(PLANS, PLANS)
def test_plans_differ_exactly_where_their_offsets_do(
    old: tuple[PlannedRange, ...], new: tuple[PlannedRange, ...]
) -> None:
    stored, batch = (BatchCommit("q", 0, 0, (), planned) for planned in (old, new))
    touched = {one.topic_partition for one in set(old) ^ set(new)}
    assert len(differences(stored, batch)) == len(touched)


@given(PLANS, st.data())
def test_skipped_batch_of_an_older_version_holds_no_record_that_the_commit_lacks(
    planned: tuple[PlannedRange, ...], data: st.DataObject
) -> None:
    def records() -> dict[tuple[str, int], set[int]]:
        return {
            one.topic_partition: data.draw(
                st.sets(st.integers(one.start_offset, one.end_offset - 1))
            )
            for one in planned
        }

    def ranges(read: dict[tuple[str, int], set[int]]) -> tuple[ReadRange, ...]:
        return tuple(
            ReadRange(*key, min(offsets), max(offsets), len(offsets))
            for key, offsets in read.items()
            if offsets
        )

    before, now = records(), records()
    stored = BatchCommit("q", 0, 0, ranges(before), None)
    batch = BatchCommit("q", 0, 0, ranges(now), planned)
    within = all(
        bool(before[key]) and min(before[key]) <= offset <= max(before[key])
        for key, offsets in now.items()
        for offset in offsets
    )
    assert (differences(stored, batch) == []) == within


def test_commit_survives_its_json_with_and_without_planned_ranges() -> None:
    assert BatchCommit.from_json(BATCH.to_json()) == BATCH
    assert of_an_older_version(BATCH) == replace(BATCH, planned=None)
    assert json.loads(BATCH.to_json())["planned"][0] == {
        "topic": "t",
        "partition": 0,
        "start_offset": 10,
        "end_offset": 20,
    }


def test_commit_of_a_newer_format_is_an_error() -> None:
    fields = {**json.loads(BATCH.to_json()), "format": 3}
    with pytest.raises(ValueError, match="format 3"):
        BatchCommit.from_json(json.dumps(fields))


def test_commit_keeps_its_source_epoch_and_losses_in_json() -> None:
    commit = replace(
        BATCH, epoch=3, cluster_id="c", topic_ids={"t": "x"}, lost=PLANNED[:1], replaces="p"
    )
    assert BatchCommit.from_json(commit.to_json()) == commit


def test_json_of_a_commit_begins_with_query_and_batch() -> None:
    """The versions before the ledger find their commits by this beginning."""
    assert BATCH.to_json().startswith('{"query_id":"q","batch_id":7,')


LOADED = replace(BATCH, cluster_id="c", topic_ids={"t": "id-of-t"})


def check_topic(now: Source, loaded: BatchCommit = LOADED) -> None:
    check_sources("/lake", fold([loaded]), {"t": now, "u": Source("d", "id-of-u")})


@pytest.mark.parametrize(
    "now",
    [Source("c", "id-of-t"), Source(None, None), Source("c", None), Source(None, "id-of-t")],
)
def test_topic_with_the_same_or_unknown_ids_continues(now: Source) -> None:
    check_topic(now)
    check_topic(now, BATCH)


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (Source("c", "new"), "was deleted and created again: its id was id-of-t and is new"),
        (Source("d", "id-of-t"), "is in cluster d, and /lake has 4 records .* in cluster c"),
        (Source("d", "new"), "is in cluster d"),
        (Source("d", None), "is in cluster d"),
    ],
)
def test_other_topic_of_the_same_name_is_refused_in_one_line(now: Source, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as refused:
        check_topic(now)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith("Ingest it into another directory.")


def planned(*ranges: PlannedRange) -> BatchCommit:
    return replace(LOADED, batch_id=8, planned=ranges)


def test_batch_that_follows_on_the_ledger_continues() -> None:
    state = fold([LOADED])
    check_continues(TABLE, state, planned(PlannedRange("t", 0, 20, 25)))
    check_continues(TABLE, state, planned(PlannedRange("t", 2, 3, 9), PlannedRange("u", 0, 3, 9)))
    check_continues(TABLE, LedgerState(), planned(PlannedRange("t", 0, 7, 9)))
    check_continues(TABLE, state, planned())


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (21, "t-0 up to offset 19, and the checkpoint plans offsets 21 to 30 .* leave a gap after"),
        (19, "t-0 up to offset 19, and the checkpoint plans offsets 19 to 30 .* repeat"),
    ],
)
def test_batch_that_leaves_a_gap_or_repeats_rows_is_refused(start: int, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as refused:
        check_continues(TABLE, fold([LOADED]), planned(PlannedRange("t", 0, start, 31)))
    assert "\n" not in str(refused.value)


def test_batch_after_a_commit_without_planned_ranges_may_begin_after_a_marker() -> None:
    state = fold([of_an_older_version(LOADED)])
    check_continues(TABLE, state, planned(PlannedRange("t", 0, 20, 25)))
    with pytest.raises(PipelineError, match="repeat"):
        check_continues(TABLE, state, planned(PlannedRange("t", 0, 17, 25)))


def test_table_that_lacks_finished_offsets_is_an_older_copy() -> None:
    state = fold([replace(BATCH, planned=(PlannedRange("t", 0, 0, 20),), ranges=())])
    check_not_older(TABLE, state, {"t": {"0": 20, "1": 7}, "u": {"0": 9}})
    with pytest.raises(PipelineError, match=r"t-0 up to offset 19, and .* finished offset 20"):
        check_not_older(TABLE, state, {"t": {"0": 21}})
    markers = fold([of_an_older_version(BATCH)])  # which may follow on the last record
    check_not_older(TABLE, markers, {"t": {"0": 21}})


def test_offsets_that_a_topic_removed_before_their_load_are_named() -> None:
    starts = {("t", 0): 20}
    check_removed("/lake", starts, {("t", 0): 20, ("t", 1): 5, ("u", 0): 9})
    with pytest.raises(PipelineError, match="t-0 has removed the offsets 20 to 23 before"):
        check_removed("/lake", starts, {("t", 0): 24})


def test_ingest_continues_at_ledger_or_checkpoint_and_begins_new_partitions_at_0() -> None:
    loaded, known = {"t": {"0": 20}}, {"t": {"0": 18, "1": 5}}
    partitions = [("t", 0), ("t", 1), ("t", 2), ("u", 0)]
    starts = {("t", 0): 20, ("t", 1): 5, ("t", 2): 0, ("u", 0): 0}
    assert next_starts(loaded, known, partitions) == starts
    assert next_starts({}, {}, partitions) == {}
