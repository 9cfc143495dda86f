"""Tables of the further comparisons: the deciding side and the equal settings."""

from __future__ import annotations

from typing import Any

from benchmarks.evidence import further
from benchmarks.evidence.compared import FirstTable
from benchmarks.evidence.record import Record, Unit, Values

from benchmarks import minimal_broker


def record_of(experiment: Any, units: dict[str, Values]) -> Record:
    found = Record(experiment.name, "c" * 40, "t" * 40, 1, {"processor": "fast"}, {})
    found.settings = experiment.settings(1.0)
    found.units = [Unit(key, "2026-11-23T08:00:00", 1.0, 0.0, v) for key, v in units.items()]
    return found


def sides(odradek: float, c_each: float, c_together: float) -> Values:
    values = {"odradek": odradek, "c_each": c_each, "c_together": c_together}
    return {side: {minimal_broker.METRIC: value} for side, value in values.items()}


def test_each_size_is_run_four_times() -> None:
    experiment = further.CProgram()
    record = record_of(experiment, {})
    keys = []
    while (key := experiment.next_unit(record)) is not None:
        keys.append(key)
        record.units.append(Unit(key, "", 1.0, 0.0))
    sizes = [size.key for size in minimal_broker.SIZES]
    assert keys == [f"{size}/{run}" for size in sizes for run in (1, 2, 3, 4)]
    assert set(sizes) == set(experiment.bounds)


def test_the_c_program_with_a_response_for_each_request_decides() -> None:
    units = {"one_record/1": sides(17, 12, 9), "one_record/2": sides(20, 10, 8.5)}
    units |= {"large_batch/1": sides(120, 100, 60)}
    text = further.CProgram().snippets(record_of(further.CProgram(), units))["c-program"]
    assert "| 1 record of 200 bytes | 17 | 10 | 8.5 | 1.7 | <= 1.7: met | 2 |" in text
    assert "| 100 | 60 | 1.2 | <= 1.15: **missed** | 2 |" in text
    assert "| 1 record of 200 bytes | C program | 12, 10 |" in text


def test_equal_sockets_have_all_rows_of_the_first_table_and_the_same_targets() -> None:
    equal, shipped = further.EqualSockets(), FirstTable()
    assert equal.rows_of_groups() == shipped.rows_of_groups()
    assert equal.settings(1.0) == shipped.settings(1.0)
    assert equal.targets == shipped.targets
    # The ratios of these starts straddle the bound. Only the table as shipped gets more pairs.
    starts = (0.09, 0.09, 0.09, 0.11, 0.11, 0.11)
    units = {f"start/{n}": {"start": {"odradek": {"ms": ms}, "kafka": {"ms": 1.0}}}
             for n, ms in enumerate(starts, 1)}  # fmt: skip
    assert shipped.is_undecided(record_of(shipped, units), "start")
    assert not equal.is_undecided(record_of(equal, units), "start")


def test_the_record_of_equal_sockets_has_equal_tuning_but_for_storage() -> None:
    ours, theirs = further.EqualSockets().tuning().values()
    for key in ("congestion control", "send buffer", "file system"):
        assert ours[key] == theirs[key]
    assert "reno" in ours["congestion control"]


def test_each_state_of_a_socket_is_shown_once() -> None:
    state = "reno, send buffer 425984 bytes in the kernel"
    unit = {"socket": {name: {"state": state} for name in ("odradek", "kafka")}}
    record = record_of(
        further.EqualSockets(), {"latency/1": unit, "latency/2": unit, "start/1": {}}
    )
    assert further.socket_states(record) == [
        f"A socket of Odradek in the kernel: {state}.",
        f"A socket of Apache Kafka in the kernel: {state}.",
    ]
