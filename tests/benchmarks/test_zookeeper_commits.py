"""Commits to ZooKeeper and to the topic of offsets: a small run, and the table of a record."""

from __future__ import annotations

from pathlib import Path

from benchmarks.evidence.paper import ZooKeeperCommits
from benchmarks.evidence.record import Record, Unit

from benchmarks import zookeeper_commits


def test_a_run_measures_each_side_with_one_and_with_many_commits_in_flight(tmp_path: Path) -> None:
    with zookeeper_commits.running(tmp_path) as measure:
        found = measure(1, 0.0)
    assert set(found) == set(zookeeper_commits.SIDES)
    for rows in found.values():
        assert set(rows) == set(zookeeper_commits.ROWS)
        assert all(row["rate"] > 0 for row in rows.values())


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    units = []
    for number, rate in enumerate((100.0, 200.0, 400.0), 1):
        rates = {"zookeeper": 100.0, "zookeeper_unsynced": 150.0, "offsets_topic": rate}
        values = {
            side: {row: {"rate": each, "cpu_us": 50.0} for row in zookeeper_commits.ROWS}
            for side, each in rates.items()
        }
        units.append(Unit(f"round/{number}", "2026-11-26T08:00:00", 1.0, 0.0, values))
    experiment = ZooKeeperCommits()
    settings = experiment.settings(1.0)
    record = Record(experiment.name, "c" * 40, "t" * 40, 1, {"cpu": "fast"}, settings, units=units)
    text = experiment.snippets(record)[experiment.name]
    assert "| one commit in flight | commits/s | 100 | 150 | 200 | 2 |" in text
    assert "| one commit in flight | commits/s | `__consumer_offsets` | 100, 200, 400 |" in text
