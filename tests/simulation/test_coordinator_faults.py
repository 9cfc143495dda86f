"""The combined faults of transactions: each shows the planted bug for which it was made."""

from __future__ import annotations

import pytest

from tests.simulation.coordinator_faults import COORDINATOR_FAULTS
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.scheduler import SECOND
from tests.simulation.simulation import Outcome, Simulation

RUN_S = 40
TEMPO = 2.0
INTERVAL_S = 6
RUNS_MAX = 10
"""Limit of the runs with a planted bug. Most are found in the first three."""
RUN_MAX_S = 60
"""Duration of a run on a machine with other work. A run takes 4 to 6 s of CPU time."""
BUG_OF = {
    "late verification": "no-verification-guard",
    "deposed coordinator": "markers-with-newest-epoch",
}


def run(seed: int, fault: str) -> Outcome:
    """Run a cluster with this fault only, once in six seconds."""
    simulation = Simulation(seed, 3, RUN_S, swarm=False)
    simulation.tempo = TEMPO
    cause, simulation.nemesis._schedule = simulation.nemesis._causes[fault], lambda: None
    for second in range(3, RUN_S, INTERVAL_S):
        machine = simulation.machines[second % 3]
        simulation.scheduler.after(second * SECOND, cause, machine)
    try:
        return simulation.run()
    finally:
        simulation.close()


def test_each_fault_has_a_planted_bug() -> None:
    assert BUG_OF.keys() == COORDINATOR_FAULTS.keys()


@pytest.mark.timeout(RUNS_MAX * RUN_MAX_S)
@pytest.mark.parametrize("fault", BUG_OF)
def test_a_combined_fault_shows_its_planted_bug(fault: str) -> None:
    assert not run(1, fault).violations
    with planted(MUTANTS[BUG_OF[fault]]):
        assert any(run(seed, fault).violations for seed in range(1, RUNS_MAX + 1))
