from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulation.graveyard import Graveyard
from tests.simulation.machine import Machine
from tests.simulation.network import SimulatedNetwork
from tests.simulation.scheduler import MILLISECOND, SECOND, Scheduler


class World:
    """One machine, and what was reported of it."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.scheduler = Scheduler(seed)
        self.network = SimulatedNetwork(self.scheduler)
        self.steps = 0
        self.ends: list[str] = []
        config = {"log.cleaner.enable": "false", **config}
        self.graveyard = Graveyard()
        self.machine = Machine(
            self.scheduler, self.network, self.graveyard, 1, config, self.step, self.ended
        )

    def close(self) -> None:
        self.machine.kill()
        self.graveyard.close(self.scheduler)

    def step(self, _: Machine) -> None:
        self.steps += 1

    def ended(self, _: Machine, how: str) -> None:
        self.ends.append(how)

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now_us + int(seconds * SECOND))
        assert not self.machine.loop_failures

    @property
    def serves(self) -> bool:
        process = self.machine.process
        return process is not None and process.serves

    def power_cut(self) -> None:
        self.machine.kill(power_cut=True)

    def start(self) -> None:
        self.machine.start()
        self.run(5)
        assert self.serves


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_whole_broker_starts_and_stops_in_virtual_time(world: World) -> None:
    world.start()
    assert world.network.listeners
    world.run(60)
    assert world.steps > 100
    world.machine.stop()
    world.run(5)
    assert world.ends == ["stop"]
    assert world.machine.process is None
    assert not world.network.listeners
    assert not world.machine.disk.locked


def test_a_broker_starts_again_after_each_kind_of_end(world: World) -> None:
    for end in (world.machine.stop, world.machine.kill, world.power_cut):
        world.start()
        end()
        world.run(5)
    world.start()
    assert world.ends == ["stop", "kill", "power"]
    assert world.machine.boots == 1


def test_a_broker_that_was_killed_at_any_change_of_files_starts_again() -> None:
    for power_cut in (False, True):
        changes = 0
        while True:
            changes += 1
            world = World(seed=changes)
            world.machine.start()
            world.machine.kill_in_a_call(changes, power_cut=power_cut)
            world.run(5)
            ends = list(world.ends)
            if ends:
                world.start()
            world.close()
            if not ends:
                break
            assert ends == ["power" if power_cut else "kill"]
        assert changes > 5


def test_an_io_error_before_the_broker_serves_is_remembered(world: World) -> None:
    world.start()
    world.machine.kill()
    files = [inode for _, inode in world.machine.disk.walk()]
    for inode in files:
        inode.unreadable = True
    world.machine.start()
    world.run(5)
    assert world.ends == ["kill", "failed"]
    assert world.machine.failed_process == 2
    for inode in files:
        inode.unreadable = False
    world.start()
    world.machine.kill()
    assert world.machine.failed_process == 2


def test_a_paused_broker_makes_no_step(world: World) -> None:
    world.start()
    world.machine.pause()
    before = world.steps
    world.run(30)
    assert world.steps == before
    world.machine.resume()
    world.run(30)
    assert world.steps > before


def test_two_brokers_do_not_share_a_directory(world: World) -> None:
    world.start()
    first = world.machine.process
    world.machine.process = None
    world.machine.start()
    world.run(5)
    assert world.ends == ["failed"]
    assert first is not None
    world.machine.process = first


def test_one_seed_is_one_trace() -> None:
    def digest(seed: int) -> str:
        world = World(seed)
        world.start()
        world.run(20)
        world.machine.kill(power_cut=True)
        world.scheduler.run_until(world.scheduler.now_us + 10 * MILLISECOND)
        world.start()
        world.close()
        return world.scheduler.trace.digest() + str(world.scheduler.steps)

    assert digest(1) == digest(1) != digest(2)
