"""The source of faults in a simulation: one seed decides what fails, when, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.scheduler import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tests.simulation.machine import Machine
    from tests.simulation.simulation import Simulation

KILL_CHANGES_MAX = 60
"""A broker dies inside of one of its next changes of files, of so many."""
FAULTS = {
    "kill": 3,
    "kill in a call": 3,
    "power cut": 2,
    "power cut in a call": 3,
    "stop": 2,
    "pause": 2,
    "break connections": 3,
    "block": 3,
    "refuse": 1,
    "full disk": 2,
    "fsync failure": 1,
    "write failure": 1,
    "slow disk": 2,
    "cold cache": 2,
}
"""The weight of each fault."""


class Nemesis:
    """Causes faults until `heal`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._rng = simulation.scheduler.stream("nemesis")
        self._healed = False
        faults = dict(FAULTS)
        if not simulation.power_cuts:
            faults = {name: weight for name, weight in faults.items() if "power" not in name}
        self._names = list(faults)
        self._weights = list(faults.values())

    def start(self) -> None:
        self._schedule()

    def _schedule(self) -> None:
        delay_us = int(self._rng.expovariate(1 / self._simulation.fault_interval_s) * SECOND)
        self._scheduler.after(delay_us, self._fault)

    def _fault(self) -> None:
        if self._healed:
            return
        (name,) = self._rng.choices(self._names, self._weights)
        machine = self._rng.choice(self._simulation.machines)
        cause: Callable[[Machine], bool] = getattr(self, "_" + name.replace(" ", "_"))
        if cause(machine):
            self._scheduler.note(f"fault: {name} {machine.host}")
            self._simulation.count(f"fault {name}")
        self._schedule()

    def heal(self) -> None:
        """End all faults. Brokers that are down are started by the simulation."""
        self._healed = True
        self._simulation.network.heal()
        self._simulation.network.refusing.clear()
        for machine in self._simulation.machines:
            disk = machine.disk
            disk.space_left = None
            disk.fail_fsyncs = disk.fail_writes = 0
            disk.sync_us_max, disk.evictions_rate = 5 * MILLISECOND, 0.0
            if machine.process is not None:
                machine.process.files.kill_after = None
            machine.resume()
            if machine.has_failed_directory:
                machine.kill()

    def _later(self, low_s: float, high_s: float, call: Callable[[], None]) -> None:
        delay_us = int(self._rng.uniform(low_s, high_s) * SECOND)
        self._scheduler.after(delay_us, call)

    # -- the process -------------------------------------------------------------------------------

    def _kill(self, machine: Machine) -> bool:
        alive = machine.process is not None
        machine.kill()
        return alive

    def _kill_in_a_call(self, machine: Machine) -> bool:
        machine.kill_in_a_call(self._rng.randint(1, KILL_CHANGES_MAX))
        return machine.process is not None

    def _power_cut(self, machine: Machine) -> bool:
        alive = machine.process is not None
        machine.kill(power_cut=True)
        return alive

    def _power_cut_in_a_call(self, machine: Machine) -> bool:
        machine.kill_in_a_call(self._rng.randint(1, KILL_CHANGES_MAX), power_cut=True)
        return machine.process is not None

    def _stop(self, machine: Machine) -> bool:
        serves = machine.process is not None and machine.process.serves
        machine.stop()
        return serves

    def _pause(self, machine: Machine) -> bool:
        if machine.process is None or machine.process.loop.paused:
            return False
        machine.pause()
        self._later(0.1, 6, machine.resume)
        return True

    # -- the network -------------------------------------------------------------------------------

    def _break_connections(self, machine: Machine) -> bool:
        count = 0
        for client in self._simulation.clients:
            if self._rng.random() < 0.7:
                count += self._simulation.network.break_connections(client.name, machine.host)
        return count > 0

    def _block(self, machine: Machine) -> bool:
        """Hold back one or both directions between the broker and some clients."""
        network = self._simulation.network
        for client in self._simulation.clients:
            if self._rng.random() < 0.5:
                continue
            pairs = [(client.name, machine.host), (machine.host, client.name)]
            for source, target in self._rng.sample(pairs, self._rng.randint(1, 2)):
                network.block(source, target)
                self._later(0.2, 8, lambda s=source, t=target: network.heal(s, t))
        return True

    def _refuse(self, machine: Machine) -> bool:
        refusing = self._simulation.network.refusing
        refusing.add(machine.host)
        self._later(0.5, 4, lambda: refusing.discard(machine.host))
        return True

    # -- the disk ----------------------------------------------------------------------------------

    def _full_disk(self, machine: Machine) -> bool:
        disk = machine.disk
        disk.space_left = self._rng.choice((0, 100, 1_000, 5_000))

        def free() -> None:
            disk.space_left = None

        self._later(0.5, 8, free)
        return True

    def _fsync_failure(self, machine: Machine) -> bool:
        machine.disk.fail_fsyncs = 1
        self._replace_disk_later(machine)
        return True

    def _write_failure(self, machine: Machine) -> bool:
        machine.disk.fail_writes = 1
        self._replace_disk_later(machine)
        return True

    def _replace_disk_later(self, machine: Machine) -> None:
        """The operator restarts a broker whose log directory is offline."""

        def restart() -> None:
            machine.disk.fail_fsyncs = machine.disk.fail_writes = 0
            if self._rng.random() < 0.5:
                machine.stop()
            else:
                machine.kill()

        self._later(0.5, 5, restart)

    def _slow_disk(self, machine: Machine) -> bool:
        disk = machine.disk
        disk.sync_us_max = self._rng.choice((100, 500, 2_000)) * MILLISECOND

        def recover() -> None:
            disk.sync_us_max = 5 * MILLISECOND

        self._later(0.5, 10, recover)
        return True

    def _cold_cache(self, machine: Machine) -> bool:
        disk = machine.disk
        for _, inode in disk.walk():
            inode.evict()
        disk.evictions_rate = self._rng.choice((0.0, 0.05, 0.3))

        def recover() -> None:
            disk.evictions_rate = 0.0

        self._later(1, 10, recover)
        return True
