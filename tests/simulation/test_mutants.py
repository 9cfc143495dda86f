from __future__ import annotations

import time

import pytest

from odradek.log.unified_log import UnifiedLog
from tests.simulation.mutants import MUTANTS, hunt, planted
from tests.simulation.planting import Patches

DAY_S = 86_400
TRIED = 2
RUNS_MAX = 40
"""Most runs of the test. `python -m tests.simulation.mutants run` allows 200."""
QUICK = (
    "ack-before-fsync",
    "torn-tail",
    "no-producers",
    "recovery-point-high",
    "high-watermark-above-end",
    "names-not-synced",
    "no-dedupe",
    "shrink-not-awaited",
    "no-maximal-isr",
    "truncation-to-high-watermark",
    "lost-write-repeated",
    "high-watermark-below-min-isr",
    "unclean-replica-in-elr",
)
"""Mutants that are found within a few runs."""


def in_rotation() -> list[str]:
    """Return the mutants of the day."""
    day = int(time.time()) // DAY_S
    return [QUICK[(TRIED * day + number) % len(QUICK)] for number in range(TRIED)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(TRIED))
def test_a_planted_bug_is_found(number: int) -> None:
    name, seed = in_rotation()[number], int(time.time()) // DAY_S * 1_000
    print(f"python -m tests.simulation.mutants run {name} --seed {seed}")
    _, outcome = hunt(MUTANTS[name], seed, RUNS_MAX)
    assert outcome is not None


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
