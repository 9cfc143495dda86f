"""uvicorn without its signal handlers and log lines, on a socket that is bound before.

A request that has not ended when the server stops gets an error of the registry. uvicorn itself
would cancel it, log a traceback and respond with plain text.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from odradek.registry.errors import RegistryError, operation_timeout
from odradek.registry.request_budget import OVERLOADED
from odradek.registry.routes.responses import error_response

logger = logging.getLogger(__name__)

GRACE_S = 3.0
"""Time for the responses to open requests when the server stops. Later they get an error."""
ERRORS_S = 1.0
"""Time for these errors. Connections that are open afterwards are dropped."""
BACKLOG = 2_048
"""Maximum number of connections that the kernel has accepted and the server has not."""
CONNECTIONS_MAX = 2_048
"""Number of open connections from which on a request on a new one gets 503.

With the limits on the size of bodies and on the number of writes and parses it limits the work that
clients can demand at the same time.
"""
KEEP_ALIVE_S = 60
"""Time after which the server closes an idle connection."""
READS = ("GET", "HEAD")
"""The methods of requests that write nothing."""


class HttpServer:
    """The server of one app. Owned by the event loop.

    Args:
        app: The app.
        listener: A bound socket, which `stop` closes.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        requests = OpenRequests(app)
        config = uvicorn.Config(
            requests,
            access_log=False,
            backlog=BACKLOG,
            limit_concurrency=CONNECTIONS_MAX,
            lifespan="off",
            log_config=None,
            log_level="warning",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            ws="none",
        )
        self._server = _Server(config)
        self._requests = requests
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
        await asyncio.wait([self._serving], timeout=GRACE_S)
        if not self._serving.done():
            self._requests.end()
            await asyncio.wait([self._serving], timeout=ERRORS_S)
        if not self._serving.done():
            self._server.force_exit = True
            self._serving.cancel()
            await asyncio.wait([self._serving])


class OpenRequests:
    """An app that can end its open requests. Owned by the event loop.

    Args:
        app: The app that responds to the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request by the app, or with an error after `end`."""
        task = asyncio.current_task()
        assert task is not None, "in a task of the server"
        has_begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        self._tasks.add(task)
        try:
            if not self._is_ended:
                await self._app(scope, receive, send_and_note)
                return
        except asyncio.CancelledError:
            if not self._is_ended:
                raise
            task.uncancel()
        finally:
            self._tasks.discard(task)
        if not has_begun:
            await error_response(_stopped(scope["method"]))(scope, receive, send)

    def end(self) -> None:
        """Cancel all open requests. They and later ones get an error."""
        self._is_ended = True
        if self._tasks:
            logger.warning(
                "%d requests have not ended within %g s of the stop. They get an error",
                len(self._tasks),
                GRACE_S,
            )
        for each in self._tasks:
            each.cancel()


def _stopped(method: str) -> RegistryError:
    if method in READS:
        return RegistryError(OVERLOADED, "The instance stops. Repeat the request")
    return operation_timeout(
        "The instance stops, and it is unknown whether it executed the request"
    )


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
