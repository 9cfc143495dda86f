"""State machine of a channel to another broker, without input, output and time.

A channel has at most one connection. It connects when there is a request. After the end of a
connection it waits for a growing delay before the next one. The phases are::

    IDLE --request--> CONNECTING --> HANDSHAKE --> NEGOTIATING --> READY
      ^                                                              |
      '--no request-- BACKOFF <---- any error, end or timeout -------'

HANDSHAKE exchanges the requests of the listener's security protocol, none for PLAINTEXT.
NEGOTIATING requests the broker's versions by ApiVersions, so that two releases work together.

- Requests are sent in the order of `enqueue`, and responses arrive in that order. At most
  `in_flight_max` requests are in flight. The others wait in a queue of at most `queued_max`.
- A request has a deadline from the call. If it passes in the queue, the request alone fails.
  If it passes in flight, the connection ends as well, because the later responses would be late,
  too.
- A malformed, stale or unexpected response ends the connection. Its bytes never reach a caller.
- When the connection ends, all requests fail, also those in the queue. Callers decide which of them
  to send again.

Methods take the time in milliseconds and return effects, which the shell (`BrokerChannel`) performs
in their order. After each event the shell calls `send_next` until it returns None: one write at a
time, because a write may fill the connection. `wake_ms` is the time at which `wake` is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from odradek.client.connection import (
    RESPONSE_BYTES_MAX,
    ClientConnection,
    ConnectionClosed,
    InvalidResponse,
    TooManyRequests,
    UnsupportedRequest,
    expects_response,
)
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message
from odradek.protocol.errors import UnencodableMessage, UnknownVersion
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse

DOUBLINGS_MAX = 30
"""Most doublings of a time. The bound of the time holds before, but the product would grow on."""

Handshake = Callable[[], Generator[Message, Message, None]]
"""A new handshake: a generator that yields each request and receives its response. It raises
`HandshakeFailed` if the broker refuses. Requests have their highest version.
"""


class HandshakeFailed(ConnectionError):
    """The broker refused the handshake of the security protocol."""


def no_handshake() -> Generator[Message, Message, None]:
    """Return the handshake of PLAINTEXT, which has no request."""
    yield from ()


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Limits and times of a channel. The defaults are those of Kafka's clients, where it has any.

    Attributes:
        request_timeout_ms: From the call to its response (request.timeout.ms).
        setup_timeout_ms: From the start of a connection to its first request
            (socket.connection.setup.timeout.ms). Each failure doubles it.
        setup_timeout_max_ms: Upper bound of that (socket.connection.setup.timeout.max.ms).
        backoff_ms: Delay after the first failure. Each further one doubles it.
        backoff_max_ms: Upper bound of the delay, without jitter.
        backoff_jitter_percent: The delay varies at random by so many percent in both directions.
        in_flight_max: Requests that wait for a response on the connection.
        queued_max: Requests that wait to be sent.
        response_bytes_max: Largest response.
    """

    request_timeout_ms: int = 30_000
    setup_timeout_ms: int = 10_000
    setup_timeout_max_ms: int = 30_000
    backoff_ms: int = 50
    backoff_max_ms: int = 1_000
    backoff_jitter_percent: int = 20
    in_flight_max: int = 100
    queued_max: int = 1_000
    response_bytes_max: int = RESPONSE_BYTES_MAX


class Phase(Enum):
    """Phase of a channel."""

    IDLE = "idle"
    BACKOFF = "backoff"
    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    NEGOTIATING = "negotiating"
    READY = "ready"
    CLOSED = "closed"


class Ticket:
    """A request of a caller. The shell subclasses it and completes it.

    Attributes:
        cancelled: The caller no longer needs the response.
    """

    __slots__ = ("cancelled", "deadline_ms", "request", "version")

    def __init__(self, request: Message, deadline_ms: float, version: int | None) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.version = version
        self.cancelled = False

    def cancel(self) -> None:
        """Drop the request if it was not sent, and its response otherwise."""
        self.cancelled = True


class Connect(NamedTuple):
    """Open a connection. `connected` or `failed` reports the outcome."""


class Write(NamedTuple):
    """Write the bytes to the connection."""

    data: bytes


class Disconnect(NamedTuple):
    """Abort the connection, or the attempt to open one."""


class Complete(NamedTuple):
    """Pass the response to the caller."""

    ticket: Ticket
    response: Message


class Fail(NamedTuple):
    """Pass the error to the caller."""

    ticket: Ticket
    error: Exception


Effect = Connect | Write | Disconnect | Complete | Fail


class ChannelState:
    """The state of one channel. Owned by its shell.

    Args:
        settings: Limits and times.
        random_percent: Returns a random number between two bounds, for the jitter of the backoff.
        handshake: Makes the handshake of a new connection.
        client_id: Client id of all requests.
        software: Name and version in the ApiVersions request.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        random_percent: Callable[[int, int], int],
        *,
        handshake: Handshake = no_handshake,
        client_id: str = "",
        software: tuple[str, str] = ("odradek", "0"),
    ) -> None:
        self.phase = Phase.IDLE
        self.writable = True
        self._settings = settings
        self._random_percent = random_percent
        self._new_handshake = handshake
        self._client_id = client_id
        self._software = software
        self._queue: deque[Ticket] = deque()
        self._in_flight: deque[Ticket] = deque()
        self._connection = ClientConnection()
        self._handshake = no_handshake()
        self._api_versions_version = ApiVersionsRequest.MAX_VERSION
        self._failures = 0
        self._phase_end_ms: float | None = None  # of BACKOFF and of the setup
        self._deadline_ms: float | None = None  # not later than the earliest deadline

    @property
    def wake_ms(self) -> float | None:
        """The time at which `wake` is due, or None."""
        if self._phase_end_ms is None or self._deadline_ms is None:
            return self._deadline_ms if self._phase_end_ms is None else self._phase_end_ms
        return min(self._phase_end_ms, self._deadline_ms)

    @property
    def waiting(self) -> int:
        """The number of requests without a response, sent or not."""
        return len(self._queue) + len(self._in_flight)

    def versions(self, api_key: int) -> tuple[int, int] | None:
        """Return the broker's versions of an API, or None. Known while the phase is READY."""
        return self._connection.versions.get(api_key) if self.phase is Phase.READY else None

    # --- the caller's side ---

    def enqueue(self, ticket: Ticket, now_ms: float) -> list[Effect]:
        """Send the request of `ticket` when the connection allows it."""
        if self.phase is Phase.CLOSED:
            return [Fail(ticket, ConnectionClosed("the channel is closed"))]
        if ticket.request.API_KEY == ApiKey.PRODUCE and not expects_response(ticket.request):
            raise ValueError("a broker sends no response to Produce with acks=0")
        if len(self._queue) >= self._settings.queued_max:
            self._queue = deque(each for each in self._queue if not each.cancelled)
        if len(self._queue) >= self._settings.queued_max:
            return [Fail(ticket, TooManyRequests(f"{len(self._queue)} requests wait to be sent"))]
        self._queue.append(ticket)
        if self._deadline_ms is None or ticket.deadline_ms < self._deadline_ms:
            self._deadline_ms = ticket.deadline_ms
        return self._connect(now_ms) if self.phase is Phase.IDLE else []

    def send_next(self) -> Write | Fail | None:
        """Return the effect of sending the next request, or None if none can be sent now."""
        if self.phase is not Phase.READY or not self.writable:
            return None
        while self._queue and len(self._in_flight) < self._settings.in_flight_max:
            ticket = self._queue.popleft()
            if ticket.cancelled:
                continue
            try:
                data = self._connection.send(ticket.request, ticket.version)
            except (UnsupportedRequest, UnknownVersion, UnencodableMessage) as error:
                return Fail(ticket, error)
            self._in_flight.append(ticket)
            return Write(data)
        return None

    def close(self) -> list[Effect]:
        """End the channel. All requests fail."""
        if self.phase is Phase.CLOSED:
            return []
        effects = self._end(ConnectionClosed("the channel is closed"))
        self.phase = Phase.CLOSED
        self._phase_end_ms = self._deadline_ms = None
        return effects

    # --- the connection's side ---

    def connected(self, now_ms: float) -> list[Effect]:
        """Note that the connection is open, and begin the handshake."""
        assert self.phase is Phase.CONNECTING
        self.writable = True
        self._connection = ClientConnection(
            self._client_id,
            response_bytes_max=self._settings.response_bytes_max,
            in_flight_max=self._settings.in_flight_max,
        )
        self._handshake = self._new_handshake()
        self.phase = Phase.HANDSHAKE
        try:
            return self._continue_handshake(None)
        except ConnectionError as error:
            return self._fail(error, now_ms)

    def failed(self, error: Exception, now_ms: float) -> list[Effect]:
        """Note that the connection has ended, or could not be opened."""
        if self.phase in (Phase.IDLE, Phase.BACKOFF, Phase.CLOSED):
            return []
        return self._fail(error, now_ms)

    def rest_of_response(self, bytes_min: int) -> memoryview | None:
        """Return memory for the rest of a large response: `ClientConnection.rest_of_frame`."""
        return self._connection.rest_of_frame(bytes_min) if self.phase is Phase.READY else None

    def received(self, data: bytes | int, now_ms: float) -> list[Effect]:
        """Take bytes of the broker, or the number of those in `rest_of_response`."""
        if self.phase not in (Phase.HANDSHAKE, Phase.NEGOTIATING, Phase.READY):
            return []
        effects: list[Effect] = []
        try:
            if not self._connection.in_flight:
                raise InvalidResponse("bytes without a request")
            if isinstance(data, int):
                self._connection.filled(data)
            else:
                self._connection.receive_data(data)
            while (response := self._connection.next_response()) is not None:
                effects += self._take(response.message)
        except ConnectionError as error:
            return effects + self._fail(error, now_ms)
        return effects

    def sole_response(self, data: bytes) -> Complete | None:
        """Take bytes that are exactly the response to the only request in flight.

        Return None if they are not. `received` takes them then.
        """
        if self.phase is not Phase.READY or self._queue:
            return None
        response = self._connection.sole_response(data)
        if response is None:
            return None
        ticket = self._in_flight.popleft()
        return Complete(ticket, response)

    def set_writable(self, writable: bool) -> None:
        """Stop sending while the connection takes no bytes."""
        self.writable = writable

    def wake(self, now_ms: float) -> list[Effect]:
        """Fail the requests whose deadlines have passed, and end a phase that is over."""
        effects: list[Effect] = []
        if self._phase_end_ms is not None and now_ms >= self._phase_end_ms:
            if self.phase is Phase.BACKOFF:
                self._phase_end_ms = None
                self.phase = Phase.IDLE
                if self._drop_cancelled():
                    effects += self._connect(now_ms)
            else:
                return self._fail(TimeoutError("the connection was not ready in time"), now_ms)
        if self._deadline_ms is not None and now_ms >= self._deadline_ms:
            effects += self._expire(now_ms)
        return effects

    # --- inside ---

    def _connect(self, now_ms: float) -> list[Effect]:
        self.phase = Phase.CONNECTING
        settings = self._settings
        timeout_ms = settings.setup_timeout_ms << min(self._failures, DOUBLINGS_MAX)
        self._phase_end_ms = now_ms + min(timeout_ms, settings.setup_timeout_max_ms)
        return [Connect()]

    def _continue_handshake(self, response: Message | None) -> list[Effect]:
        try:
            request = next(self._handshake) if response is None else self._handshake.send(response)
        except StopIteration:
            self.phase = Phase.NEGOTIATING
            return self._request_versions(ApiVersionsRequest.MAX_VERSION)
        return [Write(self._connection.send(request, type(request).MAX_VERSION))]

    def _request_versions(self, version: int) -> list[Effect]:
        self._api_versions_version = version
        return [Write(self._connection.send(ApiVersionsRequest(*self._software), version))]

    def _take(self, response: Message) -> list[Effect]:
        """Process one response."""
        if self.phase is Phase.READY:
            ticket = self._in_flight.popleft()
            return [] if ticket.cancelled else [Complete(ticket, response)]
        if self.phase is Phase.HANDSHAKE:
            return self._continue_handshake(response)
        assert isinstance(response, ApiVersionsResponse)
        return self._negotiated(response)

    def _negotiated(self, response: ApiVersionsResponse) -> list[Effect]:
        """Learn the versions. A broker of an earlier release has its range in version 0."""
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = {each.api_key: each.max_version for each in response.api_keys}
            version = theirs.get(ApiKey.API_VERSIONS, 0)
            if not ApiVersionsRequest.MIN_VERSION <= version < self._api_versions_version:
                raise InvalidResponse(f"ApiVersions {self._api_versions_version} is refused")
            return self._request_versions(version)
        if response.error_code:
            raise InvalidResponse(f"ApiVersions failed with error {response.error_code}")
        self._connection.learn_versions(response)
        self.phase = Phase.READY
        self._phase_end_ms = None
        self._failures = 0
        return []

    def _fail(self, error: Exception, now_ms: float) -> list[Effect]:
        """End the connection, and wait before the next one."""
        effects = self._end(error)
        self._failures += 1
        self.phase = Phase.BACKOFF
        self._phase_end_ms = now_ms + self._backoff_ms()
        return effects

    def _backoff_ms(self) -> float:
        settings = self._settings
        doublings = min(self._failures - 1, DOUBLINGS_MAX)
        delay_ms = min(settings.backoff_ms << doublings, settings.backoff_max_ms)
        jitter = settings.backoff_jitter_percent
        return delay_ms * self._random_percent(100 - jitter, 100 + jitter) / 100

    def _end(self, error: Exception) -> list[Effect]:
        """Drop the connection and fail all requests. Callers are informed last."""
        effects: list[Effect] = []
        if self.phase not in (Phase.IDLE, Phase.BACKOFF):
            effects.append(Disconnect())
        failed = [*self._in_flight, *self._queue]
        self._in_flight.clear()
        self._queue.clear()
        self._deadline_ms = None
        effects += [Fail(ticket, error) for ticket in failed if not ticket.cancelled]
        return effects

    def _drop_cancelled(self) -> int:
        """Remove cancelled requests from the queue. Return how many others wait."""
        self._queue = deque(ticket for ticket in self._queue if not ticket.cancelled)
        return len(self._queue)

    def _expire(self, now_ms: float) -> list[Effect]:
        """Fail requests whose deadlines have passed. In flight they end the connection as well."""
        if any(now_ms >= ticket.deadline_ms for ticket in self._in_flight):
            return self._fail(TimeoutError("a response did not arrive in time"), now_ms)
        self._drop_cancelled()
        late = [ticket for ticket in self._queue if now_ms >= ticket.deadline_ms]
        self._queue = deque(ticket for ticket in self._queue if now_ms < ticket.deadline_ms)
        deadlines = [ticket.deadline_ms for ticket in (*self._in_flight, *self._queue)]
        self._deadline_ms = min(deadlines, default=None)
        return [Fail(ticket, TimeoutError("the request was not sent in time")) for ticket in late]
