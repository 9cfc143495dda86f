"""The state machine of a channel, against a model and against brokers that misbehave."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from odradek.client.channel_state import (
    ChannelSettings,
    ChannelState,
    Complete,
    Connect,
    Disconnect,
    Effect,
    Fail,
    HandshakeFailed,
    Phase,
    Ticket,
    Write,
)
from odradek.client.connection import (
    ConnectionClosed,
    InvalidResponse,
    TooManyRequests,
    UnsupportedRequest,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from tests.client.peer_broker import PeerBroker, Received, framed

HEARTBEATS = {int(ApiKey.HEARTBEAT): (0, 4)}
SETTINGS = ChannelSettings(
    request_timeout_ms=100, setup_timeout_ms=50, in_flight_max=3, queued_max=5
)


def heartbeat(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(f"g{number}", number, "m")


class Driver:
    """Runs a state like a shell does, with a peer that sees what was written."""

    def __init__(
        self, peer: PeerBroker | None = None, settings: ChannelSettings = SETTINGS, **others: Any
    ) -> None:
        self.now_ms = 0.0
        self.peer = peer or PeerBroker(HEARTBEATS)
        self.new_peer = self.peer
        self.state = ChannelState(settings, lambda low, high: (low + high) // 2, **others)
        self.connects = 0
        self.disconnects = 0
        self.requests: deque[Received] = deque()
        self.completed: list[tuple[Ticket, Message]] = []
        self.failed: list[tuple[Ticket, Exception]] = []

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.perform_one(effect)
        while (following := self.state.send_next()) is not None:
            self.perform_one(following)

    def perform_one(self, effect: Effect) -> None:
        match effect:
            case Connect():
                self.connects += 1
            case Disconnect():
                self.disconnects += 1
                self.requests.clear()
            case Write(data):
                self.requests += self.peer.receive(data)
            case Complete(ticket, response):
                self.completed.append((ticket, response))
            case Fail(ticket, error):
                self.failed.append((ticket, error))

    def submit(self, number: int = 0, timeout_ms: float = 100) -> Ticket:
        ticket = Ticket(heartbeat(number), self.now_ms + timeout_ms, None)
        self.perform(self.state.enqueue(ticket, self.now_ms))
        return ticket

    def connect(self) -> None:
        self.peer = PeerBroker(self.new_peer.versions)
        self.perform(self.state.connected(self.now_ms))

    def receive(self, data: bytes) -> None:
        self.perform(self.state.received(data, self.now_ms))

    def respond(self, response: Message | None = None) -> None:
        request = self.requests.popleft()
        if response is None and request.api_key == ApiKey.HEARTBEAT:
            assert isinstance(request.body, HeartbeatRequest)
            response = HeartbeatResponse(request.body.generation_id, 0)
        self.receive(self.peer.respond(request, response))

    def wake(self, at_ms: float) -> None:
        self.now_ms = at_ms
        self.perform(self.state.wake(at_ms))

    def make_ready(self) -> None:
        self.connect()
        self.respond()
        assert self.state.phase is Phase.READY

    @property
    def errors(self) -> list[type[Exception]]:
        return [type(error) for _, error in self.failed]


def ready(**others: Any) -> Driver:
    """Return a driver whose channel is ready, and whose first request was answered."""
    driver = Driver(**others)
    driver.submit()
    driver.make_ready()
    driver.respond()
    driver.completed.clear()
    return driver


def test_a_channel_connects_at_the_first_request_and_asks_for_versions_first() -> None:
    driver = Driver(client_id="broker-1", software=("odradek", "1.2"))
    assert driver.state.phase is Phase.IDLE and driver.connects == 0
    ticket = driver.submit(7)
    assert driver.state.phase is Phase.CONNECTING and driver.connects == 1
    driver.connect()
    assert [each.api_key for each in driver.requests] == [ApiKey.API_VERSIONS]
    assert driver.requests[0].body == ApiVersionsRequest("odradek", "1.2")
    driver.respond()
    (request,) = driver.requests
    assert (request.version, request.client_id, request.body) == (4, "broker-1", heartbeat(7))
    driver.respond()
    assert driver.completed == [(ticket, HeartbeatResponse(7, 0))]
    assert not driver.failed


def test_the_highest_version_that_both_brokers_know_is_sent() -> None:
    driver = Driver(PeerBroker({int(ApiKey.HEARTBEAT): (0, 2)}))
    driver.submit()
    driver.make_ready()
    assert driver.requests[0].version == 2
    assert driver.state.versions(ApiKey.HEARTBEAT) == (0, 2)
    assert driver.state.versions(ApiKey.ENVELOPE) is None


def test_a_broker_of_an_earlier_release_is_asked_again_in_its_version() -> None:
    peer = PeerBroker(HEARTBEATS)
    peer.versions[ApiKey.API_VERSIONS] = (0, 2)
    driver = Driver(peer)
    driver.submit()
    driver.connect()
    driver.respond()
    assert driver.requests[0].version == 2
    driver.respond()
    driver.respond()
    assert len(driver.completed) == 1


def test_a_broker_that_refuses_every_version_costs_the_connection() -> None:
    driver = Driver()
    driver.submit()
    driver.connect()
    driver.peer.versions = {int(ApiKey.API_VERSIONS): (0, 2)}
    driver.respond()
    driver.peer.versions = {int(ApiKey.API_VERSIONS): (0, 1)}
    driver.requests[0] = driver.requests[0]._replace(version=2)
    data = struct.pack(">ihi", driver.requests[0].correlation_id, 35, 1) + struct.pack(
        ">hhh", 18, 0, 4
    )
    driver.receive(struct.pack(">i", len(data)) + data)
    assert driver.errors == [InvalidResponse]


def test_an_api_that_the_broker_does_not_serve_fails_the_request_alone() -> None:
    driver = ready()
    ticket = Ticket(SaslAuthenticateRequest(b""), 1_000, None)
    driver.perform(driver.state.enqueue(ticket, 0))
    other = driver.submit(3)
    assert driver.errors == [UnsupportedRequest]
    driver.respond()
    assert driver.completed == [(other, HeartbeatResponse(3, 0))]


def test_a_request_without_a_response_is_refused() -> None:
    driver = Driver()
    with pytest.raises(ValueError, match="acks=0"):
        driver.state.enqueue(Ticket(ProduceRequest(acks=0), 1, None), 0)


def test_requests_in_flight_and_in_the_queue_are_limited() -> None:
    driver = ready()
    tickets = [driver.submit(number) for number in range(9)]
    assert len(driver.requests) == SETTINGS.in_flight_max
    assert [ticket for ticket, _ in driver.failed] == tickets[8:]
    assert driver.errors == [TooManyRequests]
    for _ in range(8):
        driver.respond()
    assert driver.completed == [
        (ticket, HeartbeatResponse(number, 0)) for number, ticket in enumerate(tickets[:8])
    ]


def test_cancelled_requests_make_room_in_the_queue() -> None:
    driver = ready()
    tickets = [driver.submit(number) for number in range(8)]
    for ticket in tickets[4:]:
        ticket.cancel()
    last = driver.submit(8)
    assert not driver.failed
    for _ in range(5):
        driver.respond()
    assert [ticket for ticket, _ in driver.completed] == [*tickets[:4], last]
    assert not driver.requests


def test_a_full_connection_stops_the_requests_until_it_is_writable_again() -> None:
    driver = ready()
    driver.state.set_writable(False)
    driver.submit(1)
    assert not driver.requests
    driver.state.set_writable(True)
    driver.perform([])
    assert len(driver.requests) == 1


def test_the_response_to_a_cancelled_request_is_dropped() -> None:
    driver = ready()
    first, second = driver.submit(1), driver.submit(2)
    first.cancel()
    driver.respond()
    driver.respond()
    assert driver.completed == [(second, HeartbeatResponse(2, 0))]


@pytest.mark.parametrize("how", ["stale id", "torn body", "huge", "negative", "extra", "garbage"])
def test_a_response_that_is_not_the_expected_one_costs_the_connection(how: str) -> None:
    driver = ready()
    tickets = [driver.submit(1), driver.submit(2)]
    request = driver.requests[0]
    good = driver.peer.respond(request, HeartbeatResponse(1, 0))
    data = {
        "stale id": framed(request, b"\0" * 7, correlation_id=request.correlation_id - 1),
        "torn body": framed(request, b"\0"),
        "huge": struct.pack(">i", 2**31 - 1),
        "negative": struct.pack(">i", -1),
        "extra": good + driver.peer.respond(request, HeartbeatResponse(1, 0)),
        "garbage": b"\x15\x03\x01\x00\x02\x02\x46garbage",
    }[how]
    driver.receive(data)
    completed = 1 if how == "extra" else 0
    assert [ticket for ticket, _ in driver.completed] == tickets[:completed]
    assert [ticket for ticket, _ in driver.failed] == tickets[completed:]
    assert set(driver.errors) == {InvalidResponse}
    assert driver.disconnects == 1 and driver.state.phase is Phase.BACKOFF


def test_bytes_without_a_request_cost_the_connection() -> None:
    driver = ready()
    driver.receive(b"\0")
    assert driver.state.phase is Phase.BACKOFF and driver.disconnects == 1
    driver.receive(b"\0" * 100)
    assert driver.disconnects == 1


def test_a_lost_connection_fails_all_requests_and_the_next_one_connects_after_the_delay() -> None:
    driver = ready()
    tickets = [driver.submit(number) for number in range(5)]
    driver.perform(driver.state.failed(ConnectionResetError("reset"), 0))
    assert [ticket for ticket, _ in driver.failed] == tickets
    assert set(driver.errors) == {ConnectionResetError}
    later = driver.submit(9)
    assert driver.connects == 1 and driver.state.wake_ms == SETTINGS.backoff_ms
    driver.wake(SETTINGS.backoff_ms)
    assert driver.connects == 2
    driver.make_ready()
    driver.respond()
    assert driver.completed == [(later, HeartbeatResponse(9, 0))]


def test_the_delay_doubles_up_to_its_bound_and_starts_again_after_a_success() -> None:
    driver = Driver()
    delays = []
    for _ in range(8):
        driver.submit()
        driver.perform(driver.state.failed(ConnectionRefusedError(), driver.now_ms))
        delays.append(driver.state.wake_ms - driver.now_ms)  # type: ignore[operator]
        driver.wake(driver.now_ms + delays[-1])
    assert delays == [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]
    driver.submit()
    driver.make_ready()
    driver.perform(driver.state.failed(ConnectionResetError(), driver.now_ms))
    assert driver.state.wake_ms == driver.now_ms + 50


@pytest.mark.parametrize("percent", [80, 120])
def test_the_delay_has_jitter(percent: int) -> None:
    state = ChannelState(SETTINGS, lambda low, high: low if percent < 100 else high)
    state.enqueue(Ticket(heartbeat(1), 100, None), 0)
    state.failed(ConnectionRefusedError(), 0)
    assert state.wake_ms == SETTINGS.backoff_ms * percent / 100


def test_without_requests_a_channel_does_not_connect_again() -> None:
    driver = ready()
    driver.perform(driver.state.failed(ConnectionResetError(), 0))
    driver.wake(1_000)
    assert driver.state.phase is Phase.IDLE and driver.connects == 1
    assert driver.state.wake_ms is None


@pytest.mark.parametrize("step", ["connecting", "negotiating"])
def test_a_connection_that_is_not_ready_in_time_is_given_up(step: str) -> None:
    driver = Driver()
    driver.submit(timeout_ms=1_000)
    if step == "negotiating":
        driver.connect()
    driver.wake(SETTINGS.setup_timeout_ms - 1)
    assert not driver.failed
    driver.wake(SETTINGS.setup_timeout_ms)
    assert driver.errors == [TimeoutError] and driver.disconnects == 1


def test_a_late_response_costs_the_connection() -> None:
    driver = ready()
    driver.submit(1, timeout_ms=100)
    driver.submit(2, timeout_ms=500)
    driver.wake(99)
    assert not driver.failed
    driver.wake(100)
    assert driver.errors == [TimeoutError, TimeoutError] and driver.disconnects == 1


def test_a_late_request_in_the_queue_fails_alone() -> None:
    driver = ready()
    driver.state.set_writable(False)
    late, other = driver.submit(1, timeout_ms=10), driver.submit(2, timeout_ms=500)
    driver.wake(10)
    assert [ticket for ticket, _ in driver.failed] == [late]
    assert driver.state.wake_ms == 500 and driver.disconnects == 0
    driver.state.set_writable(True)
    driver.perform([])
    driver.respond()
    assert driver.completed == [(other, HeartbeatResponse(2, 0))]


def test_a_closed_channel_fails_all_requests() -> None:
    driver = ready()
    tickets = [driver.submit(1)]
    driver.perform(driver.state.close())
    tickets.append(driver.submit(2))
    assert [ticket for ticket, _ in driver.failed] == tickets
    assert set(driver.errors) == {ConnectionClosed}
    driver.perform(driver.state.close())
    driver.perform(driver.state.failed(ConnectionResetError(), 0))
    driver.wake(10_000)
    assert driver.disconnects == 1 and driver.state.phase is Phase.CLOSED


def authenticate() -> Generator[Message, Message, None]:
    for token in (b"one", b"two"):
        response = yield SaslAuthenticateRequest(token)
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise HandshakeFailed(f"error {response.error_code}")


def test_the_handshake_comes_before_the_versions() -> None:
    driver = Driver(handshake=authenticate)
    driver.submit(1)
    driver.connect()
    for token in (b"one", b"two"):
        assert driver.requests[0].body == SaslAuthenticateRequest(token)
        driver.respond(SaslAuthenticateResponse())
    assert driver.requests[0].api_key == ApiKey.API_VERSIONS
    driver.respond()
    driver.respond()
    assert len(driver.completed) == 1


def test_a_refused_handshake_costs_the_connection() -> None:
    driver = Driver(handshake=authenticate)
    driver.submit(1)
    driver.connect()
    driver.respond(SaslAuthenticateResponse(error_code=58))
    assert driver.errors == [HandshakeFailed]
    driver.submit(2)
    driver.wake(SETTINGS.backoff_ms)
    driver.connect()
    assert driver.requests[0].body == SaslAuthenticateRequest(b"one")


class ChannelMachine(RuleBasedStateMachine):
    """Random events. Each request gets at most one outcome, and its own response."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.tickets: list[Ticket] = []

    @property
    def phase(self) -> Phase:
        return self.driver.state.phase

    @rule(timeout_ms=st.sampled_from([5, 60, 300]))
    def submit(self, timeout_ms: int) -> None:
        self.tickets.append(self.driver.submit(len(self.tickets), timeout_ms))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        ticket = data.draw(st.sampled_from(self.tickets))
        ticket.cancel()

    @precondition(lambda self: self.phase is Phase.CONNECTING)
    @rule()
    def connect(self) -> None:
        self.driver.connect()

    @rule(pieces=st.integers(1, 4))
    def respond(self, pieces: int) -> None:
        if not self.driver.requests:
            return
        request = self.driver.requests.popleft()
        response = None
        if request.api_key == ApiKey.HEARTBEAT:
            assert isinstance(request.body, HeartbeatRequest)
            response = HeartbeatResponse(request.body.generation_id, 0)
        data = self.driver.peer.respond(request, response)
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            self.driver.receive(data[start : start + size])

    @rule(data=st.binary(min_size=1, max_size=40))
    def misbehave(self, data: bytes) -> None:
        self.driver.receive(data)

    @rule()
    def lose(self) -> None:
        self.driver.perform(self.driver.state.failed(ConnectionResetError(), self.driver.now_ms))
        self.driver.requests.clear()

    @rule(writable=st.booleans())
    def set_writable(self, writable: bool) -> None:
        self.driver.state.set_writable(writable)
        self.driver.perform([])

    @rule(delay_ms=st.sampled_from([1, 20, 100, 1_200]))
    def wait(self, delay_ms: int) -> None:
        self.driver.wake(self.driver.now_ms + delay_ms)

    @rule()
    def close_after_many_requests(self) -> None:
        if len(self.tickets) > 12:
            self.driver.perform(self.driver.state.close())

    @invariant()
    def each_request_has_at_most_one_outcome(self) -> None:
        done = [ticket for ticket, _ in self.driver.completed]
        done += [ticket for ticket, _ in self.driver.failed]
        assert len({id(ticket) for ticket in done}) == len(done)

    @invariant()
    def each_response_belongs_to_its_request(self) -> None:
        for ticket, response in self.driver.completed:
            assert isinstance(ticket.request, HeartbeatRequest)
            assert isinstance(response, HeartbeatResponse)
            assert response.throttle_time_ms == ticket.request.generation_id

    @invariant()
    def limits_hold(self) -> None:
        state = self.driver.state
        assert state.waiting <= SETTINGS.in_flight_max + SETTINGS.queued_max
        assert len(self.driver.requests) <= max(1, SETTINGS.in_flight_max)

    @invariant()
    def no_request_waits_without_a_timer(self) -> None:
        state = self.driver.state
        waits = [t for t in self.tickets if not t.cancelled and not self.is_done(t)]
        if waits:
            assert state.phase in (
                Phase.BACKOFF,
                Phase.CONNECTING,
                Phase.HANDSHAKE,
                Phase.NEGOTIATING,
                Phase.READY,
            )
            assert state.wake_ms is not None

    def is_done(self, ticket: Ticket) -> bool:
        return any(each is ticket for each, _ in [*self.driver.completed, *self.driver.failed])

    def teardown(self) -> None:
        """Each request that was not cancelled has an outcome after the longest timeout."""
        for _ in range(5):
            self.driver.wake(self.driver.now_ms + 2_000)
        assert not [t for t in self.tickets if not t.cancelled and not self.is_done(t)]


ChannelMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestChannelMachine = ChannelMachine.TestCase
