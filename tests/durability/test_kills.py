"""SIGKILLs at random during produce; `make evidence-sigkills` makes more (docs/durability.md)."""

from __future__ import annotations

from pathlib import Path

from tests.durability.kills import run

KILLS = 20
TORN_TAILS = 5
"""Number of kills that must hit a half-done write, which the next start cuts off."""


def test_killed_broker_loses_nothing_that_it_acknowledged(tmp_path: Path, seed: int) -> None:
    messages, torn_tails = run(tmp_path / "data", KILLS, seed, TORN_TAILS)
    assert messages >= KILLS
    assert torn_tails >= TORN_TAILS
