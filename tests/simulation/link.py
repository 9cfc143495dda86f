"""One connection of a simulated client: requests in flight, and their responses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

from odradek.client.connection import ClientConnection, ConnectionClosed, expects_response
from tests.simulation.invariants import NO_STEP
from tests.simulation.network import SendTimes

SIZE_BYTES = 4


class Frames:
    """The ends of the length-prefixed frames of a stream, as positions of bytes."""

    def __init__(self) -> None:
        self._position = 0
        self._left = 0
        self._size = b""

    def ends(self, data: bytes) -> Iterator[int]:
        """Yield the ends of the frames that these further bytes complete."""
        while data:
            count = self._left or SIZE_BYTES - len(self._size)
            piece, data = data[:count], data[count:]
            self._position += len(piece)
            if self._left:
                self._left -= len(piece)
            else:
                self._size += piece
                if len(self._size) < SIZE_BYTES:
                    return
                self._left, self._size = int.from_bytes(self._size, "big"), b""
            if not self._left:
                yield self._position


class Link(asyncio.Protocol):
    """A connection to a broker. A response that is late closes it, as in Kafka's clients."""

    def __init__(self, client_id: str, timeout_s: float) -> None:
        self._connection = ClientConnection(client_id)
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._error: Exception | None = None
        self._times: SendTimes | None = None
        self._frames = Frames()

    async def call(self, request: Any, response: type[Any], version: int) -> tuple[Any, int]:
        """Send a request. Return its response, and the step in which the broker sent that.

        If the broker sends no response (acks=0), return None and `NO_STEP`.

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
            return None, NO_STEP
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        timer = self._loop.call_later(self._timeout_s, self._time_out, future)
        try:
            found, step = await future
        finally:
            timer.cancel()
        assert isinstance(found, response), found
        return found, step

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
        self._times = transport.get_extra_info("send times of the peer")

    def data_received(self, data: bytes) -> None:
        try:
            self._connection.receive_data(data)
            for end in self._frames.ends(data):
                step = NO_STEP if self._times is None else self._times.step_of(end)
                response = self._connection.next_response()
                assert response is not None
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result((response.message, step))
        except ConnectionError as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionClosed(f"connection lost: {exc}"))
