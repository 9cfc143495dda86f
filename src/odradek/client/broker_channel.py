"""A channel to another broker: requests over one connection that is opened again when it ends.

`ChannelState` decides. `BrokerChannel` performs its effects on the network and the timers of the
environment. A response completes its `Result` inside the callback of the transport, so a caller can
process it and send the next request in the same step, without a task.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TypeVar

from odradek.client.channel_state import (
    ChannelSettings,
    ChannelState,
    Complete,
    Connect,
    Disconnect,
    Effect,
    Fail,
    Handshake,
    Ticket,
    Write,
    no_handshake,
)
from odradek.collector import break_cycle
from odradek.environment.environment import Environment
from odradek.environment.timers import Timer
from odradek.protocol.codec import Message
from odradek.results import PendingResult, Result

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)

READ_BYTES = 64 * 1024
"""Most bytes of one read, except for a larger response, which is received in place."""

LARGE_READ_BYTES = 512 * 1024
"""Most bytes of one read in place. With new memory, 1 MiB takes 1 ms."""

UNREACHABLE_MS = 30_000
"""Time without a connection after which a warning is logged, once until the next connection. The
controller has replaced a broker that does not run by then."""

APART_MS = 60_000
"""Attempts that are further apart than this do not count as consecutive. The next attempt may begin
`setup_timeout_max_ms` and a backoff later."""


class _Call(Ticket):
    """A request with the result that its caller holds."""

    __slots__ = ("response", "result")

    def __init__(
        self,
        request: Message,
        response: type[Message],
        deadline_ms: float,
        version: int | None,
    ) -> None:
        super().__init__(request, deadline_ms, version)
        self.response = response
        self.result: PendingResult[Message] = PendingResult(on_cancel=self.cancel)


class BrokerChannel:
    """Requests to one broker. Owned by the event loop that runs it.

    Args:
        host: Name or address of the broker's inter-broker listener.
        port: Its port.
        environment: Network, clock, timers and randomness.
        settings: Limits and times.
        handshake: Makes the handshake of the listener's security protocol.
        client_id: Client id of all requests.
        software: Name and version of this broker in ApiVersions.
    """

    def __init__(
        self,
        host: str,
        port: int,
        environment: Environment,
        *,
        settings: ChannelSettings | None = None,
        handshake: Handshake = no_handshake,
        client_id: str = "",
        software: tuple[str, str] = ("odradek", "0"),
    ) -> None:
        self.address = (host, port)
        self._environment = environment
        self._settings = settings or ChannelSettings()
        self._state = ChannelState(
            self._settings,
            environment.randomness.between,
            handshake=handshake,
            client_id=client_id,
            software=software,
        )
        self._link: _Link | None = None
        self._opening: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._timer_ms = 0.0
        self._failing_ms = 0.0
        """When the first of the consecutive attempts failed."""
        self._failed_ms = -math.inf
        """When the last attempt failed."""
        self._is_reported = False

    def __repr__(self) -> str:
        return f"<channel to {self.address[0]}:{self.address[1]}, {self._state.phase.value}>"

    @property
    def waiting(self) -> int:
        """The number of requests without a response."""
        return self._state.waiting

    def versions(self, api_key: int) -> tuple[int, int] | None:
        """Return the broker's versions of an API. None if it has none or is not connected."""
        return self._state.versions(api_key)

    def send(
        self,
        request: Message,
        response: type[R],
        *,
        timeout_ms: float | None = None,
        version: int | None = None,
    ) -> Result[R]:
        """Send a request. Connect first if necessary.

        Args:
            request: The request.
            response: The class of its response.
            timeout_ms: Limit of the whole call. Default: `ChannelSettings.request_timeout_ms`.
            version: The version. Default: the highest version that both brokers know.

        Returns:
            The result. It fails with an OSError if the outcome is unknown or the broker was not
            reached (`ConnectionError`, `TimeoutError`). It fails with `TooManyRequests`,
            `UnsupportedRequest` or `UnencodableMessage` if the request was not sent.
        """
        if timeout_ms is None:
            timeout_ms = self._settings.request_timeout_ms
        now_ms = self._now_ms()
        call = _Call(request, response, now_ms + timeout_ms, version)
        self._perform(self._state.enqueue(call, now_ms))
        return call.result  # type: ignore[return-value]  # `_complete` checks the class

    def close(self) -> None:
        """End the connection. All requests fail with `ConnectionClosed`."""
        self._perform(self._state.close())

    # --- effects ---

    def _perform(self, effects: list[Effect]) -> None:
        """Perform effects, and send requests until the connection is full."""
        for effect in effects:
            self._perform_one(effect)
        while (next_effect := self._state.send_next()) is not None:
            self._perform_one(next_effect)
        self._arm()

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Complete():
                self._complete(effect)
            case Write():
                assert self._link is not None
                self._link.write(effect.data)
            case Fail(_Call() as call, error):
                if not call.cancelled:
                    call.result.fail(error)
            case Connect():
                self._opening = asyncio.get_running_loop().create_task(self._open())
            case Disconnect():
                self._disconnect()

    def _complete(self, effect: Complete) -> None:
        call = effect.ticket
        assert isinstance(call, _Call)
        if call.cancelled:  # by the callback of an earlier response in the same read
            return
        if isinstance(effect.response, call.response):
            call.result.complete(effect.response)
        else:
            found, expected = type(effect.response).__name__, call.response.__name__
            call.result.fail(TypeError(f"{found} instead of {expected}"))

    def _disconnect(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
            self._not_opened("no response")
        link, self._link = self._link, None
        if link is not None:
            link.abort()

    async def _open(self) -> None:
        """Open a connection. `_Link.connection_made` reports success."""
        host, port = self.address
        try:
            await self._environment.network.connect(host, port, lambda: _Link(self))
        except (OSError, ValueError) as error:  # ValueError: the name of the host is malformed
            if self._opening is asyncio.current_task():
                self._opening = None
                logger.debug("%r: cannot connect: %s", self, error)
                self._not_opened(str(error))
                self._perform(self._state.failed(error, self._now_ms()))

    def _not_opened(self, reason: str) -> None:
        """Log a warning if no connection could be opened for a long time."""
        now_ms = self._now_ms()
        if now_ms - self._failed_ms > APART_MS:
            self._failing_ms = now_ms
        self._failed_ms = now_ms
        if now_ms - self._failing_ms >= UNREACHABLE_MS and not self._is_reported:
            self._is_reported = True
            logger.warning(
                "this broker cannot connect to the broker at %s:%d for %d s (%s). If that broker "
                "runs, correct its advertised.listeners, or the name service and the firewall "
                "between both machines",
                *self.address,
                UNREACHABLE_MS // 1000,
                reason,
            )

    # --- callbacks of the link ---

    def _connected(self, link: _Link) -> bool:
        """Use a new connection. Return False if the channel no longer needs it."""
        if self._opening is None or self._link is not None:
            return False
        self._opening = None
        self._failed_ms, self._is_reported = -math.inf, False
        self._link = link
        self._perform(self._state.connected(self._now_ms()))
        return True

    def _rest_of_response(self, link: _Link) -> memoryview | None:
        return self._state.rest_of_response(READ_BYTES) if link is self._link else None

    def _received(self, link: _Link, data: bytes | int) -> None:
        if link is not self._link:
            return
        if data.__class__ is bytes:
            sole = self._state.sole_response(data)
            if sole is not None:
                self._complete(sole)
                return
        self._perform(self._state.received(data, self._now_ms()))

    def _set_writable(self, link: _Link, writable: bool) -> None:
        if link is self._link:
            self._state.set_writable(writable)
            self._perform([])

    def _lost(self, link: _Link, error: Exception) -> None:
        if link is self._link:
            self._link = None
            self._perform(self._state.failed(error, self._now_ms()))

    # --- time ---

    def _now_ms(self) -> float:
        return self._environment.clock.monotonic_ms()

    def _arm(self) -> None:
        """Arm the timer for `ChannelState.wake_ms`. A timer that is too early does no harm."""
        wake_ms = self._state.wake_ms
        if wake_ms is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            if self._timer_ms <= wake_ms:
                return
            self._timer.cancel()
        delay_s = max(0.0, wake_ms - self._now_ms()) / 1000
        self._timer_ms = wake_ms
        self._timer = self._environment.timers.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._perform(self._state.wake(self._now_ms()))


class _Link(asyncio.BufferedProtocol):
    """Protocol of one connection. It passes everything on until the channel drops it."""

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel
        self._transport: asyncio.Transport | None = None
        self._view = memoryview(bytearray(READ_BYTES))
        self._in_place = False

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        # asyncio's transport would copy the bytes that the socket does not take.
        self._transport.write(memoryview(data))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        if not self._channel._connected(self):
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        rest = self._channel._rest_of_response(self)
        self._in_place = rest is not None
        return self._view if rest is None else rest[:LARGE_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        data = nbytes if self._in_place else bytes(self._view[:nbytes])
        self._channel._received(self, data)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._channel._set_writable(self, False)

    def resume_writing(self) -> None:
        self._channel._set_writable(self, True)

    def connection_lost(self, exc: Exception | None) -> None:
        break_cycle(self._transport)
        reason = "the broker closed the connection" if exc is None else f"connection lost: {exc}"
        self._channel._lost(self, ConnectionResetError(reason))
