from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import __main__
from tests.simulation.__main__ import seeds
from tests.simulation.simulation import Outcome, Simulation

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2)


def run(seed: int, seconds: float = 120) -> Outcome:
    print(f"seed {seed}")
    simulation = Simulation(seed, run_s=seconds)
    try:
        return simulation.run()
    finally:
        simulation.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_keeps_all_invariants(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.violations
    for what in ("sends", "polls with records", "broker starts", "replays checked"):
        assert outcome.counts[what], what


def test_one_seed_is_one_trace_in_two_interpreters_with_different_hash_seeds() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", "5", "--seconds", "40"]
    outputs = [
        subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    traces = [output.split(" steps,")[0] for output in outputs]
    assert traces[0] == traces[1]
    assert "trace" in traces[0]


def test_seeds_give_different_runs() -> None:
    assert len({run(seed, 20).digest for seed in (11, 12, 13)}) == 3


def test_seeds_are_a_range_or_fresh_ones_for_some_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*seeds(7, 3, None)] == [7, 8, 9]
    now = iter(range(0, 1_000, 25))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    monkeypatch.setattr("time.time", lambda: 5)
    monkeypatch.setattr(__main__, "FRESH_SEEDS_MIN", 3)
    assert [*seeds(7, 3, minutes=2)] == [5_000, 5_001, 5_002, 5_003]
    monkeypatch.setattr(__main__, "FRESH_SEEDS_MIN", 6)
    assert [*seeds(7, 3, minutes=2)] == [5_000, 5_001, 5_002, 5_003, 5_004, 5_005]
