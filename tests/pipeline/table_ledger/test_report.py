"""The report of a ledger, alone and compared with the topics."""

from __future__ import annotations

from dataclasses import replace

from odradek.pipeline.ledger.commits import PlannedRange
from odradek.pipeline.ledger.report import COLUMNS, TopicBounds, problem_texts, report
from odradek.pipeline.ledger.state import Source, fold
from tests.pipeline.table_ledger.test_state import SOURCE, commit

STATE = fold([commit(0, 5, 10, rejected=2), commit(1, 10, 20)])


def bounds(earliest: int, end: int, source: Source = SOURCE) -> TopicBounds:
    return TopicBounds({"t": source}, {("t", 0): earliest}, {("t", 0): end})


def test_line_has_range_batches_rows_and_quarantined_rows() -> None:
    [line] = report(STATE)
    assert line.row() == {
        "topic": "t",
        "partition": 0,
        "from": 5,
        "to": 19,
        "batches": 2,
        "rows": 15,
        "quarantined": 2,
        "lag": None,
    }
    assert tuple(line.row()) == COLUMNS
    assert problem_texts([line]) == []
    assert line.fields()["topic_id"] == "id-of-t"


def test_gaps_and_overlaps_are_named() -> None:
    lines = report(fold([commit(0, 0, 10), commit(1, 15, 20), commit(2, 18, 25)]))
    assert problem_texts(lines) == [
        "t-0: gap at offsets 10 to 14",
        "t-0: overlap at offsets 18 to 19",
    ]
    assert lines[0].fields()["gaps"] == [{"start_offset": 10, "end_offset": 15}]


def test_lag_is_the_distance_to_the_end_of_the_topic() -> None:
    [line] = report(STATE, bounds(0, 27))
    assert (line.lag, problem_texts([line])) == (7, [])


def test_records_removed_before_the_load_are_a_problem() -> None:
    assert problem_texts(report(STATE, bounds(24, 30))) == [
        "t-0: offsets 20 to 23 removed before the load"
    ]


def test_records_removed_after_the_load_are_none() -> None:
    assert problem_texts(report(STATE, bounds(20, 30))) == []


def test_topics_that_are_not_those_of_the_ledger_are_named() -> None:
    again = report(STATE, bounds(0, 99, Source("c", "new")))
    assert problem_texts(again) == ["t-0: the topic was created again with the id new"]
    elsewhere = report(STATE, bounds(0, 99, Source("d", "new")))
    assert problem_texts(elsewhere) == ["t-0: of cluster c, and not of d"]
    assert problem_texts(report(STATE, TopicBounds({}, {}, {}))) == [
        "t-0: the topic does not exist"
    ]
    assert problem_texts(report(STATE, bounds(0, 12))) == [
        "t-0: the topic ends at offset 12, before the table does"
    ]
    assert [one.lag for one in (*again, *elsewhere)] == [None, None]


def test_partition_without_a_batch_has_a_lag_and_no_rows() -> None:
    two = TopicBounds({"t": SOURCE}, {("t", 0): 0, ("t", 1): 3}, {("t", 0): 20, ("t", 1): 7})
    lines = report(STATE, two)
    assert [(one.key.partition, one.lag, one.state.rows) for one in lines] == [
        (0, 0, 15),
        (1, 4, 0),
    ]


def test_new_partition_whose_first_records_were_removed_is_a_problem() -> None:
    two = TopicBounds({"t": SOURCE}, {("t", 1): 3}, {("t", 1): 7}, {("t", 0): 20, ("t", 1): 0})
    line = report(STATE, two)[1]
    assert line.problems == ("offsets 0 to 2 removed before the load",)
    assert (line.lag, line.fields()["removed"]) == (7, {"start_offset": 0, "end_offset": 3})


def test_accepted_loss_is_no_problem_and_is_in_the_json() -> None:
    lossy = replace(commit(2, 20, 30), lost=(PlannedRange("t", 0, 20, 24),))
    [line] = report(fold([lossy], STATE))
    assert line.problems == ()
    assert line.fields()["accepted_losses"] == [{"start_offset": 20, "end_offset": 24}]
