"""The programs of examples/delivery keep their guarantees when they and the broker are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.delivery.harness import PROGRAMS, Outcome, run

from testkit.peer import start_odradek

pytestmark = pytest.mark.timeout(1800)

KILLS = 4


def _run(program: str, directory: Path, seed: int) -> Outcome:
    broker = start_odradek(directory)
    try:
        outcome, broker = run(program, broker, KILLS, seed)
    finally:
        broker.stop()
    assert (outcome.program_kills, outcome.broker_kills) == (KILLS, KILLS // 2)
    return outcome


def test_at_most_once_duplicates_nothing(tmp_path: Path, seed: int) -> None:
    assert _run("at_most_once", tmp_path, seed).doubled == 0


def test_at_least_once_loses_nothing(tmp_path: Path, seed: int) -> None:
    assert _run("at_least_once", tmp_path, seed).lost == 0


def test_exactly_once_loses_and_duplicates_nothing(tmp_path: Path, seed: int) -> None:
    outcome = _run("exactly_once", tmp_path, seed)
    assert (outcome.lost, outcome.doubled) == (0, 0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_program_describes_its_usage(program: str) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "delivery" / f"{program}.py"
    assert f"python examples/delivery/{program}.py HOST:PORT FROM TO" in path.read_text("utf-8")
