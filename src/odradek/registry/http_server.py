"""uvicorn without its signal handlers and log lines, on a socket that is bound before."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

GRACE_S = 3
"""Time for the responses to open requests when the server stops."""
STOP_TIMEOUT_S = GRACE_S + 1.0
"""Time limit of the whole stop. Connections that are then open are dropped."""
BACKLOG = 2_048
"""Maximum number of connections that the kernel has accepted and the server has not."""
CONNECTIONS_MAX = 2_048
"""Number of open connections from which on a request on a new one gets 503.

With the limits on the size of bodies and on the number of writes and parses it limits the work that
clients can demand at the same time.
"""
KEEP_ALIVE_S = 60
"""Time after which the server closes an idle connection."""


class HttpServer:
    """The server of one app. Owned by the event loop.

    Args:
        app: The app.
        listener: A bound socket, which `stop` closes.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            access_log=False,
            backlog=BACKLOG,
            limit_concurrency=CONNECTIONS_MAX,
            lifespan="off",
            log_config=None,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=KEEP_ALIVE_S,
            ws="none",
        )
        self._server = _Server(config)
        self._listener = listener
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when the server accepts connections. Raise the error if that fails."""
        loop = asyncio.get_running_loop()
        self._serving = loop.create_task(self._server.serve(sockets=[self._listener]))
        started = loop.create_task(self._server.has_started.wait())
        await asyncio.wait([self._serving, started], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._serving.done():
            self._serving.result()
            raise RuntimeError("the HTTP server has ended during its start")

    async def stop(self) -> None:
        """Close the listener, respond to open requests, and close all connections."""
        if self._serving is None:
            self._listener.close()
            return
        self._server.should_exit = True
        await asyncio.wait([self._serving], timeout=STOP_TIMEOUT_S)
        if not self._serving.done():
            self._server.force_exit = True
            self._serving.cancel()
            await asyncio.wait([self._serving])


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals to its process and reports its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.has_started.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
