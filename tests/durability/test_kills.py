"""Twenty SIGKILLs at random during produce; two hundred are taken by hand (docs/durability.md)."""

from __future__ import annotations

from pathlib import Path

from tests.durability.kills import run

KILLS = 20


def test_killed_broker_loses_nothing_that_it_acknowledged(tmp_path: Path, seed: int) -> None:
    messages, _torn = run(tmp_path / "data", KILLS, seed)
    assert messages >= KILLS
