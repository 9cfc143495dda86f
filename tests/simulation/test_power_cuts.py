"""The power of all brokers is cut at the same time, for topics with and without flush.messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from conformance.histories.analysis import analyse
from conformance.histories.history import OK, parse

from tests.simulation.machine import Machine
from tests.simulation.nemesis import Nemesis
from tests.simulation.scheduler import MILLISECOND, SECOND
from tests.simulation.simulation import Simulation

RUN_S = 30
CUTS_S = (12, 21)
PAUSE_S = 6
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


class CutAfterMarker(PowerCuts):
    """The power is cut when a part of a transaction is flushed, and its marker is not.

    The coordinator has completed it. A power cut may leave also records that are not flushed, so
    there are several cuts.
    """

    TEMPO = 3.0
    FLUSH_MS = "200"

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self._begun: dict[tuple[int, int], int] = {}

    def start(self) -> None:
        self._look()

    def _look(self) -> None:
        """Compare the open transactions of the leaders with the last look."""
        for machine in self._machines:
            for partition in machine.partitions():
                topic, number = partition.topic_partition
                if topic != BUFFERED or partition.replication is None:
                    continue
                log, stable = partition.log, partition.log.last_stable_offset
                ended = {
                    producer: first
                    for (its_number, producer), first in self._begun.items()
                    if its_number == number and first < stable
                }
                is_known = not self._simulation.cluster.coordinators.open_transactions()
                flushed = log.flusher.recovery_point
                if is_known and any(first < flushed < stable for first in ended.values()):
                    self._begun.clear()
                    self._cut()
                    self._scheduler.after(PAUSE_S * SECOND, self._look)
                    return
                for producer, first in ended.items():
                    if first >= flushed or flushed >= stable:
                        del self._begun[number, producer]
                for first, producer in log.producers.ongoing.items():
                    self._begun[number, producer] = first
        self._scheduler.after(5 * MILLISECOND, self._look)


def _run(seed: int) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return the acknowledged and the lost records of each topic, and the counts of the run."""
    simulation = Simulation(seed, 3, RUN_S, swarm=False)
    try:
        simulation.nemesis = PowerCuts(simulation)
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


def test_a_transaction_whose_marker_is_lost_stays_open_in_a_topic_without_flush() -> None:
    """A marker is a record, too. Any other open transaction is a violation of the run."""
    left_open = 0
    for seed in SEEDS:
        simulation = Simulation(seed, 3, RUN_S, swarm=False)
        try:
            simulation.tempo = CutAfterMarker.TEMPO
            simulation.nemesis = CutAfterMarker(simulation)
            simulation.topics = [
                replace(topic, configs={**topic.configs, "flush.ms": CutAfterMarker.FLUSH_MS})
                for topic in simulation.topics
            ]
            outcome = simulation.run()
        finally:
            simulation.close()
        assert not outcome.violations
        left_open += outcome.counts["transactions left open by a lost marker"]
    assert left_open
