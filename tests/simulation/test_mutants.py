from __future__ import annotations

import time

import pytest

from odradek.log.unified_log import UnifiedLog
from tests.simulation.cluster_mutants import CLUSTER_MUTANTS
from tests.simulation.coordinator_mutants import COORDINATOR_MUTANTS
from tests.simulation.mutants import MUTANTS, RUNS_MAX, hunt, planted
from tests.simulation.planting import Patches

DAY_S = 86_400
TRIED = 2
RUN_MAX_S = 20
"""Duration of a run on a machine with other work. A run takes 2 to 6 s of CPU time."""
SINGLE_BROKER = (
    "ack-before-fsync",
    "torn-tail",
    "no-producers",
    "recovery-point-high",
    "high-watermark-above-end",
    "names-not-synced",
    "no-dedupe",
)
"""Mutants of a single broker that are found within a few runs."""
OF_CLUSTERS = (*CLUSTER_MUTANTS, *COORDINATOR_MUTANTS)
ROTATION = (*SINGLE_BROKER, *(mutant.name for mutant in OF_CLUSTERS))


def in_rotation(day: int) -> list[str]:
    """Return the mutants of a day."""
    return [ROTATION[(TRIED * day + number) % len(ROTATION)] for number in range(TRIED)]


@pytest.mark.timeout(RUNS_MAX * RUN_MAX_S)
@pytest.mark.parametrize("number", range(TRIED))
def test_a_planted_bug_is_found(number: int) -> None:
    """The limit is the one of an attempt, 200 runs.

    The median attempt may need 40, so half of the attempts on a rare bug would miss a limit of 40.
    One of 32 misses the limit of 200.
    """
    day = int(time.time()) // DAY_S
    name, seed = in_rotation(day)[number], day * 1_000
    print(f"python -m tests.simulation.mutants run {name} --seed {seed}")
    _, outcome = hunt(MUTANTS[name], seed, RUNS_MAX)
    assert outcome is not None


def test_the_rotation_has_all_planted_bugs_of_a_cluster() -> None:
    assert len(OF_CLUSTERS) == 17
    days = range(len(ROTATION))
    assert {name for day in days for name in in_rotation(day)} == set(ROTATION)


def test_a_planted_bug_is_removed_afterwards() -> None:
    before = dict(vars(UnifiedLog))
    for mutant in MUTANTS.values():
        with planted(mutant):
            pass
    assert dict(vars(UnifiedLog)) == before


def test_a_patch_needs_an_existing_function_and_notes_its_calls() -> None:
    patches = Patches()
    with pytest.raises(AssertionError, match="no such_method"):
        patches.replace(UnifiedLog, "such_method", lambda *_: None)

    class Owner:
        def method(self) -> int:
            return 1

    patches.replace(Owner, "method", lambda _: 2)
    assert patches.uncalled == {"method"}
    assert Owner().method() == 2
    assert not patches.uncalled
    patches.undo()
    assert Owner().method() == 1
