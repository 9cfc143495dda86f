"""A rule of progress: the high watermark reaches the records that the whole ISR has.

If all replicas are in the ISR and have the records of the leader, and nothing disturbs these
brokers and their connections, the leader must commit the records within `PROGRESS_US`. A response
that is lost, or a fetch that is never sent again, breaks this rule. Without it, the run would go
on, because the leader removes the follower from the ISR after the lag time.

A replica outside of the ISR may delay the commit: the leader also counts followers that are about
to join. The rule does not apply then.

The time in which a call of one of these brokers waits for its disk does not count, because leader
and followers of a topic with `flush.messages` flush first. Such a wait can be longer than the disk
needs: it ends after the waits that other brokers have begun in the meantime (`executors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.scheduler import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster_model import PartitionKey
    from tests.simulation.invariants import PartitionModel
    from tests.simulation.machine import Machine
    from tests.simulation.simulation import Simulation

PROGRESS_US = 2 * SECOND
"""More than `FLUSH_RETRY_S`: the leader repeats a flush that failed unexpectedly."""
LOOK_US = 100 * MILLISECOND
SYNC_US_MAX = 5 * MILLISECOND
"""The longest fsync of a disk that is not slow."""


@dataclass(frozen=True, slots=True)
class _Situation:
    """The state in which the leader must commit its records. Any change of it starts again."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    processes: tuple[int, ...]


@dataclass(slots=True)
class _Awaited:
    """Records that the whole ISR has, below `end`, and for how long without a wait for a disk."""

    situation: _Situation
    end: int
    waited_us: int = 0


class Progress:
    """The rule for all partitions of a cluster; see the module."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._awaited: dict[PartitionKey, _Awaited] = {}

    def start(self) -> None:
        """Look at all partitions from now on, until the end of the run."""
        self._simulation.scheduler.after(LOOK_US, self._look)

    def _look(self) -> None:
        for key, model in self._simulation.models.items():
            self.check(key, model)
        self.start()

    def check(self, key: PartitionKey, model: PartitionModel) -> None:
        """Check one partition."""
        found = self._ends(key, model)
        if found is None:
            self._awaited.pop(key, None)
            return
        situation, end, high_watermark = found
        awaited = self._awaited.get(key)
        if awaited is not None and awaited.situation == situation:
            if high_watermark < awaited.end:
                if not self._waits_for_a_disk(situation.isr):
                    awaited.waited_us += LOOK_US
                if awaited.waited_us > PROGRESS_US:
                    self._simulation.violation(
                        f"{model.name}: all of the ISR {situation.isr} have had offset "
                        f"{awaited.end - 1} for {awaited.waited_us / SECOND:.1f} s, and the high "
                        f"watermark is {high_watermark}"
                    )
                    del self._awaited[key]
                return
            self._simulation.count("high watermarks that had to advance")
            del self._awaited[key]
        if high_watermark < end:
            self._awaited[key] = _Awaited(situation, end)

    def _waits_for_a_disk(self, brokers: tuple[int, ...]) -> bool:
        processes = [self._simulation.machines[broker - 1].process for broker in brokers]
        return any(process is not None and process.threads.is_waiting for process in processes)

    def _ends(self, key: PartitionKey, model: PartitionModel) -> tuple[_Situation, int, int] | None:
        """Return situation, end of the records in the whole ISR, and the high watermark.

        None: the leader may wait, because a broker or a connection between them is disturbed.
        """
        state = model.state
        if state is None or model.is_deleted or state.leader < 0:
            return None
        if len(state.isr) < len(state.replicas):
            return None
        simulation = self._simulation
        machines = [simulation.machines[broker - 1] for broker in state.isr]
        leader = simulation.machines[state.leader - 1]
        if not all(map(self._is_undisturbed, machines)) or self._is_disturbed_between(machines):
            return None
        replication = next(
            (
                each.replication
                for each in leader.partitions()
                if (bytes(each.topic_id), each.topic_partition.partition) == key
            ),
            None,
        )
        if replication is None or replication.state.pending is not None:
            return None  # the leader counts the maximal ISR
        own = replication.state
        if own.leader_epoch != state.leader_epoch or len(state.isr) < own._min_isr:
            return None
        ends = []
        for machine in machines:
            replica = simulation.observers[machine.node_id].replica(key)
            if replica is None or replica.seen is None:
                return None
            if replica.seen.leader_epoch != state.leader_epoch:
                return None
            if machine is leader and not replica.seen.is_leader:
                return None
            ends.append(replica.seen.log_end)
        processes = tuple(each.incarnations for each in machines)
        situation = _Situation(state.leader_epoch, state.partition_epoch, state.isr, processes)
        seen = simulation.observers[state.leader].models[key].seen
        assert seen is not None
        return situation, min(ends), seen.high_watermark

    def _is_undisturbed(self, machine: Machine) -> bool:
        """Return whether a broker runs, and its disk and its session work."""
        process, session, disk = machine.process, machine.session, machine.disk
        if process is None or not process.serves or process.loop.paused or session is None:
            return False
        ensemble = self._simulation.ensemble
        return (
            self._simulation.cluster.is_registered(machine)
            and ensemble.is_alive(session.session_id)
            and session.session_id not in ensemble._blocked
            and not machine.has_failed_partition
            and not disk.is_failing
            and not disk.evictions_rate
            and disk.sync_us_max <= SYNC_US_MAX
        )

    def _is_disturbed_between(self, machines: list[Machine]) -> bool:
        """Return whether a fault of the network concerns a connection between these brokers."""
        network, hosts = self._simulation.network, {machine.host for machine in machines}
        return (
            any({source, target} <= hosts for source, target in network.slow)
            or any({source, target} <= hosts for source, target, _ in network._blocked)
            or not hosts.isdisjoint(network.refusing)
        )
