"""Requests to the controller: retries, deadlines, changes of the controller, one in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from odradek.client.channel_state import ChannelSettings
from odradek.client.connection import ConnectionClosed, TooManyRequests, UnsupportedRequest
from odradek.environment.clock import ManualClock
from odradek.environment.environment import Environment
from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.metadata.controller_channel import (
    ControllerChannel,
    ControllerChannelSettings,
    ControllerNode,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.messages.envelope_response import EnvelopeResponse
from odradek.results import Result
from tests.client.peer_broker import MiddleNumbers, PeerNetwork, PeerTransport
from tests.helpers.manual_timers import SteppedTimers

SETTINGS = ControllerChannelSettings(
    timeout_ms=10_000,
    requests_max=4,
    channel=ChannelSettings(request_timeout_ms=2_000, setup_timeout_ms=500),
)
NODES = [ControllerNode(BrokerId(n), f"host-{n}", 9000 + n) for n in range(3)]
NOT_CONTROLLER = int(ErrorCode.NOT_CONTROLLER)


class Fixture:
    def __init__(self) -> None:
        self.network = PeerNetwork(
            {int(ApiKey.ENVELOPE): (0, 0), int(ApiKey.ALLOCATE_PRODUCER_IDS): (0, 0)}
        )
        self.timers = SteppedTimers(ManualClock())
        self.controller: ControllerNode | None = NODES[0]
        environment = Environment(
            clock=self.timers._clock,
            timers=self.timers,
            network=self.network,  # type: ignore[arg-type]  # a channel only connects
            randomness=MiddleNumbers(),
        )
        self.channel = ControllerChannel(
            lambda: self.controller, environment, settings=SETTINGS, client_id="broker-1"
        )

    def forward(self, data: bytes = b"r", **others: Any) -> Result[EnvelopeResponse]:
        return self.channel.send(EnvelopeRequest(data), EnvelopeResponse, **others)

    def allocate(self, epoch: int = 0) -> Result[AllocateProducerIdsResponse]:
        return self.channel.send(AllocateProducerIdsRequest(1, epoch), AllocateProducerIdsResponse)

    async def connection(self) -> PeerTransport:
        """Return the newest connection, which is ready for requests."""
        await asyncio.sleep(0)
        connection = self.network.connections[-1]
        if connection.requests and connection.requests[0].api_key == ApiKey.API_VERSIONS:
            connection.respond()
        return connection

    async def advance(self, delay_ms: int) -> None:
        """Move the time in small steps, so that attempts and connections happen in between."""
        for _ in range(delay_ms // 50):
            self.timers.advance(50)
            await asyncio.sleep(0)

    def change_controller(self, node: ControllerNode | None) -> None:
        self.controller = node
        self.channel.controller_changed()


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        it = Fixture()
        await test(it)
        it.channel.close()
        assert it.timers.armed == 0

    asyncio.run(main())


def test_a_response_of_the_controller_is_returned() -> None:
    async def test(it: Fixture) -> None:
        result = it.forward()
        connection = await it.connection()
        assert it.network.addresses == [("host-0", 9000)]
        assert connection.requests[0].client_id == "broker-1"
        assert it.channel.versions(ApiKey.ENVELOPE) == (0, 0)
        connection.respond(EnvelopeResponse(b"done"))
        assert result.get() == EnvelopeResponse(b"done")

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_other_errors_than_not_controller_are_returned(code: ErrorCode) -> None:
    async def test(it: Fixture) -> None:
        result = it.forward()
        (await it.connection()).respond(EnvelopeResponse(None, int(code)))
        assert result.get().error_code == code

    run(test)


def test_not_controller_is_retried_at_the_new_controller() -> None:
    async def test(it: Fixture) -> None:
        result = it.forward()
        first = await it.connection()
        first.respond(EnvelopeResponse(None, NOT_CONTROLLER))
        assert not result.done and not first.requests
        it.controller = NODES[1]
        await it.advance(SETTINGS.retry_backoff_ms)
        second = await it.connection()
        assert first.aborted and it.network.addresses[-1] == ("host-1", 9001)
        second.respond(EnvelopeResponse(b"done"))
        assert result.get().response_data == b"done"

    run(test)


def test_a_change_of_the_controller_is_followed_at_once() -> None:
    async def test(it: Fixture) -> None:
        result = it.forward()
        first = await it.connection()
        it.change_controller(NODES[2])
        second = await it.connection()
        assert first.aborted and first is not second
        second.respond(EnvelopeResponse(b"done"))
        assert result.get().response_data == b"done"

    run(test)


def test_a_request_waits_for_a_controller() -> None:
    async def test(it: Fixture) -> None:
        it.change_controller(None)
        result = it.forward()
        await it.advance(1_000)
        assert not it.network.connections and not result.done
        it.change_controller(NODES[0])
        (await it.connection()).respond(EnvelopeResponse(b"done"))
        assert result.done

    run(test)


def test_without_a_controller_a_request_fails_at_its_deadline() -> None:
    async def test(it: Fixture) -> None:
        it.change_controller(None)
        result = it.forward(timeout_ms=3_000)
        await it.advance(2_950)
        assert not result.done
        await it.advance(50)
        with pytest.raises(TimeoutError, match=r"ENVELOPE .* \(no controller is known\)"):
            result.get()

    run(test)


def test_a_lost_connection_is_retried_with_the_same_request() -> None:
    async def test(it: Fixture) -> None:
        result = it.forward(b"again")
        first = await it.connection()
        first.lose()
        await it.advance(200)
        second = await it.connection()
        assert second is not first
        assert second.requests[0].body == EnvelopeRequest(b"again")
        second.respond(EnvelopeResponse())
        assert result.done

    run(test)


@pytest.mark.parametrize("bad", [b"\0\0\0\5\0\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\1\0"])
def test_a_malformed_response_costs_the_connection_and_is_retried(bad: bytes) -> None:
    async def test(it: Fixture) -> None:
        result = it.forward()
        first = await it.connection()
        first.send(bad)
        if bad[-2:] == b"\1\0":
            first.send(b"\0" * 20)
        assert first.aborted and not result.done
        await it.advance(200)
        (await it.connection()).respond(EnvelopeResponse())
        assert result.done

    run(test)


def test_a_silent_controller_is_tried_again_until_the_deadline() -> None:
    async def test(it: Fixture) -> None:
        result = it.forward()
        for _ in range(200):
            await it.connection()
            await it.advance(50)
        assert isinstance(result.error, TimeoutError)
        # Attempts of 2 s with delays of 100, 200, 400 and 800 ms between them take 9.5 s.
        assert len(it.network.connections) == 5

    run(test)


def test_a_short_deadline_leaves_the_connection_to_the_other_requests() -> None:
    async def test(it: Fixture) -> None:
        short, other = it.forward(b"short", timeout_ms=100), it.forward(b"other")
        connection = await it.connection()
        await it.advance(150)
        assert isinstance(short.error, TimeoutError)
        connection.respond(EnvelopeResponse(b"late"))
        connection.respond(EnvelopeResponse(b"done"))
        assert other.get().response_data == b"done" and not connection.aborted

    run(test)


def test_one_request_of_a_kind_is_in_flight() -> None:
    async def test(it: Fixture) -> None:
        results = [it.allocate(), it.allocate(), it.allocate()]
        forwarded = it.forward()
        connection = await it.connection()
        keys = [each.api_key for each in connection.requests]
        assert keys == [ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ENVELOPE]
        results[1].cancel()
        connection.respond(AllocateProducerIdsResponse(producer_id_start=1))
        connection.respond(EnvelopeResponse())
        assert [each.api_key for each in connection.requests] == [ApiKey.ALLOCATE_PRODUCER_IDS]
        connection.respond(AllocateProducerIdsResponse(producer_id_start=3))
        assert (results[0].get().producer_id_start, results[2].get().producer_id_start) == (1, 3)
        assert not results[1].done and forwarded.done

    run(test)


def test_a_cancelled_request_makes_way_for_the_next_of_its_kind() -> None:
    async def test(it: Fixture) -> None:
        first, second = it.allocate(), it.allocate()
        connection = await it.connection()
        first.cancel()
        assert len(connection.requests) == 2
        connection.respond(AllocateProducerIdsResponse(producer_id_start=1))
        connection.respond(AllocateProducerIdsResponse(producer_id_start=2))
        assert second.get().producer_id_start == 2 and not first.done

    run(test)


def test_requests_are_limited() -> None:
    async def test(it: Fixture) -> None:
        it.controller = None
        results = [it.forward() for _ in range(SETTINGS.requests_max + 1)]
        assert [result.done for result in results] == [False] * SETTINGS.requests_max + [True]
        assert isinstance(results[-1].error, TooManyRequests)
        results[0].cancel()
        assert not it.forward().done

    run(test)


def test_an_api_that_the_controller_does_not_serve_fails_at_once() -> None:
    async def test(it: Fixture) -> None:
        it.network.versions = {int(ApiKey.ALLOCATE_PRODUCER_IDS): (0, 0)}
        result = it.forward()
        await it.connection()
        assert isinstance(result.error, UnsupportedRequest)

    run(test)


def test_a_closed_channel_fails_all_requests() -> None:
    async def test(it: Fixture) -> None:
        results = [it.allocate(), it.allocate(), it.forward()]
        connection = await it.connection()
        it.channel.close()
        results.append(it.forward())
        assert {type(result.error) for result in results} == {ConnectionClosed}
        assert connection.aborted and it.channel.versions(ApiKey.ENVELOPE) is None

    run(test)


class RandomFaults:
    """Random requests, responses, faults and changes of the controller."""

    def __init__(self, it: Fixture, random: Random) -> None:
        self.it = it
        self.random = random
        self.forwarded: list[tuple[bytes, Result[EnvelopeResponse]]] = []
        self.allocations: list[Result[AllocateProducerIdsResponse]] = []
        self.steps: list[Callable[[], None]] = [
            *[self.forward] * 4,
            *[self.allocate] * 4,
            self.change_controller,
            self.lose_connection,
            self.send_garbage,
            self.refuse_connection,
        ]

    def forward(self) -> None:
        data = str(len(self.forwarded)).encode()
        timeout_ms = self.random.choice([100, 5_000])
        self.forwarded.append((data, self.it.forward(data, timeout_ms=timeout_ms)))

    def allocate(self) -> None:
        self.allocations.append(self.it.allocate(len(self.allocations)))

    def change_controller(self) -> None:
        self.it.change_controller(self.random.choice([None, *NODES]))

    def lose_connection(self) -> None:
        for connection in self.open_connections()[-1:]:
            connection.lose()

    def send_garbage(self) -> None:
        for connection in self.open_connections()[-1:]:
            connection.send(self.random.randbytes(self.random.randrange(1, 30)))

    def refuse_connection(self) -> None:
        self.it.network.errors.append(ConnectionRefusedError())

    def open_connections(self) -> list[PeerTransport]:
        return [each for each in self.it.network.connections if not each.aborted]

    def respond(self) -> None:
        for connection in self.open_connections():
            while connection.requests and not connection.aborted and self.random.random() < 0.4:
                body = connection.requests[0].body
                code = NOT_CONTROLLER if self.random.random() < 0.2 else 0
                response: Any = None
                if isinstance(body, EnvelopeRequest):
                    response = EnvelopeResponse(body.request_data, code)
                elif isinstance(body, AllocateProducerIdsRequest):
                    response = AllocateProducerIdsResponse(
                        error_code=code, producer_id_start=body.broker_epoch
                    )
                connection.respond(response)

    def check(self) -> None:
        """At most one allocation that is not done is in flight."""
        in_flight = [
            request.body.broker_epoch
            for connection in self.open_connections()
            for request in connection.requests
            if isinstance(request.body, AllocateProducerIdsRequest)
        ]
        assert len([number for number in in_flight if not self.allocations[number].done]) <= 1

    def check_end(self) -> None:
        """Each request is done, with an error or with its own response."""
        for data, forwarded in self.forwarded:
            assert forwarded.done
            assert forwarded.error is not None or forwarded.get().response_data == data
        for number, allocated in enumerate(self.allocations):
            assert allocated.done
            assert allocated.error is not None or allocated.get().producer_id_start == number

    @property
    def successes(self) -> int:
        results = [*(result for _, result in self.forwarded), *self.allocations]
        return sum(result.error is None for result in results)


def test_every_request_is_done_at_its_deadline_under_random_faults(seed: int) -> None:
    random = Random(seed)
    successes = []

    async def test(it: Fixture) -> None:
        faults = RandomFaults(it, random)
        for _ in range(200):
            if random.random() < 0.7:
                await it.advance(100)
            else:
                random.choice(faults.steps)()
            faults.respond()
            faults.check()
        await it.advance(SETTINGS.timeout_ms)
        faults.check_end()
        successes.append(faults.successes)

    for _ in range(25):
        run(test)
    assert sum(successes) > 50
