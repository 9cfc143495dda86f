"""The power of all brokers is cut at the same time, for topics with and without flush.messages."""

from __future__ import annotations

from collections import Counter

import pytest
from conformance.histories.analysis import analyse
from conformance.histories.history import OK, parse

from tests.simulation.machine import Machine
from tests.simulation.nemesis import Nemesis
from tests.simulation.scheduler import SECOND
from tests.simulation.simulation import Simulation
from tests.simulation.world_settings import FLUSHES

RUN_S = 30
CUTS_S = (12, 21)
SEEDS = (1, 2, 3, 4)
FLUSHED, BUFFERED = "flushed", "triple"
LOST = ("lost-write", "unseen")


class PowerCuts(Nemesis):
    """No fault but the loss of power of all machines at fixed times."""

    def start(self) -> None:
        for at_s in CUTS_S:
            self._scheduler.after(at_s * SECOND, self._cut)

    def _cut(self) -> None:
        for machine in self._machines:
            self._simulation.cut_power(machine)

    def takes_power_of(self, machine: Machine) -> bool:
        return False


def _run(seed: int) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return the acknowledged and the lost records of each topic, and the counts of the run."""
    simulation = Simulation(seed, 3, RUN_S, swarm=False)
    try:
        simulation.nemesis = PowerCuts(simulation)
        # A marker is a record, too: without a flush its loss leaves a transaction open for ever.
        flushed = {
            each.name for each in simulation.topics if FLUSHES.items() <= each.configs.items()
        }
        simulation.safe_keys = [key for key in simulation.keys if key.topic in flushed]
        topics = {key.number: key.topic for key in simulation.keys}
        outcome = simulation.run()
    finally:
        simulation.close()
    assert not outcome.violations
    history = parse(outcome.history)
    assert history.complete
    acknowledged = Counter(
        topics[send.key] for op in history.ops for send in op.sends if send.status == OK
    )
    anomalies = analyse(history).forbidden
    lost = Counter(topics[each.detail["key"]] for each in anomalies if each.kind in LOST)
    return acknowledged, lost, outcome.counts


@pytest.fixture(scope="module")
def runs() -> list[tuple[Counter[str], Counter[str], Counter[str]]]:
    return [_run(seed) for seed in SEEDS]


def test_flush_messages_loses_nothing_when_all_brokers_lose_their_power(
    runs: list[tuple[Counter[str], Counter[str], Counter[str]]],
) -> None:
    for acknowledged, lost, counts in runs:
        assert counts["broker ends: power"] == 3 * len(CUTS_S)
        assert acknowledged[FLUSHED]
        assert not lost[FLUSHED]


def test_without_a_flush_acknowledged_records_are_lost_and_the_topic_recovers(
    runs: list[tuple[Counter[str], Counter[str], Counter[str]]],
) -> None:
    """The cluster recovers in each run: `Simulation` reports a violation otherwise."""
    assert all(acknowledged[BUFFERED] for acknowledged, _, _ in runs)
    assert sum(lost[BUFFERED] for _, lost, _ in runs)
