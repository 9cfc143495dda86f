"""What the benchmark of a compaction's neighbours computes, apart from what it measures."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.compaction import batches_of_keys
from benchmarks.compaction_beside import Phase, order, percentile, ratios
from benchmarks.compaction_report import METRICS, section, verdict

from odradek.records.record import iter_records


def measured(alone_us: float, beside_us: float) -> dict[str, Any]:
    figures = {
        phase: {"seconds": 2.0, "rate": 1.0}
        | {f"{request}.{metric}": us for request in ("produce", "fetch") for metric in METRICS}
        for phase, us in (("alone", alone_us), ("beside", beside_us))
    }
    values = {phase: [found] for phase, found in figures.items()}
    return {"mb": 10.0, "values": values, "pooled": figures, "ratios": ratios(figures)}


def test_a_percentile_is_a_value_that_was_measured() -> None:
    times = [float(number) for number in range(1, 1001)]
    assert [percentile(times, share) for share in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 1000]
    assert percentile([7.0], 0.999) == 7.0


def test_percentiles_are_those_of_all_requests_together() -> None:
    pooled = Phase()
    pooled.add(Phase(1.0, [1e-6] * 99, [1e-6] * 99))
    pooled.add(Phase(1.0, [5e-6], [9e-6]))
    figures = pooled.figures()
    assert figures["rate"] == 50
    assert figures["produce.p99"] == pytest.approx(1)
    assert figures["produce.max"] == pytest.approx(5)
    assert figures["fetch.p999"] == pytest.approx(9)


def test_which_phase_comes_first_changes_and_the_first_says_how_long_they_last() -> None:
    assert [order(pair)[0] for pair in range(4)] == ["beside", "alone", "beside", "alone"]


@pytest.mark.parametrize(
    ("alone_us", "beside_us", "expected"),
    [
        (100.0, 110.0, "<= 1.1: met"),
        (100.0, 1099.0, "met (under 1 ms apart)"),
        (100.0, 1101.0, "<= 1.1: **missed**"),
        (9000.0, 9950.0, "met (under 1 ms apart)"),
    ],
)
def test_a_millisecond_more_is_felt_and_less_counts_as_equal(
    alone_us: float, beside_us: float, expected: str
) -> None:
    found = measured(alone_us, beside_us)
    assert verdict(found, "produce.p99").startswith(expected.split(":")[0])
    assert ("missed" in verdict(found, "fetch.p50")) == ("missed" in expected)
    assert verdict(found, "produce.p999") == ""


def test_the_page_shows_both_phases_and_all_values() -> None:
    result = {
        "pairs": 1,
        "keys": 10,
        "segment_bytes": 1 << 24,
        "machine": {"date": "today"},
        "brokers": {"odradek": measured(100.0, 5000.0), "kafka": measured(1.0, 9000.0)},
    }
    page = section(result)
    assert "| produce p99, µs | 100 | 5,000 | 50 | <= 1.1: **missed** |" in page
    assert "Odradek compacted 5 MB of log a second meanwhile." in page
    assert page.count("missed") == 4  # the other broker has no target
    assert "- Apache Kafka, beside: seconds 2; rate 1; produce.p50 9,000" in page


def test_every_key_is_written_twice() -> None:
    keys = [bytes(record.key) for batch in batches_of_keys(3000) for record in iter_records(batch)]
    assert len(keys) == 6000
    assert sorted(keys[:3000]) == sorted(keys[3000:])
    assert len(set(keys)) == 3000
