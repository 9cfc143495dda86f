"""Experiments on the schema registry: units, tables, and small runs of their measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.evidence.catalogue import EXPERIMENTS
from benchmarks.evidence.record import Record, Unit, Values

from benchmarks import registry_reads, registry_start
from tests.registry import verdicts


def record_of(name: str, units: dict[str, Values]) -> Record:
    settings = EXPERIMENTS[name].settings(1.0)
    found = Record(name, "c" * 40, "t" * 40, 7, {"processor": "fast"}, settings)
    found.units = [Unit(key, "2026-11-27T08:00:00", 1.0, 0.0, each) for key, each in units.items()]
    return found


def pair(bare: float, registry: float) -> Values:
    return {
        kind: dict.fromkeys(registry_reads.METRICS, value)
        for kind, value in (("bare", bare), ("registry", registry))
    }


def units_of(name: str) -> list[str]:
    """Return the keys of the units that a run records, in order."""
    experiment = EXPERIMENTS[name]
    keys: list[str] = []
    while (key := experiment.next_unit(record_of(name, {each: {} for each in keys}))) is not None:
        keys.append(key)
    return keys


def test_units_of_each_experiment() -> None:
    assert len(units_of("registry-reads")) == 9
    assert units_of("registry-start") == [*(f"full/{n}" for n in range(1, 8)), "second"]
    assert units_of("registry-verdicts") == list(verdicts.KINDS)
    assert units_of("registry-kills") == ["seed 7"]


def test_reads_are_judged_by_the_median_of_the_ratios() -> None:
    units = {"pair/1": pair(100, 79), "pair/2": pair(10, 9), "pair/3": pair(1_000, 795)}
    text = EXPERIMENTS["registry-reads"].snippets(record_of("registry-reads", units))
    assert text["registry-reads"].count("| 0.795 | >= 0.8: **missed** |") == 2


def test_starts_are_judged_by_their_medians() -> None:
    full = {"ready_s": 1.5, "memory_bytes": 160.0 * (1 << 20)}
    units: dict[str, Values] = {"full/1": full, "second": {"ready_ms": [100.0, 120.0, 900.0]}}
    text = EXPERIMENTS["registry-start"].snippets(record_of("registry-start", units))
    rows = text["registry-start"].splitlines()[-3:]
    assert [row.split("|")[-2].strip() for row in rows] == [
        "<= 2: met",
        "<= 150: **missed**",
        "<= 200: met",
    ]


def test_verdicts_and_kills_name_their_seed_and_counts() -> None:
    units: dict[str, Any] = {"avro": {"compatible": 10, "incompatible": 5, "invalid": 2}}
    found = record_of("registry-verdicts", units)
    experiment = EXPERIMENTS["registry-verdicts"]
    text = experiment.snippets(found)["registry-verdicts"]
    assert "Seed 7." in text and "| avro | 10 | 5 | 2 | 0 | 0 |" in text
    killed = {"seed 7": {"seed": 7, "kills": 50, "schemas": 1_234}}
    text = EXPERIMENTS["registry-kills"].snippets(record_of("registry-kills", killed))
    assert "| 7 | 50 | 1,234 | 0 | 0 |" in text["registry-kills"]


def test_both_servers_return_the_same_bytes() -> None:
    with registry_reads.Servers() as servers:
        found = servers.pair(1, 160)
    assert set(found) == set(registry_reads.KINDS)
    assert all(value > 0 for each in found.values() for value in each.values())


def test_a_registry_with_schemas_in_its_topic_is_measured(tmp_path: Path) -> None:
    with registry_start.filled_broker(tmp_path / "broker", 50) as address:
        found = registry_start.start(address, 50)
    assert 0 < found["ready_s"] < registry_start.TIMEOUT_S
    assert found["memory_bytes"] > 10_000_000
