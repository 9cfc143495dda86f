"""Channels to the other brokers of a cluster: made on demand, closed with their broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.peer_channels import PeerChannels
from odradek.client.broker_channel import BrokerChannel
from odradek.client.connection import ConnectionClosed
from odradek.environment.clock import ManualClock
from odradek.environment.environment import Environment
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from odradek.metadata.persistent import PersistentMap
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.results import Result
from tests.client.peer_broker import MiddleNumbers, PeerNetwork
from tests.helpers.manual_timers import SteppedTimers
from tests.helpers.metadata_deltas import delta_between

B, C = BrokerId(2), BrokerId(3)


def registration(broker: BrokerId, port: int, epoch: int = 1) -> BrokerRegistration:
    listeners = (Endpoint("CLIENTS", "clients", 9092), Endpoint("BROKERS", "brokers", port))
    return BrokerRegistration(broker, "clients", 9092, listeners=listeners, epoch=epoch)


class Fixture:
    """Channels on a network in memory, and the image that they follow."""

    def __init__(self) -> None:
        self.network = PeerNetwork({int(ApiKey.HEARTBEAT): (0, 4)})
        self.timers = SteppedTimers(ManualClock())
        self.environment = Environment(
            clock=self.timers._clock,
            timers=self.timers,
            network=self.network,  # type: ignore[arg-type]  # a channel only connects
            randomness=MiddleNumbers(),
        )
        both = PersistentMap({B: registration(B, 92), C: registration(C, 93)})
        self.image = MetadataImage(brokers=both)
        self.channels = PeerChannels(lambda: self.image.brokers, "BROKERS", self._connect)

    def _connect(self, host: str, port: int) -> BrokerChannel:
        return BrokerChannel(host, port, self.environment)

    def change(self, broker: BrokerId, changed: BrokerRegistration | None) -> None:
        """Replace or remove a broker, and report the new image."""
        old = self.image
        kept = {broker: changed} if changed is not None else {}
        brokers = old.brokers.with_changes(kept, [] if changed is not None else [broker])
        self.image = replace(old, brokers=brokers)
        self.channels.on_metadata(delta_between(old, self.image), old, self.image)

    def send(self, broker: BrokerId) -> Result[HeartbeatResponse]:
        return self.channels.send(broker, HeartbeatRequest("g", 1, "m"), HeartbeatResponse)


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Fixture())

    asyncio.run(main())


def test_a_broker_has_one_channel_to_its_inter_broker_listener() -> None:
    async def test(it: Fixture) -> None:
        results = [it.send(B), it.send(B), it.send(C)]
        await asyncio.sleep(0)
        assert it.network.addresses == [("brokers", 92), ("brokers", 93)]
        connection = it.network.connections[0]
        connection.respond()
        connection.respond(HeartbeatResponse())
        connection.respond(HeartbeatResponse())
        assert [each.done for each in results] == [True, True, False]

    run(test)


def test_an_unknown_broker_is_not_available() -> None:
    async def test(it: Fixture) -> None:
        assert isinstance(it.send(BrokerId(7)).error, ConnectionClosed)
        it.change(B, replace(registration(B, 92), listeners=()))
        assert isinstance(it.send(B).error, ConnectionClosed)
        assert not it.network.addresses

    run(test)


@pytest.mark.parametrize(
    "changed",
    [None, replace(registration(B, 92), fenced=True), registration(B, 92, epoch=2)],
    ids=["gone", "fenced", "another process"],
)
def test_the_channel_ends_with_the_registration_of_its_broker(changed: Any) -> None:
    async def test(it: Fixture) -> None:
        waiting, other = it.send(B), it.send(C)
        await asyncio.sleep(0)
        it.change(B, changed)
        assert isinstance(waiting.error, ConnectionClosed)
        assert it.network.connections[0].aborted
        assert not other.done
        again = it.send(B)
        await asyncio.sleep(0)
        is_served = changed is not None and not changed.fenced
        assert (again.error is None) is is_served
        assert len(it.network.connections) == 2 + is_served

    run(test)


def test_another_address_gets_another_channel() -> None:
    async def test(it: Fixture) -> None:
        it.send(B)
        await asyncio.sleep(0)
        it.change(B, registration(B, 95, epoch=2))
        it.send(B)
        await asyncio.sleep(0)
        assert it.network.addresses == [("brokers", 92), ("brokers", 95)]

    run(test)


def test_another_change_of_a_broker_keeps_its_channel() -> None:
    async def test(it: Fixture) -> None:
        waiting = it.send(B)
        await asyncio.sleep(0)
        it.change(B, replace(registration(B, 92), in_controlled_shutdown=True))
        assert not waiting.done
        it.send(B)
        assert len(it.network.addresses) == 1

    run(test)


def test_no_request_is_sent_after_the_end() -> None:
    async def test(it: Fixture) -> None:
        waiting = it.send(B)
        await asyncio.sleep(0)
        it.channels.close()
        assert isinstance(waiting.error, ConnectionClosed)
        assert isinstance(it.send(B).error, ConnectionClosed)
        assert len(it.network.addresses) == 1

    run(test)
