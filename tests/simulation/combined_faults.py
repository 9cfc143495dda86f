"""Faults of a cluster that need several steps: each leads to one dangerous order of events.

Each step alone is a usual fault: the end of a process or of a session, a stalled connection, a slow
link. Independent faults meet in the dangerous order only once in thousands of runs. A combined
fault reads the state of the brokers to choose its moment, and changes nothing in them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.protocol.api_keys import ApiKey
from tests.simulation.scheduler import MILLISECOND, SECOND
from tests.simulation.world_settings import UNCLEAN

if TYPE_CHECKING:
    from tests.simulation.cluster_model import PartitionKey
    from tests.simulation.invariants import Observation, PartitionModel, PartitionState
    from tests.simulation.machine import Machine
    from tests.simulation.simulation import Simulation

LAG_S = 4.6
"""Time without fetches after which a follower has left the ISR."""
STALL_S = 1.8
"""A stall that is too short to fence a broker."""
POLL_US = 4 * MILLISECOND
"""Interval in which a fault looks whether its moment has come."""
COMBINED_FAULTS = {
    "stale proposal": 3,
    "late response": 3,
    "deposed leader": 3,
    "lagging joiner": 3,
    "diverging leaders": 3,
}
"""The weight of each fault."""


class Stage(Protocol):
    """The parts of the nemesis that these faults use."""

    def later(self, low_s: float, high_s: float, call: Callable[[], object]) -> None:
        """Call `call` after a random time, unless all faults have ended."""

    def controller(self) -> Machine:
        """Return the broker that is the controller."""

    def expire_session(self, machine: Machine) -> bool:
        """End the session of a broker with the metadata store."""


class CombinedFaults:
    """The combined faults of one simulation; see the module."""

    def __init__(self, simulation: Simulation, rng: random.Random, stage: Stage) -> None:
        self._simulation = simulation
        self._rng = rng
        self._stage = stage
        self._network = simulation.network
        self._machines = simulation.machines
        self._unclean = {
            f"{topic.name}-{number}"
            for topic in simulation.topics
            for number in range(topic.partitions)
            if topic.configs.get(UNCLEAN) == "true"
        }

    # -- parts of the faults -----------------------------------------------------------------------

    def _partitions(
        self, is_suitable: Callable[[PartitionState], bool]
    ) -> list[tuple[PartitionKey, PartitionModel]]:
        """Return the partitions that have a leader and a suitable state."""
        topic_ids = {topic.topic_id for topic in self._simulation.cluster.topics.values()}
        return [
            (key, model)
            for key, model in self._simulation.models.items()
            if key[0] in topic_ids
            and model.state is not None
            and model.state.leader >= 0
            and is_suitable(model.state)
        ]

    def _machine(self, broker: int) -> Machine:
        return self._machines[broker - 1]

    def _others(self, state: PartitionState) -> list[int]:
        """Return the members of the ISR without the leader, in random order."""
        others = [each for each in state.isr if each != state.leader]
        return self._rng.sample(others, len(others))

    def _seen(self, broker: int, key: PartitionKey) -> Observation | None:
        """Return the last observation of a replica of a running broker."""
        replica = self._simulation.observers[broker].replica(key)
        return None if replica is None else replica.seen

    def _when(self, is_due: Callable[[], bool], seconds: float, call: Callable[[], None]) -> None:
        """Call `call` as soon as `is_due()`, if that is within the time."""
        deadline_us = self._simulation.scheduler.now_us + int(seconds * SECOND)

        def look() -> None:
            if is_due():
                call()
            elif self._simulation.scheduler.now_us < deadline_us:
                self._stage.later(POLL_US / SECOND, POLL_US / SECOND, look)

        look()

    def _stall(
        self, source: Machine, target: Machine, api: ApiKey, low_s: float, high_s: float
    ) -> Callable[[], None]:
        """Hold back the responses of one API for a random time, or until the returned call."""
        self._network.block(source.host, target.host, api)
        heal = partial(self._network.heal, source.host, target.host, api)
        self._stage.later(low_s, high_s, heal)
        return heal

    def _end(self, machine: Machine) -> None:
        """Kill a broker that was silent for almost the session timeout."""
        self._stage.expire_session(machine)
        machine.kill()

    # -- the faults --------------------------------------------------------------------------------

    def stale_proposal(self, machine: Machine) -> bool:
        """A follower catches up and loses its power. Proposals for it reach the controller later.

        A follower that was cut off for longer than the lag time has left the ISR. Before it fetches
        again, the requests of the other brokers to the controller are held back. After its restart
        it gets no records before the proposals have arrived.
        """
        controller, network = self._stage.controller(), self._network
        if machine is controller or machine.process is None:
            return False
        others = [each for each in self._machines if each not in (machine, controller)]
        for other in others:
            network.block(machine.host, other.host)
        cut_off_s = LAG_S
        if self._rng.random() < 0.5:
            self._stage.expire_session(machine)  # it leaves the ISR at once
            cut_off_s = self._rng.uniform(1.0, 2.0)

        def catch_up() -> None:
            for other in others:
                network.heal(machine.host, other.host)
                network.block(other.host, controller.host)
                self._stage.later(STALL_S, STALL_S, partial(arrive, other))

        def arrive(other: Machine) -> None:
            network.heal(other.host, controller.host)
            self._stage.later(0.1, 0.5, partial(network.heal, other.host, machine.host))

        def lose_power() -> None:
            for other in others:
                network.block(other.host, machine.host)
            self._stage.expire_session(machine)
            machine.kill(power_cut=True)
            self._simulation.start_soon(machine)

        self._stage.later(cut_off_s, cut_off_s, catch_up)
        delay_s = cut_off_s + self._rng.uniform(0.05, 0.5)
        self._stage.later(delay_s, delay_s, lose_power)
        return True

    def late_response(self, _: Machine) -> bool:
        """The response to AlterPartition arrives when its sender leads in a later epoch.

        The request removes a follower that gets no records. In the later epoch it is in the ISR.
        """
        controller = self._stage.controller()
        found = self._partitions(
            lambda state: len(state.isr) > 2 and state.leader != controller.node_id
        )
        if not found:
            return False
        key, model = self._rng.choice(found)
        state = _state(model)
        leader = self._machine(state.leader)
        # The next leader is then not the controller, with which the response would be lost.
        removed = controller
        if controller.node_id not in state.isr:
            removed = self._machine(self._others(state)[0])
        heal_fetches = self._stall(leader, removed, ApiKey.FETCH, LAG_S, LAG_S)

        def stall() -> None:
            heal_fetches()
            heal = self._stall(self._stage.controller(), leader, ApiKey.ALTER_PARTITION, 7, 7)
            self._stage.expire_session(leader)
            self._when(is_full, 6, lambda: depose(heal))

        def is_full() -> bool:
            state = _state(model)
            full = len(state.isr) == len(state.replicas)
            return full and state.leader not in (-1, leader.node_id)

        def depose(heal: Callable[[], None]) -> None:
            self._end(self._machine(_leader(model)))
            is_leader = partial(self._leads, leader, model)
            self._when(is_leader, 3, lambda: self._stage.later(0, 0.5, heal))

        self._when(lambda: self._is_proposing(leader, key), LAG_S, stall)
        return True

    @staticmethod
    def _leads(machine: Machine, model: PartitionModel) -> bool:
        return _leader(model) == machine.node_id

    @staticmethod
    def _is_proposing(machine: Machine, key: PartitionKey) -> bool:
        """Return whether the broker has sent a smaller ISR of the partition to the controller."""
        for partition in machine.partitions():
            replication = partition.replication
            if (bytes(partition.topic_id), partition.topic_partition.partition) == key:
                pending = None if replication is None else replication.state.pending
                return pending is not None and not pending.expands
        return False

    def deposed_leader(self, _: Machine) -> bool:
        """A leader truncates records whose bytes are in flight to a follower.

        All responses with records are held back, so none of the new records is committed. The
        follower does not hear of the new leader, and keeps its connection.
        """
        controller = self._stage.controller()
        found = self._partitions(
            lambda state: len(state.isr) > 2 and state.leader != controller.node_id
        )
        if not found:
            return False
        _, model = self._rng.choice(found)
        state = _state(model)
        leader = self._machine(state.leader)
        deaf = self._machine(self._others(state)[0])
        stalled_s = self._rng.uniform(4.0, 6.0)
        for other in self._machines:
            if other is not leader:
                self._stall(leader, other, ApiKey.FETCH, stalled_s, stalled_s)
        self._stall(controller, deaf, ApiKey.METADATA_FEED, stalled_s, stalled_s)
        self._stage.later(0.3, 1.2, lambda: self._stage.expire_session(leader))
        return True

    def lagging_joiner(self, _: Machine) -> bool:
        """A leader dies after a commit that neither follower knows, one of them restarts slowly.

        The new leader's high watermark is behind the true one. The other follower has all records
        below the former, and not those below the latter.
        """
        found = self._partitions(lambda state: len(state.isr) > 2)
        if not found:
            return False
        key, model = self._rng.choice(found)
        state = _state(model)
        leader = state.leader
        next_leader, follower = self._others(state)[:2]
        replica = self._seen(follower, key)
        if replica is None:
            return False
        end = replica.log_end
        self._end(self._machine(follower))

        def is_committed() -> bool:
            seen, other = self._seen(leader, key), self._seen(next_leader, key)
            return (
                seen is not None
                and other is not None
                and seen.is_leader
                and set(_state(model).isr) == {leader, next_leader}
                and other.high_watermark <= end < seen.high_watermark
            )

        def fail() -> None:
            self._end(self._machine(leader))
            link = (self._machine(next_leader).host, self._machine(follower).host)
            self._network.slow[link] = self._rng.randint(20, 200) * MILLISECOND
            self._stage.later(3, 6, lambda: self._network.slow.pop(link, None))

        self._when(is_committed, 4, fail)
        return True

    def diverging_leaders(self, _: Machine) -> bool:
        """Two leaders append records that no other broker gets, and the first one leads again.

        The first one is elected from the ELR, or uncleanly.
        """
        found = [model for _, model in self._partitions(lambda state: len(state.isr) > 1)]
        found = [
            model
            for model in found
            if len(_state(model).replicas) > 2 or model.name in self._unclean
        ]
        if not found:
            return False
        model = self._rng.choice(found)
        state = _state(model)
        first = self._machine(state.leader)
        for other in self._others(state)[1:]:
            self._end(self._machine(other))  # so that the next leader is alone
        heals = [
            self._stall(source, target, ApiKey.FETCH, 6, 6)
            for source in self._machines
            for target in self._machines
            if source is not target
        ]

        def depose() -> None:
            self._stage.expire_session(first)
            self._when(lambda: _leader(model) not in (-1, first.node_id), 2.5, succeed)

        def succeed() -> None:
            second = self._machine(_leader(model))
            is_back = partial(self._simulation.cluster.is_registered, first)
            self._stage.later(0.5, 1.2, lambda: self._when(is_back, 2, lambda: self._end(second)))
            self._when(lambda: _leader(model) == first.node_id, 5, release)

        def release() -> None:
            for heal in heals:
                heal()

        self._stage.later(0.5, 1.2, depose)
        return True


def _state(model: PartitionModel) -> PartitionState:
    assert model.state is not None
    return model.state


def _leader(model: PartitionModel) -> int:
    return -1 if model.state is None else model.state.leader
