"""A client on an asyncio transport, for programs that keep many requests in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self, TypeVar

from odradek.client.connection import (
    ClientConnection,
    ConnectionClosed,
    expects_response,
)
from odradek.protocol.codec import Message
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse

R = TypeVar("R", bound=Message)


class AsyncClient(asyncio.Protocol):
    """Requests and responses over one connection. Any number of tasks may call it.

    Owned by the loop on which `connect` ran. A response that does not arrive in time closes the
    connection, as in Kafka's clients, because the responses behind it would be as late.
    """

    def __init__(self, connection: ClientConnection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Message]] = deque()
        self._writable = asyncio.Event()
        self._error: Exception | None = None
        self._lost = self._loop.create_future()

    @classmethod
    async def connect(
        cls, host: str, port: int, *, timeout_s: float, client_id: str = ""
    ) -> AsyncClient:
        """Connect to a broker.

        Args:
            host: Name or address.
            port: TCP port.
            timeout_s: Limit of connecting and of each call, in seconds.
            client_id: Client id of all requests.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            _, client = await loop.create_connection(
                lambda: cls(ClientConnection(client_id), timeout_s), host, port
            )
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Calls that wait for a response raise `ConnectionClosed`."""
        self._end(ConnectionClosed("the connection is closed"))
        await self._lost

    async def negotiate(self, software: str = "odradek", software_version: str = "0") -> None:
        """Request the broker's versions. Later calls without a version use them."""
        self._check()
        data = self._connection.api_versions(software, software_version)
        response = await self._exchange(data)
        if not isinstance(response, ApiVersionsResponse):
            raise TypeError(f"{type(response).__name__} instead of ApiVersionsResponse")
        self._connection.learn_versions(response)

    async def call(self, request: Message, response: type[R], version: int | None = None) -> R:
        """Send a request and return its response, an instance of `response`.

        Calls of several tasks are sent in the order in which they start, unless the socket is full.

        Raises:
            ConnectionError: The connection ended before the response arrived.
            TimeoutError: The response did not arrive in time. The connection is closed.
            TooManyRequests: The limit of requests in flight is reached.
        """
        if not expects_response(request):
            raise ValueError("a broker sends no response to Produce with acks=0")
        if not self._writable.is_set():
            async with asyncio.timeout(self._timeout_s):
                await self._writable.wait()
        self._check()
        found = await self._exchange(self._connection.send(request, version))
        if not isinstance(found, response):
            raise TypeError(f"{type(found).__name__} instead of {response.__name__}")
        return found

    async def _exchange(self, data: bytes) -> Message:
        """Write a request that `ClientConnection.send` returned, and wait for its response."""
        future: asyncio.Future[Message] = self._loop.create_future()
        self._waiting.append(future)
        self._write(data)
        timer = self._loop.call_later(self._timeout_s, self._time_out, future)
        try:
            return await future
        finally:
            timer.cancel()

    def _time_out(self, future: asyncio.Future[Message]) -> None:
        if not future.done():
            self._end(TimeoutError(f"no response within {self._timeout_s} s"))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _end(self, error: Exception) -> None:
        """Fail all calls with the error, and close the connection."""
        if self._error is not None:
            return
        self._error = error
        self._writable.set()
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
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._connection.receive_data(data)
            while (response := self._connection.next_response()) is not None:
                future = self._waiting.popleft()
                if not future.done():  # Its caller was cancelled.
                    future.set_result(response.message)
        except ConnectionError as error:
            self._end(error)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = "the broker closed the connection" if exc is None else f"connection lost: {exc}"
        self._end(ConnectionClosed(reason))
        self._lost.set_result(None)
