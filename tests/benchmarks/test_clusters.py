"""The computations of the benchmarks of clusters, without measurements."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from benchmarks.cluster_failures import Sampler, sampled
from benchmarks.cluster_rows import spread
from benchmarks.evidence.catalogue import EXPERIMENTS
from benchmarks.evidence.record import Record, Unit, Values

from benchmarks import many_partitions


def record_of(name: str, units: dict[str, Values]) -> Record:
    found = Record(name, "c" * 40, "t" * 40, 1, {"processor": "fast"}, {})
    found.settings = EXPERIMENTS[name].settings(1.0)
    found.units = [Unit(key, "2026-11-26T08:00:00", 1.0, 0.0, v) for key, v in units.items()]
    return found


def table_of(name: str, units: dict[str, Values]) -> str:
    return EXPERIMENTS[name].snippets(record_of(name, units))[name]


def sampler(times: dict[int, list[tuple[float, float]]]) -> Sampler:
    """A sampler that runs no thread and has these times of each partition."""
    found = Sampler.__new__(Sampler)
    found.responses = {("t", number): each for number, each in times.items()}
    return found


def test_each_broker_leads_as_many_partitions_and_replicates_all() -> None:
    replicas = spread(12)
    assert set(Counter(each[0] for each in replicas).values()) == {4}
    assert all(sorted(each) == [1, 2, 3] for each in replicas)


@pytest.mark.parametrize("partitions", [100, 1_000, 10_000])
def test_a_hundred_different_partitions_are_sampled_over_all_topics(partitions: int) -> None:
    found = sampled(partitions)
    assert len(set(found)) == 100
    assert {name for name, _ in found} == {
        many_partitions.topic(number) for number in range(many_partitions.TOPICS)
    }
    assert max(number for _, number in found) < partitions // many_partitions.TOPICS


def test_only_responses_to_records_after_the_kill_show_that_a_partition_acknowledges() -> None:
    found = sampler({0: [(9.9, 10.5), (10.1, 12.0), (10.2, 12.1)], 1: [(10.0, 10.25)]})
    assert found.await_all(10.0) == {("t", 0): 2.0, ("t", 1): 0.25}


def test_a_gap_lasts_to_the_end_of_the_observed_time() -> None:
    found = sampler({0: [(0.9, 1.0), (1.9, 2.0), (2.2, 2.25)], 1: [(0.0, 1.5), (0.0, 2.5)]})
    assert found.largest_gap_s(1.0, 3.0) == 1.0
    assert found.largest_gap_s(1.0, 4.0) == 1.75


def test_latencies_are_those_of_records_that_were_sent_in_the_time() -> None:
    found = sampler({0: [(0.9, 1.5), (1.0, 1.001), (2.0, 2.5)]})
    assert found.latencies_us(1.0, 2.0) == [1000]


# --- tables ---


def killed(ours: float, theirs: float) -> dict[str, Any]:
    return {
        "odradek": {"seconds": [6.0, ours], "errors": 0},
        "kafka": {"seconds": [6.0, theirs], "errors": 0},
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (7.4, 9.0, "<= 7.5: met"),
        (7.6, 9.0, "<= 7.5: **missed**"),
        (7.1, 6.2, "<= 7.2: met"),
        (7.3, 6.2, "<= 7.2: **missed**"),
    ],
)
def test_a_failover_ends_in_time_and_not_long_after_that_of_kafka(
    ours: float, theirs: float, verdict: str
) -> None:
    text = table_of("cluster-failover", {"1000/2": killed(ours, theirs)})
    assert f"| {verdict} |" in text


def test_more_partitions_have_more_time() -> None:
    text = table_of("cluster-failover", {"10000/1": killed(10.9, 12.0)})
    assert "| <= 11: met |" in text


def test_a_drain_is_judged_by_its_largest_gap() -> None:
    unit = {"gap_s": 0.51, "resting_gap_s": 0.06, "drain_s": 0.4, "errors": 0}
    text = table_of("cluster-drain", {"1000/1": unit})
    assert "| 0.51 | < 0.5: **missed** | 0 |" in text


def test_latencies_of_all_returns_are_judged_together() -> None:
    def unit(during: dict[str, int]) -> Values:
        return {"bytes": 10**9, "in_sync_s": 8.0, "start_s": 1.0,
                "resting_us": {"1000": 100}, "during_us": during}  # fmt: skip

    slow = {"1000": 97, "9000": 3}
    text = table_of("cluster-catch-up", {"return/1": unit(slow), "return/2": unit(slow)})
    assert "| catch-up, MB/s, median | 125 | >= 100: met |" in text
    assert "| ratio of the two | 9 | < 2: **missed** |" in text
    calm = {f"return/{number}": unit({"1000": 1000}) for number in (2, 3, 4, 5)}
    text = table_of("cluster-catch-up", {"return/1": unit(slow), **calm})
    assert "| ratio of the two | 1 | < 2: met |" in text


def test_growth_compares_the_cpu_time_for_a_record_with_that_of_one_broker() -> None:
    def unit(brokers: int, cpu_s: float) -> Values:
        return {"brokers": brokers, "replicas": min(3, brokers), "records": 1_000 * brokers,
                "client_messages": 40 * brokers, "broker_messages": 80 * (brokers - 1),
                "broker_bytes": 430_000 * (brokers - 1), "cpu_s": cpu_s}  # fmt: skip

    units = {"1/1": unit(1, 0.01), "1/2": unit(1, 0.02), "1/3": unit(1, 0.01)}
    text = table_of("cluster-growth", {**units, "4/1": unit(4, 0.08)})
    assert "| 1 | 1 | 40 | 0 | 0 | 10 | 1 |" in text
    assert "| 4 | 3 | 40 | 60 | 322 | 20 | 2 |" in text


def test_measured_growth_shows_all_values_of_each_number_of_brokers() -> None:
    def unit(brokers: int, rate: float, cpu_s: float) -> Values:
        return {"brokers": brokers, "replicas": brokers, "rate": rate, "cpu_s": cpu_s,
                "memory_mib": 50.0}  # fmt: skip

    units = {"1/1": unit(1, 300.0, 2.0), "3/1": unit(3, 100.0, 6.0), "1/2": unit(1, 200.0, 1.0)}
    text = table_of("cluster-growth-measured", units)
    assert "| 1 | 1 | 250 (300, 200) | 1.5 (2, 1) |" in text
    assert "| 3 | 3 | 100 (100) | 6 (6) |" in text


def test_growth_has_units_of_one_to_eight_brokers() -> None:
    record = record_of("cluster-growth", {})
    keys = []
    while (key := EXPERIMENTS["cluster-growth"].next_unit(record)) is not None:
        keys.append(key)
        record.units.append(Unit(key, "2026-11-26T08:00:00", 1.0, 0.0, {}))
    assert keys == [f"{brokers}/{run}" for run in (1, 2, 3) for brokers in range(1, 9)]
    command = EXPERIMENTS["cluster-growth"].command(record, "8/2")
    assert command == ["-m", "tests.simulation.growth", "--brokers", "8", "--seed", "1"]


def test_rows_of_a_cluster_need_three_warm_up_pairs() -> None:
    settings = EXPERIMENTS["cluster"].settings(1.0)
    assert (settings["pairs"], settings["warm_up_pairs"]) == (9, 3)
    titles = {row["title"] for row in settings["rows"].values()}
    assert "start of all processes to the first acks=all response" in titles
