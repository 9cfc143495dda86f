"""The exploration finds planted bugs, and no violation in the rules of the product.

`python -m tests.exploration.explore` is the complete exploration. The tests visit a part of it.
"""

from __future__ import annotations

import pytest

from tests.exploration.explore import Exploration, Explorer, canonical, permuted
from tests.exploration.model import FAULTS, Rules, initial_state, steps
from tests.exploration.planted_bugs import PLANTED_BUGS


def explored(rules: Rules, faults: int, states_max: int | None = None) -> Exploration:
    return Explorer(rules, faults, states_max).run()


@pytest.mark.parametrize("min_isr", [1, 2])
def test_two_records_and_two_epochs_with_one_fault_have_no_violation(min_isr: int) -> None:
    result = explored(Rules(min_isr, records=2, epochs=2), faults=1)
    assert result.violation is None, result.trace
    assert result.complete
    assert result.states > 5_000


@pytest.mark.parametrize("min_isr", [1, 2])
def test_beginning_of_the_complete_exploration_has_no_violation(min_isr: int) -> None:
    result = explored(Rules(min_isr), faults=2, states_max=2_500)
    assert result.violation is None, result.trace


# The bounds (records, epochs, kinds of faults, number of faults) in which each bug shows.
BOUNDS = {
    "one-step-truncation": (1, 3, ("move",), 2),
    "refusal-keeps-partition-epoch": (1, 1, ("fence", "lag"), 2),
    "positions-of-earlier-epoch": (1, 3, ("move",), 2),
}


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_planted_bug_is_found(bug: str) -> None:
    records, epochs, kinds, faults = BOUNDS.get(bug, (1, 2, FAULTS, 2))
    result = explored(PLANTED_BUGS[bug](2, records, epochs, kinds), faults, states_max=20_000)
    assert result.violation is not None
    assert result.trace


@pytest.mark.parametrize("bug", BOUNDS)
def test_bounds_of_a_planted_bug_have_no_violation_without_it(bug: str) -> None:
    records, epochs, kinds, faults = BOUNDS[bug]
    result = explored(Rules(2, records, epochs, kinds), faults)
    assert result.violation is None, result.trace
    assert result.complete


def test_states_that_differ_in_names_have_one_representative() -> None:
    rules = Rules()
    state = canonical(rules, initial_state())
    for _ in range(8):
        after = [step.state for step in steps(rules, state) if step.state is not None]
        for each in after:
            expected = canonical(rules, each)
            for order in ((1, 2, 0), (2, 1, 0)):
                assert canonical(rules, permuted(each, order)) == expected
        state = canonical(rules, after[len(after) // 2])
