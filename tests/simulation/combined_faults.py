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
    from odradek.replication.replication_state import IsrProposal
    from tests.simulation.cluster_model import PartitionKey
    from tests.simulation.invariants import Observation, PartitionModel, PartitionState
    from tests.simulation.machine import Machine
    from tests.simulation.simulation import Simulation

LAG_S = 4.6
"""Time without fetches after which a follower has left the ISR."""
STALL_S = 1.5
"""A stall that does not fence a broker. Its last poll may have been answered 0.5 s before."""
IN_FLIGHT_US = 60 * MILLISECOND
"""Time for which records are in flight on a slow link."""
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

    def _with_followers(self, controller: Machine) -> tuple[PartitionKey, PartitionModel] | None:
        """Choose a partition with two followers in the ISR whose leader is not the controller."""
        found = self._partitions(
            lambda state: len(state.isr) > 2 and state.leader != controller.node_id
        )
        return self._rng.choice(found) if found else None

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

    def _when(
        self,
        is_due: Callable[[], bool],
        seconds: float,
        call: Callable[[], None],
        *,
        always: bool = False,
    ) -> None:
        """Call `call` as soon as `is_due()`, if that is within the time, or `always` at its end."""
        deadline_us = self._simulation.scheduler.now_us + int(seconds * SECOND)

        def look() -> None:
            is_late = self._simulation.scheduler.now_us >= deadline_us
            if is_due() or (is_late and always):
                call()
            elif not is_late:
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

        def catch_up() -> None:
            for other in others:
                network.heal(machine.host, other.host)
                network.block(other.host, controller.host)
            self._stage.later(STALL_S, STALL_S, arrive)
            self._when(lambda: _is_joining(machine, others), STALL_S / 3, lose_power)

        def lose_power() -> None:
            for other in others:
                network.block(other.host, machine.host)
            self._stage.expire_session(machine)
            machine.kill(power_cut=True)
            self._simulation.start_soon(machine)

        def arrive() -> None:
            for other in others:
                network.heal(other.host, controller.host)
                self._stage.later(0.1, 0.5, partial(network.heal, other.host, machine.host))

        self._stage.later(LAG_S, LAG_S, catch_up)
        return True

    def late_response(self, _: Machine) -> bool:
        """The response to AlterPartition arrives when its sender leads in a later epoch.

        The request removes a follower that gets no records. In the later epoch it is in the ISR.
        """
        controller = self._stage.controller()
        chosen = self._with_followers(controller)
        if chosen is None:
            return False
        key, model = chosen
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

        def is_proposed() -> bool:
            pending = _proposals(leader).get(key)
            return pending is not None and not pending.expands

        self._when(is_proposed, LAG_S, stall)
        return True

    @staticmethod
    def _leads(machine: Machine, model: PartitionModel) -> bool:
        return _leader(model) == machine.node_id

    def deposed_leader(self, _: Machine) -> bool:
        """A leader truncates records whose bytes are in flight to a follower.

        The links are slow, so the records are in flight when all responses with records are held
        back. The follower does not hear of the new leader, and keeps its connection.
        """
        controller = self._stage.controller()
        chosen = self._with_followers(controller)
        if chosen is None:
            return False
        key, model = chosen
        state = _state(model)
        leader = self._machine(state.leader)
        others = [each for each in self._machines if each is not leader]
        followers = [each for each in state.replicas if each in state.isr and each != state.leader]
        deaf = self._machine(followers[-1])  # the controller elects the first one
        links = [(leader.host, other.host) for other in others]
        for link in links:
            self._network.slow[link] = IN_FLIGHT_US

        def depose() -> None:
            for link in links:
                self._network.slow.pop(link, None)
            heals = [self._stall(leader, other, ApiKey.FETCH, 5, 5) for other in others]
            heals.append(self._stall(controller, deaf, ApiKey.METADATA_FEED, 5, 5))
            self._stage.expire_session(leader)
            before = self._cuts(leader, key)

            def arrive() -> None:
                self._stage.later(0.2, 1, _all(heals))

            self._when(lambda: self._cuts(leader, key) > before, 4, arrive)

        self._when_ahead(leader, key, depose)
        return True

    def _cuts(self, machine: Machine, key: PartitionKey) -> int:
        """Return the number of truncations of a log since the start of the broker."""
        for each in machine.partitions():
            if (bytes(each.topic_id), each.topic_partition.partition) == key:
                cuts: int = each.log.truncations
                return cuts
        return 0

    def _when_ahead(self, leader: Machine, key: PartitionKey, call: Callable[[], None]) -> None:
        """Call `call` when a leader has records that no follower has, since none gets any."""

        def is_ahead() -> bool:
            return self._has_own_records(leader, key)

        self._stage.later(0.1, 0.1, lambda: self._when(is_ahead, 3, call))

    def _has_own_records(self, leader: Machine, key: PartitionKey) -> bool:
        """Return whether the last record of a leader is of its epoch, and not committed."""
        replica = self._simulation.observers[leader.node_id].replica(key)
        if replica is None or replica.seen is None or not replica.chain.headers:
            return False
        seen, last = replica.seen, replica.chain.headers[-1]
        is_own = last.partition_leader_epoch == seen.leader_epoch
        return seen.is_leader and is_own and seen.high_watermark < seen.log_end

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
        found = [
            (key, model)
            for key, model in self._partitions(lambda state: len(state.isr) > 1)
            if len(_state(model).replicas) > 2 or model.name in self._unclean
        ]
        if not found:
            return False
        unclean = [each for each in found if each[1].name in self._unclean]
        key, model = self._rng.choice(unclean if unclean and self._rng.random() < 0.5 else found)
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
            replace = partial(self._end, second)
            self._when(partial(is_replaceable, second), 2, replace, always=True)
            self._when(lambda: _leader(model) == first.node_id, 5, _all(heals))

        def is_replaceable(second: Machine) -> bool:
            is_back = self._simulation.cluster.is_registered(first)
            return is_back and self._has_own_records(second, key)

        self._when_ahead(first, key, depose)
        return True


def _all(calls: list[Callable[[], None]]) -> Callable[[], None]:
    """Return one call that makes them all."""

    def call_all() -> None:
        for each in calls:
            each()

    return call_all


def _proposals(machine: Machine) -> dict[PartitionKey, IsrProposal]:
    """Return the ISRs that the leaders on a broker have proposed to the controller."""
    return {
        (bytes(each.topic_id), each.topic_partition.partition): each.replication.state.pending
        for each in machine.partitions()
        if each.replication is not None and each.replication.state.pending is not None
    }


def _is_joining(machine: Machine, leaders: list[Machine]) -> bool:
    """Return whether one of the leaders has proposed an ISR that a broker joins."""
    return any(
        pending.expands and machine.node_id in dict(pending.isr)
        for leader in leaders
        for pending in _proposals(leader).values()
    )


def _state(model: PartitionModel) -> PartitionState:
    assert model.state is not None
    return model.state


def _leader(model: PartitionModel) -> int:
    return -1 if model.state is None else model.state.leader
