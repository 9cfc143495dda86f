from __future__ import annotations

import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tests.simulation.simulation import Outcome, Simulation

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 3)


def run(seed: int, seconds: float = 120) -> Outcome:
    print(f"python -m tests.simulation --brokers 3 --seed {seed}")
    simulation = Simulation(seed, 3, seconds)
    try:
        return simulation.run()
    finally:
        simulation.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_three_brokers_keep_all_invariants(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.violations
    for what in (
        "sends",
        "polls with records",
        "leader changes",
        "ISR changes",
        "logs truncated",
        "controller changes",
        "images compared",
        "transactions committed, protocol 1",
        "transactions committed, protocol 2",
        "coordinator replays checked",
        "offsets committed, classic group",
        "offsets committed, consumer group",
    ):
        assert outcome.counts[what], what


def test_no_process_of_a_run_is_left_after_it() -> None:
    """Its destructors would run later, and report errors at the exit of the interpreter."""
    simulation = Simulation(1, 3, 15)
    simulation.run()
    processes = [machine.process for machine in simulation.machines]
    loops = weakref.WeakSet([simulation.client_loop, *(each.loop for each in processes if each)])
    del processes
    assert loops
    simulation.close()
    assert not loops


def test_a_seed_of_a_cluster_is_one_trace_in_two_interpreters() -> None:
    arguments = ["--brokers", "3", "--seed", "5"]
    command = [sys.executable, "-m", "tests.simulation", *arguments, "--seconds", "60"]
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


def test_a_seed_of_a_cluster_is_one_trace_after_another_seed() -> None:
    """A run that fails in a series of runs fails alone, too."""
    command = [sys.executable, "-m", "tests.simulation", "--brokers", "3", "--seconds", "40"]
    series, alone = (
        subprocess.run(
            [*command, "--seed", seed, "--runs", runs],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed, runs in (("6", "2"), ("7", "1"))
    )
    assert series[1].split(" steps,")[0] == alone[0].split(" steps,")[0]
    assert alone[0].startswith("seed 7: trace ")
