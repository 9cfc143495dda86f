"""A client of the bare protocol: one blocking socket, requests and responses as messages."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace
from typing import Any

from odradek.protocol.codec import decode, encode
from odradek.protocol.headers import RESPONSE_FLEXIBLE_FROM, request_header
from odradek.protocol.registry import response_class
from odradek.protocol.spec import StructSpec, load

TIMEOUT_S = 15.0


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class NoAnswer(Exception):
    """No answer in time."""


class Wire:
    """Sends requests and receives their responses in order."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent: list[tuple[type[Any], int]] = []

    def close(self) -> None:
        self.socket.close()

    def send(self, request: Any, version: int, client_id: str = "diff") -> None:
        """Without waiting for the answer."""
        self._sent.append((response_class(request.API_KEY), version))
        frame = request_frame(request, version, len(self._sent), client_id)
        try:
            self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError as error:
            raise ConnectionClosed from error

    def receive(self) -> Any:
        """The next response; ConnectionClosed, NoAnswer."""
        frame = self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        cls, version = self._sent[correlation_id - 1]
        flexible = version >= RESPONSE_FLEXIBLE_FROM[cls.API_KEY]
        return decode(cls, version, frame, 5 if flexible else 4)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            try:
                chunk = self.socket.recv(size - len(chunks))
            except TimeoutError as error:
                raise NoAnswer from error
            except OSError as error:
                raise ConnectionClosed from error
            if not chunk:
                raise ConnectionClosed
            chunks += chunk
        return bytes(chunks)


def request_frame(request: Any, version: int, correlation_id: int, client_id: str) -> bytes:
    """A request with its header, without the size in front."""
    header = request_header(request.API_KEY, version, correlation_id, client_id)
    fitted = fit(request, load(type(request).SPEC).body, version)
    return header + encode(fitted, version)


def fit(message: Any, spec: StructSpec, version: int) -> Any:
    """A copy without the fields for which `version` has no place, so that a scenario can fill in
    those of all versions.
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
