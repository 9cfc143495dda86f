from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import __main__
from tests.simulation.__main__ import REQUIRED_ALONE, REQUIRED_IN_CLUSTER, Batch, seeds
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


def end_of(counts: Counter[str], *arguments: str, failed: dict[int, str] | None = None) -> int:
    """Return the exit code of a series of runs with these counts."""
    batch = Batch(3, simulated_s=360.0, cpu_s=9.0, counts=counts, failed=failed or {})
    return __main__._end(batch, __main__._options([*arguments]))


TABLES = [
    pytest.param("1", REQUIRED_ALONE, id="alone"),
    pytest.param("3", REQUIRED_IN_CLUSTER, id="cluster"),
]


@pytest.mark.parametrize(("brokers", "required"), TABLES)
def test_fresh_seeds_fail_without_an_event_of_a_required_kind(
    capsys: pytest.CaptureFixture[str], brokers: str, required: tuple[str, ...]
) -> None:
    arguments = ("--minutes", "3", "--brokers", brokers)
    covered = Counter(dict.fromkeys(required, 1))
    assert end_of(covered, *arguments) == 0
    assert "not covered" not in capsys.readouterr().out
    for what in required:
        assert end_of(covered - Counter([what]), *arguments) == 1, what
        assert f"not covered: {what}\n" in capsys.readouterr().out
    assert end_of(Counter(), *arguments) == 1
    assert f"not covered: {', '.join(required)}\n" in capsys.readouterr().out
    assert end_of(Counter(), "--brokers", brokers) == 0


@pytest.mark.parametrize("minutes", [(), ("--minutes", "3")])
def test_a_violation_fails_also_if_all_kinds_of_events_occurred(minutes: tuple[str, ...]) -> None:
    covered = Counter(dict.fromkeys(REQUIRED_IN_CLUSTER, 1))
    assert end_of(covered, "--brokers", "3", *minutes, failed={5: "lost a record"}) == 1


def test_a_cluster_has_to_cover_operations_elections_truncations_and_ends() -> None:
    assert {
        "operations",
        "leader changes",
        "logs truncated",
        "ISR changes",
        "session expiries",
        "controller changes",
        "unclean stops",
    } <= set(REQUIRED_IN_CLUSTER)


def test_short_runs_of_fresh_seeds_end_with_an_error_and_name_what_they_do_not_cover() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--minutes", "0.0001", "--seconds", "0.1"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "seeds with violations: none" in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == 1
    prefix = "not covered: "
    (line,) = [each for each in ended.stdout.splitlines() if each.startswith(prefix)]
    # Some names have a comma.
    missing = set(line.removeprefix(prefix).split(", "))
    assert missing < set(", ".join(REQUIRED_ALONE).split(", "))
