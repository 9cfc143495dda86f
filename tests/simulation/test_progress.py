"""Tests of the rules that demand progress: high watermarks, and probes after the recovery."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from odradek.replication.replication_state import ReplicationState
from tests.simulation.planting import Patches
from tests.simulation.simulation import Simulation

SECONDS = 8


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    simulation = Simulation(1, 3, SECONDS, swarm=False)
    yield simulation
    simulation.close()


@pytest.fixture
def patches() -> Iterator[Patches]:
    patches = Patches()
    yield patches
    patches.undo()


def test_the_high_watermark_must_reach_the_records_that_the_whole_isr_has(
    simulation: Simulation, patches: Patches
) -> None:
    patches.replace(
        ReplicationState,
        "_with_high_watermark",
        lambda _self, effects, _brokers, _now_ms: effects,
    )
    violations = simulation.run().violations
    assert "have had offset" in violations[0]


def test_each_broker_must_carry_out_operations_after_the_recovery(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = simulation._probe

    def probe_refused() -> None:
        simulation.network.refusing.add("broker-2")
        probe()

    monkeypatch.setattr(simulation, "_probe", probe_refused)
    violations = simulation.run().violations
    # The first operation that needs broker 2 is at any broker.
    assert re.search(r"has not recovered: broker-\d does not .*refused", violations[0])


def test_a_run_without_violation_counts_probes_and_high_watermarks(simulation: Simulation) -> None:
    outcome = simulation.run()
    assert not outcome.violations
    assert outcome.counts["probes"] == 3
    assert outcome.counts["high watermarks that had to advance"]
