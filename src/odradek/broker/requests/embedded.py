"""Execution of a request that another broker forwarded, by the dispatcher of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from odradek.results import Result

if TYPE_CHECKING:
    from odradek.net.connection import Chunks, Connection, Dispatch
    from odradek.net.session import Session


class EmbeddedRequests:
    """Executor of requests in envelopes. They take the same path as requests of connections."""

    def __init__(self) -> None:
        self._dispatch: Dispatch | None = None

    def serve_with(self, dispatch: Dispatch) -> None:
        """Execute requests with the dispatcher's function from now on."""
        self._dispatch = dispatch

    def execute(self, session: Session, frame: bytes) -> Result[bytes]:
        """Execute a request. Return its response with the header, b"" if it has none.

        Raises:
            CloseConnection: The request cannot have a response. The result may fail with it, too.
        """
        assert self._dispatch is not None, "no dispatcher"
        connection = cast("Connection", _EmbeddedConnection(session))
        reply = self._dispatch(connection, memoryview(frame))
        assert not isinstance(reply, bytes), "only repeated Produce requests have such a reply"
        return Result(_joined(reply)) if isinstance(reply, list) else reply.then(_joined)


def _joined(chunks: Chunks) -> bytes:
    """Return the response. APIs that brokers forward have no file regions in their responses."""
    return b"".join(chunks)  # type: ignore[arg-type]


class _EmbeddedConnection:
    """The attributes of a connection that the dispatcher and a `RequestContext` use."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.listener_name = session.listener_name
        self.client_software: str | None = None
        self.remembered = None
        self.fetch_shape = None

    def mute(self, pause_s: float) -> None:
        """Do nothing: the broker that forwarded the request enforces the client's quotas."""
