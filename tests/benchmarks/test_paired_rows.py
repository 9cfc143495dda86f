"""Paired rows: the order of the runs, and the values computed from raw values."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from benchmarks.evidence import compared, paired
from benchmarks.evidence.compared import RatioRows, Targets
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
    assert set(record.settings["rows"]) == {"a", "b1", "b2"}
    keys = []
    while (key := rows.next_unit(record)) is not None:
        keys.append(key)
        record.units.append(Unit(key, "", 0.0, 0.0))
    assert keys == ["a/1", "a/2", "b/1", "b/2"]


# --- more pairs ---


class Judged(RatioRows):
    """Two groups of one row each. The rate of both has a target."""

    name = "judged"
    title = "judged"
    minutes = 1
    pairs = 5
    groups = alone(*(Row(key, key, {"rate": "1/s"}, lambda *_: {}) for key in ("a", "b")))
    targets: ClassVar[Targets] = {"a.rate": (">=", 1.3), "b.rate": (">=", 1.3)}


def run_all(experiment: PairedRows, ratios: dict[str, list[float]]) -> tuple[Record, list[str]]:
    """Record units with these ratios of `GROUP` until no unit is left."""
    record = Record(experiment.name, "c", "t", 1, {}, experiment.settings(1.0))
    keys: list[str] = []
    while (key := experiment.next_unit(record)) is not None:
        keys.append(key)
        group, pair = key.split("/")
        values = rates([ratios[group][int(pair) - 1]], [1.0])[0]
        record.units.append(Unit(key, "2026-11-23", 1.0, 0.0, {group: values}))
    return record, keys


def test_a_group_runs_more_pairs_when_a_target_lies_between_its_quartiles() -> None:
    undecided = [1.2, 1.25, 1.35, 1.4, 1.5]
    ratios = {"a": [1.0, 1.4, 1.4, 1.4, 1.5], "b": undecided + [1.0] * 5}
    record, keys = run_all(Judged(), ratios)
    assert keys == paired.unit_keys("a", 1, 5) + paired.unit_keys("b", 1, 10)
    # All values count, and the added ones do not change that pairs were added.
    assert paired.ratio(record, "b", "rate") == 1.1
    text = Judged().snippets(record)["judged"]
    assert "A target lay between the quartiles of the first 5 pairs" in text
    assert "- b: 10 pairs." in text and "- a: " not in text
    assert "1.4 | 1 | 1.4 | 1.4 to 1.4 | >= 1.3: met |" in text


def test_more_pairs_follow_directly_after_the_first_pairs_of_their_group() -> None:
    undecided = [1.2, 1.25, 1.35, 1.4, 1.5]
    _, keys = run_all(Judged(), {"a": undecided * 2, "b": [2.0] * 5})
    assert keys == paired.unit_keys("a", 1, 10) + paired.unit_keys("b", 1, 5)


def test_a_target_at_a_quartile_is_decided() -> None:
    assert not paired.is_between_quartiles(1.0, [1.0] * 9)
    assert not paired.is_between_quartiles(1.0, [])
    assert paired.is_between_quartiles(1.0, [0.9, 1.1, float("nan"), 0.9, 1.1])


def latencies(ours: int, theirs: int) -> Values:
    return {"odradek": {"histogram_us": {str(ours): 100}},
            "kafka": {"histogram_us": {str(theirs): 100}}}  # fmt: skip


@pytest.mark.parametrize(("us", "expected"), [(100, False), (10_000, True)])
def test_latencies_under_a_millisecond_apart_are_decided(us: int, expected: bool) -> None:
    pairs = [latencies(us * ours, us) for ours in (1, 1, 1, 2, 2, 2)]
    record = record_of("x", *pairs)
    assert compared.is_undecided(record, "x", "p99", ("<=", 1.1)) is expected


def test_starts_of_the_first_table_are_repeated_like_its_loads() -> None:
    experiment = compared.FirstTable()
    pairs = rates([0.09, 0.09, 0.09, 0.11, 0.11, 0.11], [1.0] * 6)
    starts = [{name: {"ms": run["rate"]} for name, run in pair.items()} for pair in pairs]
    record = record_of("start", *starts, metrics={"ms": "ms"})
    assert experiment.is_undecided(record, "start")
    assert list(experiment.rows_of_groups())[-1] == "start"


def test_idempotent_rows_are_repeated_when_the_bound_of_their_quotients_is_undecided() -> None:
    experiment = compared.IdempotentRows()
    rows = ("plain.large_batches", "idempotent.large_batches")
    record = record_of(rows[0])
    record.settings["rows"][rows[1]] = {"title": "i", "metrics": {"rate": "1/s"}}
    for number, ours in enumerate((8, 8, 8, 10, 10, 10), 1):
        values = [rates([rate], [10.0])[0] for rate in (10.0, ours)]
        unit = Unit(f"x/{number}", "", 1.0, 0.0, dict(zip(rows, values, strict=True)))
        record.units.append(unit)
    assert experiment.is_undecided(record, rows[1])
    assert not experiment.is_undecided(record, rows[0])
