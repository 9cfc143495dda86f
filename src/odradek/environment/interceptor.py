"""An interceptor of requests: an object of the environment that receives each request first.

A broker without an interceptor executes requests directly, at no extra cost. An interceptor is set
at construction. It receives the requests of every connection: of open connections, and of
connections that are being accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from odradek.results import Result

Reply = list[Any] | Result[list[Any]]
"""The chunks of a response, as for `odradek.net.connection.Dispatch`."""


class InterceptedConnection(Protocol):
    """The connection on which an intercepted request arrived."""

    def abort(self, reason: str | None) -> None:
        """Close the connection immediately, and log the reason if there is one."""


class RequestInterceptor(Protocol):
    """A policy for requests: execute a request, respond without executing it, or close."""

    def intercept(
        self, connection: InterceptedConnection, frame: memoryview, execute: Callable[[], Reply]
    ) -> Reply:
        """Return the reply to the request in `frame`, as the broker's dispatcher does.

        Args:
            connection: The connection on which the request arrived.
            frame: Header and body. Valid until the request is executed.
            execute: Executes the request and returns the reply. It may be called once at most.

        Raises:
            CloseConnection: No response is sent and the connection is closed.
        """
