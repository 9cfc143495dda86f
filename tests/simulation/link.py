"""One connection of a simulated client: requests in flight, and their responses."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from odradek.client.connection import ClientConnection, ConnectionClosed, expects_response


class Link(asyncio.Protocol):
    """A connection to a broker. A response that is late closes it, as in Kafka's clients."""

    def __init__(self, client_id: str, timeout_s: float) -> None:
        self._connection = ClientConnection(client_id)
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._error: Exception | None = None

    async def call(self, request: Any, response: type[Any], version: int) -> Any:
        """Send a request and return its response, or None if the broker sends none (acks=0).

        Calls are sent in the order in which their coroutines begin.

        Raises:
            ConnectionError: The connection ended before the response arrived.
            TimeoutError: The response did not arrive in time.
        """
        if self._error is not None:
            raise self._error
        data = self._connection.send(request, version)
        assert self._transport is not None
        self._transport.write(data)
        if not expects_response(request):
            return None
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        timer = self._loop.call_later(self._timeout_s, self._time_out, future)
        try:
            found = await future
        finally:
            timer.cancel()
        assert isinstance(found, response), found
        return found

    def close(self) -> None:
        self._end(ConnectionClosed("the client has closed the connection"))

    def _time_out(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            self._end(TimeoutError(f"no response within {self._timeout_s} s"))

    def _end(self, error: Exception) -> None:
        if self._error is not None:
            return
        self._error = error
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._connection.receive_data(data)
            while (response := self._connection.next_response()) is not None:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(response.message)
        except ConnectionError as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionClosed(f"connection lost: {exc}"))
