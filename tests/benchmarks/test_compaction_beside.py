"""The computations of the benchmark of loads beside a compaction, without measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.compaction import LOAD_FACTOR, batches_of_keys, buffer_for, speed
from benchmarks.compaction_beside import Phase, has_begun, order
from benchmarks.evidence.measured import CompactionBeside
from benchmarks.evidence.record import Record, Unit

from odradek.log.cleaner.offset_map import SLOT_BYTES
from odradek.records.record import iter_records


def record_of(alone: list[dict[str, int]], beside: list[dict[str, int]]) -> Record:
    """A record of Odradek with these times of produce requests, a pair each."""

    def phase(counts: dict[str, int]) -> dict[str, Any]:
        return {"seconds": 2.0, "produce_us": counts, "fetch_us": {"1": 1}}

    units = [
        Unit(f"odradek/{n}", "", 1.0, 0.0, {"alone": phase(each[0]), "beside": phase(each[1])})
        for n, each in enumerate(zip(alone, beside, strict=True), 1)
    ]
    settings = {"pairs": len(units), "keys": 10, "segment_bytes": 1, "log_bytes": 20_000_000}
    return Record("compaction-beside", "c", "t", 1, {}, settings, units=units)


def table_of(record: Record) -> str:
    return CompactionBeside().snippets(record)["compaction-beside"]


def test_percentiles_are_those_of_all_requests_together() -> None:
    record = record_of([{"1": 99}, {"5": 1}], [{"1": 100}, {"1": 100}])
    figures = CompactionBeside().pooled(list(record.values.values()), "alone")
    assert figures["round trips/s"] == 25
    assert (figures["produce p99"], figures["produce max"]) == (1, 5)


def test_the_times_of_a_phase_are_counted_by_the_microsecond() -> None:
    phase = Phase(1.0, [1e-6, 1.2e-6, 7e-6], [9e-6])
    assert phase.values() == {"seconds": 1.0, "produce_us": {"1": 2, "7": 1}, "fetch_us": {"9": 1}}


def test_which_phase_comes_first_changes_and_the_first_says_how_long_they_last() -> None:
    assert [order(pair)[0] for pair in range(4)] == ["beside", "alone", "beside", "alone"]


@pytest.mark.parametrize(
    ("alone_us", "beside_us", "expected"),
    [
        (100, 110, "<= 1.1: met |"),
        (100, 1099, "<= 1.1: met (under 1 ms apart) |"),
        (100, 1101, "<= 1.1: **missed** |"),
        (9000, 9950, "<= 1.1: met (under 1 ms apart) |"),
    ],
)
def test_a_millisecond_more_is_felt_and_less_counts_as_equal(
    alone_us: int, beside_us: int, expected: str
) -> None:
    text = table_of(record_of([{str(alone_us): 5}], [{str(beside_us): 5}]))
    (line,) = [line for line in text.splitlines() if line.startswith("| produce p99,")]
    assert line.endswith(expected)
    (line,) = [line for line in text.splitlines() if line.startswith("| produce p999")]
    assert line.endswith("|  |")


def test_the_speed_of_the_compaction_is_that_of_all_pairs() -> None:
    text = table_of(record_of([{"1": 1}] * 2, [{"1": 1}] * 2))
    assert "Odradek compacted 10 MB of log a second at the same time." in text


def test_every_key_is_written_twice() -> None:
    keys = [bytes(record.key) for batch in batches_of_keys(3000) for record in iter_records(batch)]
    assert len(keys) == 6000
    assert sorted(keys[:3000]) == sorted(keys[3000:])
    assert len(set(keys)) == 3000


def test_a_dedupe_buffer_that_is_too_small_needs_more_passes(tmp_path: Path) -> None:
    keys = 5_000
    found = speed(tmp_path, keys, keys * SLOT_BYTES * 3 // 4)
    assert found["passes"] > 1
    # A later pass reads again what an earlier one left.
    assert found["records_read"] > 2 * keys
    assert found["left_bytes"] == found["log_bytes"] / 2
    assert keys * SLOT_BYTES < buffer_for(keys) * LOAD_FACTOR


def test_a_new_worker_begins_a_compaction_although_the_last_one_used_more_time() -> None:
    assert has_begun({7: 5.0}, {8: 0.1})
    assert has_begun({7: 5.0}, {7: 5.1})
    assert not has_begun({7: 5.0}, {7: 5.01, 8: 0.01})
