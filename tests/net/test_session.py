"""The state of one connection: its handler, its session and its kind of transport."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from odradek.net.connection import Connection, Reply
from odradek.net.limits import NetLimits
from odradek.net.session import (
    ANONYMOUS,
    PLAIN_SOCKET,
    PLAIN_SOCKET_WITHOUT_SENDFILE,
    TLS,
    SecurityProtocol,
    Session,
    TransportKind,
)
from odradek.results import PendingResult
from tests.helpers.mock_transport import MockTransport, feed, open_connection
from tests.net.support import CountedRegion, OpenFile, frame, frames_in, iterations, run


def test_later_frames_of_the_same_read_reach_the_new_handler() -> None:
    """An authentication replaces the handler, and the next request may be in the same read."""
    seen: list[tuple[str, bytes]] = []

    def log_in(connection: Connection, view: memoryview) -> Reply:
        seen.append(("log-in", bytes(view)))
        if view == b"password":
            connection.serve(service, 10_000)
        return [b"ok"]

    def service(_: Any, view: memoryview) -> Reply:
        seen.append(("service", bytes(view)))
        return [b"served"]

    async def main() -> None:
        limits = NetLimits(request_bytes_max=100)
        connection, transport = open_connection(log_in, limits=limits)
        large = bytes(5_000)
        feed(connection, frame(b"name") + frame(b"password") + frame(b"first") + frame(large))
        assert seen == [
            ("log-in", b"name"),
            ("log-in", b"password"),
            ("service", b"first"),
            ("service", large),
        ]
        assert frames_in(transport.written) == [b"ok", b"ok", b"served", b"served"]

    run(main())


def test_a_smaller_limit_is_in_force_for_the_next_frame_of_the_same_read(caplog: Any) -> None:
    def dispatch(connection: Connection, view: memoryview) -> Reply:
        connection.serve(dispatch, 10)
        return [bytes(view)]

    async def main() -> None:
        connection, transport = open_connection(dispatch)
        feed(connection, frame(bytes(50)) + frame(bytes(50)))
        await iterations()
        assert frames_in(transport.written) == [bytes(50)]
        assert connection.closed

    run(main())
    assert "the limit is 10" in caplog.text


def test_frames_behind_a_request_that_is_executed_later_reach_the_new_handler() -> None:
    executing: PendingResult[list[bytes]] = PendingResult(executed=False)
    seen: list[bytes] = []

    def service(_: Any, view: memoryview) -> Reply:
        seen.append(bytes(view))
        return []

    async def main() -> None:
        connection, _ = open_connection(lambda _, view: executing)
        feed(connection, frame(b"log in") + frame(b"first"))
        connection.serve(service, 100)
        executing.complete([b"ok"])
        await iterations()
        assert seen == [b"first"]

    run(main())


def test_a_client_that_has_not_authenticated_is_anonymous() -> None:
    async def main() -> None:
        connection, _ = open_connection(lambda _, view: [])
        expected = Session(
            listener_name="PLAINTEXT",
            security_protocol=SecurityProtocol.PLAINTEXT,
            principal=ANONYMOUS,
            client_address="127.0.0.1",
            local_address=("127.0.0.1", 9092),
        )
        assert connection.session == expected
        assert str(connection.session.principal) == "User:ANONYMOUS"

    run(main())


@pytest.mark.parametrize("kind", [PLAIN_SOCKET, PLAIN_SOCKET_WITHOUT_SENDFILE, TLS])
def test_regions_are_sent_by_sendfile_only_on_plain_sockets(
    tmp_path: Path, kind: TransportKind
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"records" * 10_000)
    sent: list[int] = []

    class Region(CountedRegion):
        def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
            sent.append(count)
            return super().sendfile(socket_fd, offset, count)

    async def main() -> None:
        ours, peer = socket.socketpair()
        with ours, peer:
            ours.setblocking(False)
            opened, _ = open_connection(lambda _, view: [])
            region = Region([0], OpenFile(path), 0, 50_000)
            connection = Connection(opened._shared, "PLAINTEXT", ours, transport_kind=kind)
            connection.serve(lambda _, view: [b"header", region], 1_000)
            transport = MockTransport()
            transport.protocol = connection
            connection.connection_made(transport)
            assert transport.write_buffer_high == kind.write_buffer_high
            feed(connection, frame(b"fetch"))
            await iterations(20)
            assert bool(sent) is kind.sendfile
            assert kind.sendfile or len(transport.written) == 4 + 6 + 50_000

    run(main())
