"""A few of the kills of `compaction_kills` on every run."""

from __future__ import annotations

from pathlib import Path

from tests.durability.compaction_kills import run


def test_a_broker_killed_while_it_compacts_loses_no_value(tmp_path: Path, seed: int) -> None:
    done = run(4, seed, tmp_path / "data")
    assert done["cleanings"] > 0
