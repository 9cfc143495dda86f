"""A client of the wire protocol: one blocking socket, requests and responses as messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek.client.blocking import BlockingClient
from odradek.protocol.spec import StructSpec, load

TIMEOUT_S = 15.0


class ConnectionClosed(Exception):
    """The broker closed the connection without a response."""


class NoResponse(Exception):
    """The broker did not respond in time."""


class Wire:
    """A connection that sends requests and receives their responses in order."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._client = BlockingClient.connect((host, int(port)), TIMEOUT_S, "diff")

    def close(self) -> None:
        self._client.close()

    def send(self, request: Any, version: int) -> None:
        """Send without waiting for the response."""
        fitted = fit(request, load(type(request).SPEC).body, version)
        try:
            self._client.send(fitted, version)
        except OSError as error:
            raise ConnectionClosed from error

    def send_frame(self, frame: bytes) -> None:
        self._client.send_frame(frame)

    def receive(self) -> Any:
        """Return the next response; raise ConnectionClosed or NoResponse."""
        try:
            return self._client.receive().message
        except TimeoutError as error:
            raise NoResponse from error
        except OSError as error:
            raise ConnectionClosed from error

    def receive_frame(self) -> bytes:
        """Return the next frame; raise ConnectionClosed or NoResponse."""
        try:
            return self._client.receive_frame()
        except TimeoutError as error:
            raise NoResponse from error
        except OSError as error:
            raise ConnectionClosed from error


def fit(message: Any, spec: StructSpec, version: int) -> Any:
    """Return a copy without the fields that `version` does not have.

    A scenario can therefore fill in the fields of all versions.
    """
    changes: dict[str, Any] = {}
    empty = type(message)()
    for field in spec.fields:
        value = getattr(message, field.attribute)
        if not field.versions.has(version):
            changes[field.attribute] = getattr(empty, field.attribute)
        elif field.struct is not None and field.is_array and value is not None:
            changes[field.attribute] = [fit(each, field.struct, version) for each in value]
        elif field.struct is not None and value is not None:
            changes[field.attribute] = fit(value, field.struct, version)
    return replace(message, **changes)
