"""The HTTP server: its limit on connections, and its stop with open requests."""

from __future__ import annotations

import asyncio
import json
import logging
import socket

import pytest
from starlette.types import Message, Receive, Scope, Send

from odradek.registry import http_server
from odradek.registry.http_server import HttpServer, OpenRequests

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body"})


def test_a_connection_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # uvicorn refuses a request when as many connections are open as the limit says.
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)

    async def test() -> None:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = HttpServer(app, listener)
        await server.start()
        connections = []
        statuses = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            connections.append(writer)
            writer.write(REQUEST)
            statuses.append((await reader.readline()).split()[1])
        for each in connections:
            each.close()
        await server.stop()
        assert statuses == [b"200", b"200", b"503"]

    asyncio.run(test())


@pytest.mark.parametrize(("method", "code"), [("GET", 503), ("POST", 50002)])
def test_open_requests_get_an_error_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str, code: int
) -> None:
    monkeypatch.setattr(http_server, "GRACE_S", 0.0)
    request = f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{"
    begun = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        while True:
            await receive()

    async def test() -> list[bytes]:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = HttpServer(endless, listener)
        await server.start()
        streams = [await asyncio.open_connection(*listener.getsockname()) for _ in range(3)]
        for _, writer in streams:
            writer.write(request.encode())
        await begun.wait()
        await server.stop()
        responses = [await reader.read() for reader, _ in streams]
        for _, writer in streams:
            writer.close()
        return responses

    with caplog.at_level(logging.WARNING):
        responses = asyncio.run(test())
    for each in responses:
        head, _, body = each.partition(b"\r\n\r\n")
        if head:
            assert json.loads(body)["error_code"] == code
    assert any(responses)
    assert len(caplog.records) == 1 and caplog.records[0].exc_info is None


def test_a_cancelled_request_of_a_running_server_stays_cancelled() -> None:
    async def test() -> None:
        async def endless(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.Event().wait()

        async def unused(message: Message) -> None:
            raise AssertionError(message)

        async def receive() -> Message:
            raise AssertionError

        requests = OpenRequests(endless)
        call = requests({"type": "http", "method": "GET"}, receive, unused)
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(test())
