"""Tests of the constants that a seed makes small, of injected errors, and of late power cuts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.broker.periodic import PeriodicTasks
from odradek.replication.replica_fetcher import ReplicaFetcher
from tests.simulation.event_loop import SimulatedClock, SimulatedLoop
from tests.simulation.injected_errors import InjectedError
from tests.simulation.planting import Patches
from tests.simulation.scheduler import SECOND, Scheduler
from tests.simulation.simulation import Simulation
from tests.simulation.tuning import CONSTANTS, PATHS, tune


def values() -> list[Any]:
    owners = [owner for constant in CONSTANTS for owner in constant.owners]
    return [vars(owner)[name] for owner, name in (*owners, *PATHS.values())]


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    simulation = Simulation(2, 3, 5, swarm=False)
    yield simulation
    simulation.close()


def test_seeds_make_each_constant_small_and_the_values_of_the_product_return() -> None:
    before, small = values(), Counter[int]()
    for seed in range(20):
        patches = Patches()
        tune(patches, random.Random(seed), lambda _: None)
        small.update(at for at, value in enumerate(values()) if value != before[at])
        patches.undo()
        assert values() == before
    assert len(small) == len(before)


@pytest.mark.parametrize("path", PATHS)
def test_a_call_of_a_path_is_counted(path: str) -> None:
    counts, patches = Counter[str](), Patches()
    tune(patches, random.Random(1), lambda what: counts.update([what]))
    owner, name = PATHS[path]
    try:
        with pytest.raises(TypeError):
            getattr(owner, name)()
    finally:
        patches.undo()
    assert counts == {path: 1}


def test_a_broker_fetches_again_after_an_injected_error_and_a_malformed_response(
    simulation: Simulation,
) -> None:
    simulation.injected.fails_fetch = simulation.injected.fetch_is_malformed = True
    outcome = simulation.run()
    assert not outcome.violations
    assert outcome.counts["injected errors"] == outcome.counts["malformed responses"] == 1


def test_a_fetcher_that_ends_after_an_error_is_reported(simulation: Simulation) -> None:
    patches = Patches()
    patches.replace(ReplicaFetcher, "_lost", lambda *_: None)
    simulation.injected.fails_fetch = True
    try:
        assert simulation.run().violations
    finally:
        patches.undo()


def cause(simulation: Simulation, fault: str, count: int) -> None:
    """Cause a fault each second, first when the brokers serve."""
    for second in range(count):
        machine = simulation.machines[second % len(simulation.machines)]
        call = getattr(simulation.nemesis, fault)
        simulation.scheduler.after((3 + second) * SECOND, call, machine)


@pytest.mark.parametrize("what", ["thread", "session", "take_over"])
def test_a_cluster_recovers_from_an_unexpected_error(what: str) -> None:
    simulation = Simulation(2, 3, 12, swarm=False)
    cause(simulation, f"_error_of_a_{what}", 5)
    try:
        outcome = simulation.run()
    finally:
        simulation.close()
    assert not outcome.violations
    assert outcome.counts[f"injected errors of {what.replace('_', '-')}s"]


def test_a_periodic_task_that_ends_with_an_error_of_a_thread_is_reported() -> None:
    def fail() -> None:
        raise InjectedError("a call fails")

    async def repeat(tasks: PeriodicTasks, interval_ms: int, _: Callable[[], Any]) -> None:
        await tasks._services.timers.sleep(interval_ms / 1000)
        await asyncio.get_running_loop().run_in_executor(tasks._services.executor, fail)

    patches = Patches()
    patches.replace(PeriodicTasks, "_repeat", repeat)
    simulation = Simulation(2, 3, 12, swarm=False)
    try:
        violations = simulation.run().violations
    finally:
        simulation.close()
        patches.undo()
    assert "InjectedError" in violations[0]


def test_a_task_in_an_attribute_cannot_hide_its_error() -> None:
    scheduler = Scheduler(1)
    loop = SimulatedLoop(scheduler, "loop", SimulatedClock(scheduler))

    async def fail() -> None:
        raise ValueError("unexpected")

    task = loop.create_task(fail())
    scheduler.run_until(SECOND)
    (problem,) = loop.failures_of_tasks()
    assert "unexpected" in problem
    assert isinstance(task.exception(), ValueError)
    assert not loop.failures_of_tasks()


def test_a_task_that_was_awaited_is_not_reported() -> None:
    scheduler = Scheduler(1)
    loop = SimulatedLoop(scheduler, "loop", SimulatedClock(scheduler))

    async def fail() -> None:
        raise ValueError("unexpected")

    async def outer() -> None:
        await asyncio.gather(loop.create_task(fail()), return_exceptions=True)

    task = loop.create_task(outer())
    scheduler.run_until(SECOND)
    assert task.done()
    assert not loop.failures_of_tasks()


def test_a_machine_whose_broker_has_stopped_loses_its_power(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = simulation.machines[0]
    cuts: list[bool] = []
    power_cut = machine.disk.power_cut

    def cut() -> None:
        cuts.append(True)
        power_cut()

    monkeypatch.setattr(machine.disk, "power_cut", cut)
    boots = machine.boots
    simulation.cut_power(machine)
    assert cuts == [True]
    assert machine.boots == boots + 1
    assert simulation.counts["power cuts of stopped brokers"] == 1
