"""Requests of this broker to the active controller.

The controller is looked up for each attempt. An attempt that ends without an outcome (the broker
was not reached, the connection ended, the response was late) is made again, and so is one whose
response is NOT_CONTROLLER. Between two attempts the request waits for a growing delay, or until
`controller_changed`. At its deadline a request fails with `TimeoutError`.

An attempt whose response was lost may have taken effect. Kafka sends such requests again, too
(``NodeToControllerRequestThread``), so each of them has to be safe to repeat: broker epochs and
partition epochs fence AlterPartition, and a repeated CreateTopics is TOPIC_ALREADY_EXISTS.

Responses of one connection arrive in the order of the requests. A long poll or a forwarded request
would therefore delay the others, so each purpose has a channel of its own, as in Kafka.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from odradek.client.broker_channel import BrokerChannel
from odradek.client.channel_state import (
    DOUBLINGS_MAX,
    ChannelSettings,
    Handshake,
    no_handshake,
)
from odradek.client.connection import ConnectionClosed, TooManyRequests
from odradek.environment.environment import Environment
from odradek.environment.timers import Timer
from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message
from odradek.results import PendingResult, Result

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)

ONE_IN_FLIGHT = frozenset(
    {
        ApiKey.ALTER_PARTITION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.METADATA_FEED,
        ApiKey.METADATA_IMAGE,
    }
)
"""APIs of which a channel has one request at a time. The next one starts when it is done."""


class ControllerNode(NamedTuple):
    """The active controller: its id and the address of its inter-broker listener."""

    id: BrokerId
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ControllerChannelSettings:
    """Limits and times of a channel to the controller.

    Attributes:
        timeout_ms: Limit of all attempts of a request, Kafka's for a forwarded request. A request
            that is cancelled or fails at this limit leaves the connection as it is.
        retry_backoff_ms: Delay after the first failed attempt. Each further one doubles it.
        retry_backoff_max_ms: Upper bound of the delay, without jitter.
        retry_jitter_percent: The delay varies at random by so many percent in both directions.
        requests_max: Requests that are not done. More fail with `TooManyRequests`.
        channel: Limits and times of the connection.
    """

    timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    retry_jitter_percent: int = 20
    requests_max: int = 1_000
    channel: ChannelSettings = field(default_factory=ChannelSettings)


class _Call:
    """A request until it is done. `attempt` is None while it waits for the next attempt."""

    __slots__ = (
        "attempt",
        "backoff_timer",
        "deadline_timer",
        "failures",
        "request",
        "response",
        "result",
    )

    def __init__(self, request: Message, response: type[Message]) -> None:
        self.request = request
        self.response = response
        self.failures = 0
        self.attempt: Result[Message] | None = None
        self.deadline_timer: Timer | None = None
        self.backoff_timer: Timer | None = None
        self.result: PendingResult[Message]

    def stop(self) -> None:
        """Cancel the attempt and all timers."""
        attempt, self.attempt = self.attempt, None
        for each in (self.deadline_timer, self.backoff_timer, attempt):
            if each is not None:
                each.cancel()
        self.deadline_timer = self.backoff_timer = None


class ControllerChannel:
    """Requests to the active controller over one connection. Owned by the event loop.

    Args:
        find_controller: Returns the active controller, or None while it is not known. It may be
            this broker, which then receives its own requests.
        environment: Network, clock, timers and randomness.
        settings: Limits and times.
        handshake: Makes the handshake of the inter-broker listener.
        client_id: Client id of all requests.
        software: Name and version of this broker in ApiVersions.
    """

    def __init__(
        self,
        find_controller: Callable[[], ControllerNode | None],
        environment: Environment,
        *,
        settings: ControllerChannelSettings | None = None,
        handshake: Handshake = no_handshake,
        client_id: str = "",
        software: tuple[str, str] = ("odradek", "0"),
    ) -> None:
        self._find_controller = find_controller
        self._environment = environment
        self._settings = settings or ControllerChannelSettings()
        self._handshake = handshake
        self._client_id = client_id
        self._software = software
        self._node: ControllerNode | None = None
        self._channel: BrokerChannel | None = None
        self._calls: dict[_Call, None] = {}
        self._queues: dict[int, deque[_Call]] = {}
        self._closed = False

    def send(
        self, request: Message, response: type[R], *, timeout_ms: float | None = None
    ) -> Result[R]:
        """Send a request to the active controller.

        Args:
            request: The request.
            response: The class of its response, which has the field `error_code`.
            timeout_ms: Limit of all attempts. Default: `ControllerChannelSettings.timeout_ms`.

        Returns:
            The response, with any error but NOT_CONTROLLER. The result fails with `TimeoutError` at
            the deadline, and with `TooManyRequests`, `UnsupportedRequest` or `UnencodableMessage`
            if the request was not sent.
        """
        if timeout_ms is None:
            timeout_ms = self._settings.timeout_ms
        call = _Call(request, response)
        call.result = PendingResult(on_cancel=lambda: self._remove(call))
        if self._closed:
            call.result.fail(ConnectionClosed("the channel is closed"))
        elif len(self._calls) >= self._settings.requests_max:
            call.result.fail(TooManyRequests(f"{len(self._calls)} requests to the controller"))
        else:
            self._calls[call] = None
            call.deadline_timer = self._call_later(timeout_ms, self._expire, call)
            if self._may_start(call):
                self._attempt(call)
        return call.result  # type: ignore[return-value]  # the channel checks the class

    def versions(self, api_key: int) -> tuple[int, int] | None:
        """Return the controller's versions of an API, or None while they are not known."""
        return None if self._channel is None else self._channel.versions(api_key)

    def controller_changed(self) -> None:
        """Drop the connection to an earlier controller, and end all delays before an attempt."""
        if self._find_controller() != self._node:
            self.disconnect()
        for call in list(self._calls):
            if call.backoff_timer is not None:
                call.backoff_timer.cancel()
                self._attempt(call)

    def disconnect(self) -> None:
        """End the connection. Requests in flight are sent again on the next one.

        Callers use it after a response that is invalid, and when one is late.
        """
        channel, self._channel = self._channel, None
        self._node = None
        if channel is not None:
            logger.debug("%r is no longer used", channel)
            channel.close()

    def close(self) -> None:
        """Fail all requests and end the connection."""
        self._closed = True
        calls = list(self._calls)
        self._calls.clear()
        self._queues.clear()
        for call in calls:
            call.stop()
            if not call.result.done:
                call.result.fail(ConnectionClosed("the channel is closed"))
        self.disconnect()

    # --- attempts ---

    def _may_start(self, call: _Call) -> bool:
        """Queue the request if its API has one request at a time. Return whether it is first."""
        key = call.request.API_KEY
        if key not in ONE_IN_FLIGHT:
            return True
        queue = self._queues.setdefault(key, deque())
        queue.append(call)
        return queue[0] is call

    def _attempt(self, call: _Call) -> None:
        call.backoff_timer = None
        channel = self._channel_to_controller()
        if channel is None:
            self._retry(call)
            return
        call.attempt = attempt = channel.send(call.request, call.response)
        attempt.on_done(lambda done: self._attempted(call, done))

    def _attempted(self, call: _Call, done: Result[Message]) -> None:
        """Pass the outcome on, or try again if there is none from the active controller."""
        if call not in self._calls:
            return
        call.attempt = None
        if isinstance(done.error, OSError):
            self._retry(call)
            return
        response: Any = done.value if done.error is None else None
        if response is not None and response.error_code == ErrorCode.NOT_CONTROLLER:
            self._retry(call)
            return
        self._remove(call)
        if done.error is None:
            call.result.complete(done.value)
        else:
            call.result.fail(done.error)

    def _retry(self, call: _Call) -> None:
        settings = self._settings
        doublings = min(call.failures, DOUBLINGS_MAX)
        call.failures += 1
        delay_ms = min(settings.retry_backoff_ms << doublings, settings.retry_backoff_max_ms)
        jitter = settings.retry_jitter_percent
        percent = self._environment.randomness.between(100 - jitter, 100 + jitter)
        call.backoff_timer = self._call_later(delay_ms * percent / 100, self._attempt, call)

    def _expire(self, call: _Call) -> None:
        self._remove(call)
        name = ApiKey(call.request.API_KEY).name
        reason = "no controller is known" if self._node is None else f"controller {self._node.id}"
        call.result.fail(TimeoutError(f"{name} was not answered in time ({reason})"))

    def _remove(self, call: _Call) -> None:
        """End the request's attempts. Start the next one of its API."""
        if call not in self._calls:
            return
        del self._calls[call]
        call.stop()
        queue = self._queues.get(call.request.API_KEY)
        if queue is None:
            return
        was_first = queue[0] is call
        queue.remove(call)
        if not queue:
            del self._queues[call.request.API_KEY]
        elif was_first:
            self._attempt(queue[0])

    # --- the connection ---

    def _channel_to_controller(self) -> BrokerChannel | None:
        node = self._find_controller()
        if node is None:
            return None
        if node != self._node:
            self.disconnect()
            self._node = node
        if self._channel is None:
            self._channel = BrokerChannel(
                node.host,
                node.port,
                self._environment,
                settings=self._settings.channel,
                handshake=self._handshake,
                client_id=self._client_id,
                software=self._software,
            )
        return self._channel

    def _call_later(self, delay_ms: float, callback: Callable[[_Call], None], call: _Call) -> Timer:
        return self._environment.timers.call_later(max(0.0, delay_ms) / 1000, callback, call)
