"""Tests of the rules that demand progress: high watermarks, and probes after the recovery."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.replication.replication_state import ReplicationState
from tests.simulation.invariants import PartitionModel
from tests.simulation.planting import Patches
from tests.simulation.progress import LOOK_US, PROGRESS_US, Progress, _Situation
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


def test_waits_for_the_disks_of_the_isr_do_not_count_as_missing_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1795666695001: the leader's fsync of 1 ms ended after the fsync of 2 s of a follower."""
    violations: list[str] = []
    machines = [
        SimpleNamespace(process=SimpleNamespace(threads=SimpleNamespace(is_waiting=False)))
        for _ in range(3)
    ]
    world: Any = SimpleNamespace(machines=machines, violation=violations.append)
    progress = Progress(world)
    found = _Situation(0, 0, (1, 2), (1, 1)), 5, 3
    monkeypatch.setattr(progress, "_ends", lambda *_: found)
    looks = PROGRESS_US // LOOK_US + 2
    model = PartitionModel(name="flushed-0")

    def look() -> None:
        for _ in range(looks):
            progress.check((b"", 0), model)

    machines[1].process.threads.is_waiting = True
    look()
    assert not violations
    machines[1].process.threads.is_waiting = False
    machines[2].process.threads.is_waiting = True  # broker 3 is no member
    look()
    assert "have had offset 4 for 2.1 s, and the high watermark is 3" in violations[0]


def test_each_broker_must_carry_out_operations_after_the_recovery(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = simulation._probe

    def probe_refused() -> None:
        simulation.network.refusing.add("broker-2")
        probe()

    monkeypatch.setattr(simulation, "_probe", probe_refused)
    violations = simulation.run().violations
    # The first operation that needs broker 2 is at any broker, which may repeat it for a while.
    pattern = r"has not recovered: broker-\d does not .*(refused|no response within)"
    assert re.search(pattern, violations[0])


def test_a_run_without_violation_counts_probes_and_high_watermarks(simulation: Simulation) -> None:
    outcome = simulation.run()
    assert not outcome.violations
    assert outcome.counts["probes"] == 3
    assert outcome.counts["high watermarks that had to advance"]
