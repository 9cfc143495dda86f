"""Combined faults of transactions: late verifications, and coordinators that are deposed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.coordinator.runtime import partition_for
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.protocol.api_keys import ApiKey
from tests.simulation.combined_faults import CombinedFaults
from tests.simulation.coordinator_logs import COMPLETE_ABORT, ONGOING, PREPARED, Entry
from tests.simulation.scheduler import MILLISECOND
from tests.simulation.transactors import PROTOCOL_1, SimulatedTransactor
from tests.simulation.world_settings import INTERNAL_PARTITIONS

if TYPE_CHECKING:
    from tests.simulation.machine import Machine

SLOW_CLIENT_US = 60 * MILLISECOND
"""Delay of the responses to a producer, so that its transaction lasts longer."""
VERIFICATION_S = 12.0
"""Time for which verifications of one coordinator are late."""
MARKERS_S = 8.0
"""Time for which the responses to the markers of one coordinator are held back."""
COORDINATOR_FAULTS = {"late verification": 3, "deposed coordinator": 3}
"""The weight of each fault."""


class CoordinatorFaults(CombinedFaults):
    """All combined faults of one simulation; see the module and `combined_faults`.

    Both faults are about the first protocol. With the second one each transaction has its own
    epoch, which protects it as well.
    """

    def _producer(self) -> tuple[str, Machine] | None:
        """Choose a transactional id of the first protocol. Return it and its coordinator."""
        names = [
            client.name
            for client in self._simulation.clients
            if isinstance(client, SimulatedTransactor) and client.protocol == PROTOCOL_1
        ]
        name = self._rng.choice(names)
        number = partition_for(name, INTERNAL_PARTITIONS)
        model = self._simulation.cluster.find(TRANSACTION_STATE, number)
        if model is None or model.state is None or model.state.leader < 0:
            return None
        return name, self._machine(model.state.leader)

    def _newest(self, name: str) -> Entry:
        """Return the newest committed record of a transactional id."""
        entry = self._simulation.cluster.coordinators.log_of(name).current(name)
        return entry or Entry(-1, -1, -1, -1, -1, 0, frozenset())

    def late_verification(self, _: Machine) -> bool:
        """A verification arrives when its transaction was aborted.

        The responses of the coordinator are held back. A producer with little patience aborts.
        """
        chosen = self._producer()
        if chosen is None:
            return False
        name, coordinator = chosen
        heals = [
            self._stall(
                coordinator,
                other,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                VERIFICATION_S,
                VERIFICATION_S,
            )
            for other in self._machines
            if other is not coordinator
        ]
        began = self._newest(name).offset

        def is_aborted() -> bool:
            newest = self._newest(name)
            return newest.state == COMPLETE_ABORT and newest.offset > began

        def arrive() -> None:
            for heal in heals:
                heal()

        self._when(is_aborted, VERIFICATION_S, arrive)
        return True

    def deposed_coordinator(self, _: Machine) -> bool:
        """A coordinator is deposed before it has the responses to its markers.

        Its successor completes the transaction. When the producer has begun the next one, the
        connections of the former coordinator break, so it would write its markers again.
        """
        chosen = self._producer()
        if chosen is None:
            return False
        name, coordinator = chosen
        others = [each for each in self._machines if each is not coordinator]
        heals = [
            self._stall(other, coordinator, ApiKey.WRITE_TXN_MARKERS, MARKERS_S, MARKERS_S)
            for other in others
        ]
        links = [(machine.host, name) for machine in self._machines]
        decided = self._newest(name)

        def is_prepared() -> bool:
            nonlocal decided
            decided = self._newest(name)
            return decided.state in PREPARED

        def depose() -> None:
            self._stage.expire_session(coordinator)
            for link in links:
                self._network.slow[link] = SLOW_CLIENT_US
                self._stage.later(
                    MARKERS_S, MARKERS_S, lambda link=link: self._network.slow.pop(link, None)
                )
            self._when(has_next, MARKERS_S, fail)

        def has_next() -> bool:
            newest = self._newest(name)
            is_led_by_another = newest.leader_epoch > decided.leader_epoch
            has_same = bool(newest.partitions & decided.partitions)
            return newest.state == ONGOING and is_led_by_another and has_same

        def fail() -> None:
            for other in others:
                self._network.break_connections(coordinator.host, other.host)
            for heal in heals:
                heal()

        self._when(is_prepared, MARKERS_S, depose)
        return True
