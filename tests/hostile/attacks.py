"""Common parts of the attacks: frames, and the end of a connection."""

from __future__ import annotations

import re
import struct

from testkit.wire import ConnectionClosed, WireClient
from tests.hostile.process import BrokerProcess


class Attacker(WireClient):
    """A client for which the broker's log gives the reason why it was closed."""

    def __init__(self, process: BrokerProcess, receive_buffer_bytes: int | None = None) -> None:
        self.process = process
        self.since = len(process.lines)  # earlier lines are about other clients with the same port
        # The tests also read from the socket itself.
        super().__init__(process.bootstrap_servers, receive_buffer_bytes, read_ahead=False)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def header(api_key: int, version: int, *, flexible: bool) -> bytes:
    """A request header without client id."""
    return struct.pack(">hhih", api_key, version, 7, -1) + (b"\0" if flexible else b"")


def responses_until_closed(client: WireClient) -> list[bytes]:
    """Return the frames before the broker closes the connection. Raise TimeoutError if it stays."""
    frames: list[bytes] = []
    while True:
        try:
            frames.append(client.receive_frame())
        except ConnectionClosed as error:
            if isinstance(error.__cause__, TimeoutError):
                raise error.__cause__ from None
            return frames


def reason(attacker: Attacker) -> str:
    """Return the reason why the broker closed the connection, from its log."""
    host, port = attacker.socket.getsockname()
    line = re.compile(rf"closing the connection from {host}:{port} \(\w+\)(?: immediately)?: (.*)")
    return attacker.process.wait_for_line(line.search, since=attacker.since)[1]
