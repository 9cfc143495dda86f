"""What the benchmarks compute, apart from what they measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks import coordination, many_partitions
from benchmarks.amqp import Confirmed
from benchmarks.coordination import Row, ratios, run_turns
from benchmarks.coordination_report import idle_cost, middle
from benchmarks.tables import judged
from hypothesis import given
from hypothesis import strategies as st


@given(st.permutations(range(1, 30)), st.sets(st.integers(1, 29)))
def test_confirmations_in_any_order_are_all_counted(tags: list[int], multiple: set[int]) -> None:
    confirmed = Confirmed()
    seen: set[int] = set()
    for tag in tags:
        seen |= set(range(1, tag + 1)) if tag in multiple else {tag}
        confirmed.take(tag, multiple=tag in multiple)
        assert set(range(1, confirmed.upper + 1)) <= seen
        assert confirmed.upper + 1 not in seen
    assert confirmed.upper == 29


def test_the_ratio_is_the_median_of_the_pairs_and_idempotence_is_compared_with_plain() -> None:
    def row(ours: list[float], theirs: list[float]) -> dict[str, object]:
        values = {
            "odradek": [{"rate": rate} for rate in ours],
            "kafka": [{"rate": rate} for rate in theirs],
        }
        return {"metrics": {"rate": "records/s"}, "values": values}

    plain, idempotent = row([2, 9, 4], [1, 3, 4]), row([3, 3, 3], [2, 2, 2])
    found = ratios("idempotent", {"rows": {"plain.x": plain, "idempotent.x": idempotent}})
    assert found == {
        "plain.x.rate": 2.0,
        "idempotent.x.rate": 1.5,
        "idempotent.x.rate.of_plain": 0.75,
    }


def test_a_broker_that_grows_faster_while_it_is_measured_does_not_make_idempotence_look_dear() -> (
    None
):
    values = {
        "odradek": [{"rate": rate} for rate in (8, 8, 8)],
        "kafka": [{"rate": rate} for rate in (1, 2, 4)],
    }
    row = {"metrics": {"rate": "records/s"}, "values": values}
    found = ratios("idempotent", {"rows": {"plain.x": row, "idempotent.x": row}})
    assert found["idempotent.x.rate.of_plain"] == 1.0


def test_rows_that_are_compared_are_measured_in_turns_and_in_both_orders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[tuple[str, str]] = []

    def run_once(row: Row, broker: Any, _: float) -> dict[str, float]:
        taken.append((row.key, broker))
        return {"rate": float(len(taken))}

    monkeypatch.setattr(coordination, "run_once", run_once)
    rows = tuple(Row(key, key, {"rate": "1/s"}, run_once) for key in ("plain.x", "idempotent.x"))
    brokers: dict[str, Any] = {"odradek": "odradek", "kafka": "kafka"}
    found = run_turns(rows, brokers, pairs=1, scale=1.0)
    once = [(row.key, name) for row in rows for name in brokers]
    assert taken == once + once[::-1]
    assert found["plain.x"]["values"] == {"odradek": [{"rate": 8.0}], "kafka": [{"rate": 7.0}]}
    assert found["idempotent.x"]["values"] == {"odradek": [{"rate": 6.0}], "kafka": [{"rate": 5.0}]}


def test_percentiles_are_of_the_records_of_all_pairs_and_decide_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_once(row: Row, broker: Any, _: float) -> dict[str, Any]:
        slow = 10 if row.key.startswith("idempotent") and broker == "odradek" else 1
        times = [slow * us for us in range(100)]
        return {"p99": float(slow * 99), "latencies_us": times}

    monkeypatch.setattr(coordination, "run_once", run_once)
    rows = tuple(Row(key, key, {"p99": "µs"}, run_once) for key in ("plain.x", "idempotent.x"))
    brokers: dict[str, Any] = {"odradek": "odradek", "kafka": "kafka"}
    found = run_turns(rows, brokers, pairs=3, scale=1.0)
    row = found["idempotent.x"]
    assert row["values"]["kafka"] == [{"p99": 99.0}] * 3
    assert middle(row, "odradek", "p99") == row["pooled"]["odradek"]["p99"] == 990.0
    told = ratios("idempotent", {"rows": found})
    assert told["idempotent.x.p99"] == told["idempotent.x.p99.of_plain"] == 10.0
    assert told["plain.x.p99"] == 1.0


def test_of_many_partitions_the_warm_up_pair_does_not_count_and_the_pairs_alternate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turns: list[str] = []

    class Broker:
        def __init__(self, directory: Path) -> None:
            self.name = directory.name

        def stop(self) -> None:
            pass

    def restarted(broker: Any, _: int) -> tuple[Any, dict[str, float]]:
        turns.append(broker.name.removeprefix("many-"))
        return broker, {"stop_s": float(len(turns))}

    monkeypatch.setattr(many_partitions, "STARTERS", {"odradek": Broker, "kafka": Broker})
    monkeypatch.setattr(many_partitions, "figures", lambda _: {})
    monkeypatch.setattr(many_partitions, "fill", lambda *_: 0.0)
    monkeypatch.setattr(many_partitions, "restarted", restarted)
    found = many_partitions.run(("odradek", "kafka"), 2, 10, tmp_path, lambda _: None)
    assert turns == ["odradek", "kafka", "kafka", "odradek", "odradek", "kafka"]
    assert found["values"]["odradek"] == [{"stop_s": 4.0}, {"stop_s": 5.0}]
    assert found["values"]["kafka"] == [{"stop_s": 3.0}, {"stop_s": 6.0}]


def test_a_target_is_met_or_missed_by_its_sign() -> None:
    assert judged(1.0, (">=", 1.0)) == ">= 1: met"
    assert judged(1.0, ("<", 1.0)) == "< 1: **missed**"
    assert judged(0.3, ("<=", 0.3)) == "<= 0.3: met"
    assert judged(7.0, None) == ""


def test_an_idle_partition_costs_what_the_broker_without_topics_did_not() -> None:
    result = {
        "partitions": 10,
        "values": {"odradek": [{"open_files": 30.0}, {"open_files": 28.0}, {"open_files": 40.0}]},
        "empty": {"odradek": {"open_files": 10.0}},
    }
    assert idle_cost(result, "odradek", "open_files") == 2.0
