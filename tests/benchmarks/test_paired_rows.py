"""Paired rows: the order of the runs, and the values computed from raw values."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.evidence import paired
from benchmarks.evidence.paired import Group, PairedRows, Row, alone, measure_pair
from benchmarks.evidence.record import Record, Unit, Values


def record_of(row: str, *pairs: Values, **described: Any) -> Record:
    """A record with these runs of one row, pair by pair."""
    units = [Unit(f"{row}/{n}", "", 1.0, 0.0, {row: pair}) for n, pair in enumerate(pairs, 1)]
    settings = {"pairs": len(pairs), "rows": {row: {"title": row, "metrics": {}, **described}}}
    return Record("x", "c", "t", 1, {}, settings, units=units)


def rates(ours: list[float], theirs: list[float]) -> list[Values]:
    return [
        {"odradek": {"rate": a}, "kafka": {"rate": b}} for a, b in zip(ours, theirs, strict=True)
    ]


def test_the_ratio_is_the_median_of_the_paired_ratios() -> None:
    record = record_of("x", *rates([2, 9, 4], [1, 3, 4]))
    assert paired.ratio(record, "x", "rate") == 2.0
    assert paired.middle(record, "x", "odradek", "rate") == 4.0


def test_a_quantile_is_that_of_the_records_of_all_pairs() -> None:
    calm, slow = {"100": 990, "200": 10}, {"100": 900, "1000": 100}
    pairs = [
        {"odradek": {"histogram_us": slow if n == 4 else calm}, "kafka": {"histogram_us": calm}}
        for n in range(9)
    ]
    record = record_of("x", *pairs)
    assert paired.middle(record, "x", "odradek", "p99") == 1000
    assert paired.ratio(record, "x", "p99") == 10
    assert paired.each(record, "x", "odradek", "p99") == [100] * 4 + [1000] + [100] * 4


def test_quantiles_of_a_record_without_histograms_are_the_pooled_ones_that_it_has() -> None:
    pairs: list[Values] = [{"odradek": {"p99": 5.0}, "kafka": {"p99": 1.0}}] * 2
    pooled = {"odradek": {"p99": 9.0}, "kafka": {"p99": 3.0}}
    record = record_of("x", *pairs, pooled=pooled)
    assert paired.middle(record, "x", "odradek", "p99") == 9.0
    assert paired.ratio(record, "x", "p99") == 3.0


def test_a_row_is_compared_with_its_second_side() -> None:
    record = record_of("x", {"odradek": {"cpu_us": 3.0}, "c_program": {"cpu_us": 2.0}})
    assert paired.sides(record, "x") == ("odradek", "c_program")
    assert paired.ratio(record, "x", "cpu_us") == 1.5


def test_rows_of_a_group_are_measured_alternately_in_both_orders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[tuple[str, str]] = []

    def run(broker: Any, _topic: str, _scale: float) -> Values:
        return {"rate": float(len(taken)), "latencies_us": [7, 7, 9]}

    def run_once(row: Row, broker: Any, scale: float) -> Values:
        taken.append((row.key, broker))
        return dict(row.run(broker, "topic", scale))

    monkeypatch.setattr(paired, "run_once", run_once)
    rows = tuple(Row(key, key, {"rate": "1/s"}, run) for key in ("plain", "idempotent"))
    brokers = {"odradek": "odradek", "kafka": "kafka"}
    found = [measure_pair(rows, brokers, pair, 1.0) for pair in (0, 1)]
    once = [(row.key, name) for row in rows for name in brokers]
    assert taken == once + once[::-1]
    assert found[1]["plain"]["odradek"] == {"rate": 8.0, "histogram_us": {"7": 2, "9": 1}}


def test_odradek_comes_first_whichever_broker_ran_first() -> None:
    record = record_of("x", {"kafka": {"rate": 1.0}, "odradek": {"rate": 2.0}})
    assert list(paired.runs(record, "x")) == ["odradek", "kafka"]
    assert paired.sides(record, "x") == ("odradek", "kafka")


def test_each_group_has_a_unit_for_each_pair() -> None:
    class Rows(PairedRows):
        name = "rows"
        title = "rows"
        minutes = 1
        pairs = 2
        groups = (
            *alone(Row("a", "A", {"rate": "1/s"}, lambda *_: {})),
            Group("b", (Row("b1", "B", {}, lambda *_: {}), Row("b2", "C", {}, lambda *_: {}))),
        )

        def snippets(self, record: Record) -> dict[str, str]:
            return {}

    rows = Rows()
    record = Record("rows", "c", "t", 1, {}, rows.settings(1.0))
    assert rows.keys(2) == ["a/1", "a/2", "b/1", "b/2"]
    assert rows.next_unit(record) == "a/1"
    assert set(record.settings["rows"]) == {"a", "b1", "b2"}
    record.units = [Unit(key, "", 0.0, 0.0) for key in rows.keys(2)]
    assert rows.next_unit(record) is None
