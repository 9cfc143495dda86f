"""A correct broker gives no anomaly; each rule that it breaks gives its own."""

from __future__ import annotations

import pytest
from conformance.histories.analysis import analyse, render
from conformance.histories.history import parse
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.model import BROKEN, World

STEPS = 600
SEEDS = 12


@given(st.integers(0, 1 << 32), st.integers(1, STEPS))
def test_a_correct_broker_gives_nothing_that_kafka_forbids(seed: int, steps: int) -> None:
    report = analyse(parse(World(seed).run(steps)))
    assert not report.forbidden, render(report)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_rule_is_found_by_its_anomaly(broken: str) -> None:
    found: set[str] = set()
    for seed in range(SEEDS):
        found |= analyse(parse(World(seed, broken).run(STEPS))).kinds
    assert found & BROKEN[broken], found


def test_the_order_of_the_lines_does_not_change_the_report() -> None:
    lines = World(7, "lso-high").run(STEPS)
    assert render(analyse(parse(lines))) == render(analyse(parse(reversed(lines))))
