"""The source of faults in a simulation: one seed decides what fails, when, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.metadata.znodes import CONTROLLER, decode_controller
from odradek.protocol.api_keys import ApiKey
from tests.simulation.combined_faults import COMBINED_FAULTS
from tests.simulation.coordinator_faults import COORDINATOR_FAULTS, CoordinatorFaults
from tests.simulation.scheduler import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tests.simulation.machine import Machine
    from tests.simulation.simulation import Simulation

SLOW_LINK_US_MAX = 300 * MILLISECOND
FETCH_STALL_S_MAX = 12.0
"""Longer than the lag time of the replicas, so that followers leave the ISR."""
KILL_CHANGES_MAX = 60
"""A broker dies inside of one of its next changes of files, of so many."""
SWARM_FACTORS = (0.3, 1.0, 1.0, 3.0)
"""The seed decides by which of these factors the weight of each fault changes."""
FAULTS = {
    "kill": 3,
    "kill in a call": 3,
    "power cut": 2,
    "power cut in a call": 3,
    "power cut after an end": 2,
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
CLUSTER_FAULTS = {
    "isolate": 4,
    "expire session": 2,
    "cut session": 3,
    "disconnect session": 2,
    "lose response": 3,
    "kill several": 1,
    "power cut of all": 1,
    "error of a fetch": 1,
    "malformed fetch response": 1,
    "error of a thread": 2,
    "error of a session": 1,
    "error of a take-over": 1,
    "pause controller": 1,
    "slow link": 2,
    "stall fetches": 2,
    **COMBINED_FAULTS,
    **COORDINATOR_FAULTS,
}
"""Faults that only a cluster of several brokers has."""


class Nemesis:
    """Causes faults until `heal`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._scheduler = simulation.scheduler
        self._rng = simulation.scheduler.stream("nemesis")
        self._healed = False
        self._loses_power_next: Machine | None = None
        self._machines = simulation.machines
        self._is_cluster = len(simulation.machines) > 1
        self._unblocks: dict[Callable[[], None], None] = {}
        faults = dict(FAULTS)
        if len(simulation.machines) > 1:
            faults |= CLUSTER_FAULTS
        if not simulation.power_cuts:
            faults = {name: weight for name, weight in faults.items() if "power" not in name}
        self._names = list(faults)
        self._weights = [weight * self._rng.choice(SWARM_FACTORS) for weight in faults.values()]
        combined = CoordinatorFaults(simulation, self._rng, self)
        of_steps = {*COMBINED_FAULTS, *COORDINATOR_FAULTS}
        self._causes: dict[str, Callable[[Machine], bool]] = {
            name: getattr(combined, name.replace(" ", "_"))
            if name in of_steps
            else getattr(self, "_" + name.replace(" ", "_").replace("-", "_"))
            for name in faults
        }

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
        if self._causes[name](machine):
            self._scheduler.note(f"fault: {name} {machine.host}")
            self._simulation.count(f"fault {name}")
        self._schedule()

    def heal(self) -> None:
        """End all faults. Brokers that are down are started by the simulation."""
        self._healed = True
        self._loses_power_next = None
        self._simulation.injected.clear()
        self._simulation.network.heal()
        self._simulation.network.refusing.clear()
        for unblock in list(self._unblocks):
            unblock()
        self._unblocks.clear()
        for machine in self._simulation.machines:
            disk = machine.disk
            disk.space_left = None
            disk.fail_fsyncs = disk.fail_writes = 0
            disk.sync_us_max, disk.evictions_rate = 5 * MILLISECOND, 0.0
            if machine.process is not None:
                machine.process.files.kill_after = None
            machine.resume()
            if machine.has_failed_partition:
                machine.kill()

    def later(self, low_s: float, high_s: float, call: Callable[[], object]) -> None:
        """Call `call` after a random time, unless all faults have ended."""

        def due() -> None:
            if not self._healed:
                call()

        self._scheduler.after(int(self._rng.uniform(low_s, high_s) * SECOND), due)

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
        if self._is_cluster and self._rng.random() < 0.4:
            self.expire_session(machine)  # it was silent for almost the timeout before
        machine.kill(power_cut=True)
        return alive

    def _power_cut_in_a_call(self, machine: Machine) -> bool:
        machine.kill_in_a_call(self._rng.randint(1, KILL_CHANGES_MAX), power_cut=True)
        return machine.process is not None

    def _power_cut_after_an_end(self, machine: Machine) -> bool:
        """Stop or kill a broker. The machine loses its power before the next start."""
        if machine.process is None or not machine.process.serves or machine.process.loop.paused:
            return False
        self._loses_power_next = machine
        if self._rng.random() < 0.7:
            machine.stop()
        else:
            machine.kill()
        return True

    def takes_power_of(self, machine: Machine) -> bool:
        """Return whether a machine whose broker has just ended loses its power."""
        if machine is not self._loses_power_next:
            return False
        self._loses_power_next = None
        return True

    def _power_cut_of_all(self, _: Machine) -> bool:
        """Cut the power of all machines within a short time, also of those whose broker is down."""
        for machine in self._machines:
            self.later(0, 0.1, lambda each=machine: self._simulation.cut_power(each))
        return True

    # -- errors in the code of the product ---------------------------------------------------------

    def _error_of_a_fetch(self, _: Machine) -> bool:
        self._simulation.injected.fails_fetch = True
        return True

    def _malformed_fetch_response(self, _: Machine) -> bool:
        self._simulation.injected.fetch_is_malformed = True
        return True

    def _error_of_a_thread(self, machine: Machine) -> bool:
        """Let a call of a thread fail. The operator restarts a broker with failed partitions."""
        if machine.process is None:
            return False
        self._simulation.injected.fails_call = machine.process.loop
        machine.disk.faults_seen = True
        self._restart_later(machine)
        return True

    def _error_of_a_session(self, machine: Machine) -> bool:
        self._simulation.injected.fails_open = self.expire_session(machine)
        return self._simulation.injected.fails_open

    def _error_of_a_take_over(self, _: Machine) -> bool:
        self._simulation.injected.fails_take_over = self.expire_session(self.controller())
        return self._simulation.injected.fails_take_over

    def _stop(self, machine: Machine) -> bool:
        serves = machine.process is not None and machine.process.serves
        machine.stop()
        return serves

    def _pause(self, machine: Machine) -> bool:
        if machine.process is None or machine.process.loop.paused:
            return False
        machine.pause()
        self.later(0.1, 6, machine.resume)
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
                self.later(0.2, 8, lambda s=source, t=target: network.heal(s, t))
        return True

    def _isolate(self, machine: Machine) -> bool:
        """Hold back one or both directions between the broker and some other brokers."""
        network = self._simulation.network
        others = [each for each in self._simulation.machines if each is not machine]
        for other in self._rng.sample(others, self._rng.randint(1, len(others))):
            pairs = [(other.host, machine.host), (machine.host, other.host)]
            seconds = self._rng.uniform(0.2, 12)
            for source, target in self._rng.sample(pairs, self._rng.randint(1, 2)):
                network.block(source, target)
                self.later(seconds, seconds, lambda s=source, t=target: network.heal(s, t))
            if self._rng.random() < 0.3:
                network.break_connections(machine.host, other.host)
        return True

    def _slow_link(self, machine: Machine) -> bool:
        """Delay the bytes in one direction between two brokers, or all bytes of one broker."""
        slow = self._simulation.network.slow
        others = [each for each in self._simulation.machines if each is not machine]
        links = [(machine.host, other.host) for other in others]
        if self._rng.random() < 0.7:
            links = [self._rng.choice(links)]
        if self._rng.random() < 0.5:
            links = [(target, source) for source, target in links]
        for link in links:
            slow[link] = self._rng.randint(1, SLOW_LINK_US_MAX)
            self.later(1, 10, lambda link=link: slow.pop(link, None))
        return True

    def _stall_fetches(self, machine: Machine) -> bool:
        """Hold back the records that a broker sends to some of the others, and nothing else."""
        network = self._simulation.network
        others = [each for each in self._simulation.machines if each is not machine]
        for other in self._rng.sample(others, self._rng.randint(1, len(others))):
            network.block(machine.host, other.host, ApiKey.FETCH)
            self.later(
                0.2,
                FETCH_STALL_S_MAX,
                lambda o=other: network.heal(machine.host, o.host, ApiKey.FETCH),
            )
        return True

    # -- the store of a cluster --------------------------------------------------------------------

    def _expire_session(self, machine: Machine) -> bool:
        return self.expire_session(machine)

    def expire_session(self, machine: Machine) -> bool:
        """End the session of a broker with the metadata store, if it has one."""
        session = machine.session
        return session is not None and session.expire()

    def _cut_session(self, machine: Machine) -> bool:
        """Cut the broker off from the store, for less or more than the session timeout."""
        session = machine.session
        unblock = session.block() if session is not None else None
        if unblock is None:
            return False
        self._unblocks[unblock] = None

        def end() -> None:
            if self._unblocks.pop(unblock, 0) is None:
                unblock()

        self.later(0.2, 6, end)
        return True

    def _disconnect_session(self, machine: Machine) -> bool:
        session = machine.session
        if session is not None:
            session.disconnect()
        return session is not None

    def _lose_response(self, _: Machine) -> bool:
        """Lose the response to the next write of a broker, or of the controller."""
        machine = self._rng.choice([self.controller(), self._rng.choice(self._machines)])
        session = machine.session
        if session is not None:
            session.lose_next_response()
        return session is not None

    def controller(self) -> Machine:
        """Return the broker that is the controller by the store, or any other one without one."""
        node = self._simulation.ensemble.tree.find(CONTROLLER) if self._is_cluster else None
        if node is None:
            return self._rng.choice(self._machines)
        return self._machines[decode_controller(node.data) - 1]

    def _pause_controller(self, _: Machine) -> bool:
        return self._pause(self.controller())

    def _kill_several(self, _: Machine) -> bool:
        """Kill some brokers, or all, within a short time. No power is lost."""
        machines = self._machines
        for machine in self._rng.sample(machines, self._rng.randint(2, len(machines))):
            self.later(0, 0.3, machine.kill)
        return True

    def _refuse(self, machine: Machine) -> bool:
        refusing = self._simulation.network.refusing
        refusing.add(machine.host)
        self.later(0.5, 4, lambda: refusing.discard(machine.host))
        return True

    # -- the disk ----------------------------------------------------------------------------------

    def _full_disk(self, machine: Machine) -> bool:
        disk = machine.disk
        disk.space_left = self._rng.choice((0, 100, 1_000, 5_000))

        def free() -> None:
            disk.space_left = None

        self.later(0.5, 8, free)
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

        self.later(0.5, 5, restart)

    def _restart_later(self, machine: Machine) -> None:
        """The operator restarts a broker if some of its partitions have failed."""

        def restart() -> None:
            if machine.has_failed_partition:
                machine.stop()

        self.later(1, 5, restart)

    def _slow_disk(self, machine: Machine) -> bool:
        disk = machine.disk
        disk.sync_us_max = self._rng.choice((100, 500, 2_000)) * MILLISECOND

        def recover() -> None:
            disk.sync_us_max = 5 * MILLISECOND

        self.later(0.5, 10, recover)
        return True

    def _cold_cache(self, machine: Machine) -> bool:
        disk = machine.disk
        for _, inode in disk.walk():
            inode.evict()
        disk.evictions_rate = self._rng.choice((0.0, 0.05, 0.3))

        def recover() -> None:
            disk.evictions_rate = 0.0

        self.later(1, 10, recover)
        return True
