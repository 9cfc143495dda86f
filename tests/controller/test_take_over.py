"""Tests of elections at the store and of resignations, with lost requests and other brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from odradek.controller import take_over
from odradek.controller.take_over import Elected, Standby, contend, resign
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.image import NO_LEADER
from odradek.metadata.store.interface import (
    Operation,
    SessionState,
    UnknownOutcomeError,
    WatchEvent,
    Written,
)
from odradek.metadata.store.memory import MemoryStore
from tests.controller.test_cluster_controller import running

OWN, OTHER = BrokerId(1), BrokerId(2)


class Store(MemoryStore):
    """A store whose next multi is not executed. Its outcome is unknown to the caller."""

    loses = False

    async def before_the_outcome(self) -> None:
        """Run while the outcome is unknown."""

    async def multi(self, operations: Sequence[Operation]) -> list[Written]:
        if not self.loses:
            return await super().multi(operations)
        self.loses = False
        await self.before_the_outcome()
        raise UnknownOutcomeError("lost")


def run(scenario: Callable[[Store, Store], Awaitable[None]]) -> None:
    """Run with the open stores of two brokers, before the first election."""
    with running(0) as world:
        own, other = (Store(world.ensemble, timers=world.timers) for _ in range(2))

        async def whole() -> None:
            await own.open()
            await other.open()
            await own.create(znodes.CONTROLLER_EPOCH, b"0")
            await scenario(own, other)
            await own.close()
            await other.close()

        world.run(whole())


def _ignore(_: WatchEvent) -> None:
    pass


async def elected(store: Store, broker: BrokerId = OWN) -> Elected:
    """Have a broker win an election."""
    result = await contend(store, broker, 0, _ignore)
    assert isinstance(result, Elected)
    return result


def test_election_whose_request_was_lost_is_not_won_by_the_one_of_another_broker() -> None:
    async def scenario(own: Store, other: Store) -> None:
        async def other_is_elected() -> None:
            await elected(other, OTHER)

        own.loses = True
        own.before_the_outcome = other_is_elected  # type: ignore[method-assign]
        assert await contend(own, OWN, 0, _ignore) == Standby(OTHER)

    run(scenario)


def test_election_whose_request_was_lost_is_not_won_by_a_session_that_has_ended() -> None:
    """Another broker has won with the same epoch, and its session has ended."""

    async def scenario(own: Store, other: Store) -> None:
        async def other_was_elected() -> None:
            await elected(other, OTHER)
            await other.close()

        own.loses = True
        own.before_the_outcome = other_was_elected  # type: ignore[method-assign]
        assert (await elected(own)).epoch == 2
        assert int((await own.get(znodes.CONTROLLER_EPOCH)).data) == 2

    run(scenario)


def test_election_of_the_owner_whose_request_was_lost_is_repeated() -> None:
    """The node /controller is its own already, so only the epoch shows that nothing happened."""

    async def scenario(own: Store, _: Store) -> None:
        first = await elected(own)
        own.loses = True
        second = await elected(own)
        assert second.epoch == first.epoch + 1
        node = await own.get(znodes.CONTROLLER_EPOCH)
        assert (int(node.data), node.version) == (second.epoch, second.epoch_version)

    run(scenario)


def test_number_of_attempts_of_an_election_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_over, "CONTEND_ATTEMPTS_MAX", 3)

    async def scenario(own: Store, _: Store) -> None:
        async def again() -> None:
            own.loses = True

        own.loses = True
        own.before_the_outcome = again  # type: ignore[method-assign]
        assert await contend(own, OWN, 0, _ignore) == Standby(NO_LEADER)

    run(scenario)


@pytest.mark.parametrize("is_next_elected", [True, False])
def test_hazard_3_resignation_never_deletes_the_node_of_the_next_controller(
    is_next_elected: bool,
) -> None:
    """An administrator has deleted /controller. The next node has the same version, 0."""

    async def scenario(own: Store, other: Store) -> None:
        first = await elected(own)
        await other.delete(znodes.CONTROLLER)
        if is_next_elected:
            await elected(other, OTHER)
        assert not await resign(own, first)
        if is_next_elected:
            assert await contend(own, OWN, 0, _ignore) == Standby(OTHER)

    run(scenario)


def test_hazard_1_resignation_whose_request_was_lost_keeps_the_node() -> None:
    """The next election of the session settles the matter, and another resignation works."""

    async def scenario(own: Store, _: Store) -> None:
        first = await elected(own)
        own.loses = True
        assert not await resign(own, first)
        second = await elected(own)
        assert second.epoch == first.epoch + 1
        assert not await resign(own, first)
        assert await resign(own, second)
        await own.close()
        assert own.state is not SessionState.CONNECTED
        assert not await resign(own, second)

    run(scenario)
