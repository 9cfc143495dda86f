"""An interceptor of requests: an object of the environment that sees each request first.

A broker without one executes requests directly and pays nothing for the possibility. An
interceptor is given at construction, so it sees the requests of every connection: of those that
are open, and of those that are being accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from odradek.results import Result

Reply = list[Any] | Result[list[Any]]
"""The chunks of a response, as of `odradek.net.connection.Dispatch`."""


class InterceptedConnection(Protocol):
    """The connection on which an intercepted request arrived."""

    def abort(self, reason: str | None) -> None:
        """Close the connection at once, and log the reason if there is one."""


class RequestInterceptor(Protocol):
    """Decides what happens to a request: execute it, respond in its place, or close."""

    def intercept(
        self, connection: InterceptedConnection, frame: memoryview, execute: Callable[[], Reply]
    ) -> Reply:
        """Return the reply to the request in `frame`, as the broker's dispatcher does.

        Args:
            connection: Where the request came from.
            frame: Header and body. Valid until the request is executed.
            execute: Executes the request and returns the reply. Call it once at most.

        Raises:
            CloseConnection: There is no response; the connection is closed.
        """
