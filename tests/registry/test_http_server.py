"""The HTTP server: its limit on connections."""

from __future__ import annotations

import asyncio
import socket

import pytest
from starlette.types import Receive, Scope, Send

from odradek.registry import http_server
from odradek.registry.http_server import HttpServer

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
