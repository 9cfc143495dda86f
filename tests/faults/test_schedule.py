"""The faults of a seed."""

from __future__ import annotations

from collections import Counter

import pytest
from conformance.faults.nemesis import FaultNemesis
from conformance.faults.schedule import ALONE, DECK, KILLS, LASTING, Step, listed, steps


def _names(found: list[Step]) -> list[str]:
    return [name for step in found for name in (step.fault, step.during) if name]


@pytest.mark.parametrize("seed", range(20))
def test_a_deck_has_25_faults_of_which_15_are_sigkills(seed: int) -> None:
    names = _names(steps(seed, 25))
    assert Counter(names) == DECK
    assert sum(name in KILLS for name in names) == 15


@pytest.mark.parametrize("faults", [1, 7, 30, 75])
def test_a_run_has_the_faults_that_it_was_asked_for(faults: int) -> None:
    assert len(_names(steps(3, faults))) == faults


def test_a_sigkill_happens_only_during_a_fault_that_lasts() -> None:
    found = [step for seed in range(50) for step in steps(seed, 25) if step.during]
    assert found
    for step in found:
        assert step.fault in LASTING
        assert step.during in KILLS.keys() - ALONE


def test_a_seed_has_the_same_steps_again_and_another_seed_has_others() -> None:
    assert steps(1, 25) == steps(1, 25) != steps(2, 25)


@pytest.mark.parametrize("fault", DECK)
def test_each_fault_of_the_deck_can_be_played(fault: str) -> None:
    assert callable(getattr(FaultNemesis, "_" + fault.replace("-", "_")))


def test_faults_can_be_listed_by_name() -> None:
    assert listed("kill-all,one-way+kill-leader") == [
        Step("kill-all"),
        Step("one-way", "kill-leader"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kill-none", "no fault kill-none, but kill-leader"),
        ("kill-all+kill-leader", "kill-leader does not happen during kill-all"),
        ("one-way+kill-all", "kill-all does not happen during one-way"),
    ],
)
def test_a_list_of_faults_that_cannot_be_played_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        listed(text)
