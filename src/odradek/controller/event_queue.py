"""The event queue of the controller: one queue, one consumer (Kafka's ``ControllerEventManager``).

Every change of the metadata is an event: requests, and later the watches of the store, responses
and timers. The consumer finishes an event, including the write to the store and the publication of
the image, before it takes the next one. A decision therefore always sees the newest image.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from odradek.errors import ErrorCode, KafkaError
from odradek.result_tasks import shielded

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

EVENTS_QUEUED_MAX = 10_000
"""Maximum number of events that wait. Further requests get REQUEST_TIMED_OUT."""


class EventQueue:
    """Events in the order of their arrival. Owned by the event loop of the broker."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = deque()
        self._consumer: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether the queue accepts events."""
        return not self._closed

    def append(self, event: Callable[[], Awaitable[Result]]) -> asyncio.Future[Result]:
        """Add an event. The future has its result or its exception.

        The caller must await the future, or add `log_failure` to its callbacks. An event whose
        future is done before it starts does not run.

        Raises:
            KafkaError: REQUEST_TIMED_OUT when the queue is full, NOT_CONTROLLER after `close`.
        """
        if self._closed:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controller has stopped.")
        if len(self._waiting) >= EVENTS_QUEUED_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The controller has too many requests.")
        return self._append(event)

    def append_internal(self, event: Callable[[], Awaitable[None]]) -> None:
        """Add an event of the controller itself. A failure is logged.

        The limit does not apply. The controller has a few such events, each at most once.
        """
        if not self._closed:
            self._append(event).add_done_callback(log_failure)

    def _append(self, event: Callable[[], Awaitable[Result]]) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((event, result))
        if self._consumer is None:
            self._consumer = loop.create_task(self._consume())
        return result

    async def run(self, event: Callable[[], Awaitable[Result]]) -> Result:
        """Add an event and return its result. If the caller is cancelled, the event still runs."""
        return await shielded(self.append(event), "an event of the controller")

    async def close(self) -> None:
        """Accept no further events, and wait for those in the queue."""
        self._closed = True
        if self._consumer is not None:
            await asyncio.wait((self._consumer,))

    async def _consume(self) -> None:
        while self._waiting:
            await _run(*self._waiting.popleft())
        self._consumer = None


async def _run(event: Callable[[], Awaitable[Any]], result: asyncio.Future[Any]) -> None:
    if result.done():  # the end of the term has refused the request
        return
    try:
        value = await event()
    except asyncio.CancelledError:
        # A call inside of the event was cancelled, for example because the session of the store was
        # closed. Nothing cancels the consumer itself.
        _fail(result, KafkaError(ErrorCode.NOT_CONTROLLER, "The event was cancelled."))
    except Exception as error:  # noqa: BLE001 - the caller of `append` gets it
        _fail(result, error)
    else:
        if not result.done():
            result.set_result(value)


def _fail(result: asyncio.Future[Any], error: Exception) -> None:
    if not result.done():
        result.set_exception(error)
    elif not isinstance(error, KafkaError):
        logger.error("an event of the controller failed after its request was refused: %r", error)


def log_failure(event: asyncio.Future[Any]) -> None:
    """Log the exception of an event whose result no caller awaits."""
    if not event.cancelled() and (error := event.exception()) is not None:
        logger.error("an event of the controller failed: %r", error)
