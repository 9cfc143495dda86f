"""The network namespace of the second table, and the output of `ss` for a broker's sockets."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from benchmarks.equal_sockets import NamespaceUnavailable, SocketState, own_network, parse_ss

SS_BBR = """0      0      127.0.0.1:45431 127.0.0.1:58980
\t skmem:(r0,rb131072,t0,tb204800,f0,w0,o0,bl0,d0) ts sack bbr wscale:10,10 rto:200 rtt:0.025/0.012
"""
SS_RENO = """0      0      127.0.0.1:36165 127.0.0.1:33360
\t skmem:(r0,rb131072,t0,tb425984,f0,w0,o0,bl0,d0) reno wscale:10,10 rto:204
"""


def default_congestion_control() -> str:
    with socket.socket() as any_socket:
        name = any_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


@contextmanager
def namespace_or_skip() -> Iterator[None]:
    try:
        with own_network("reno"):
            yield
    except NamespaceUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("output", "state"),
    [
        (SS_BBR, SocketState("bbr", 204_800)),
        (SS_RENO, SocketState("reno", 425_984)),
        ("", None),
    ],
)
def test_state_of_a_socket_is_read_from_ss(output: str, state: SocketState | None) -> None:
    assert parse_ss(output) == state


def test_sockets_in_the_namespace_use_its_congestion_control() -> None:
    before = default_congestion_control()
    with namespace_or_skip():
        assert default_congestion_control() == "reno"
    assert default_congestion_control() == before


def test_a_child_process_can_be_reached_on_loopback_in_the_namespace() -> None:
    program = (
        "import socket; l = socket.create_server(('127.0.0.1', 0)); "
        "print(l.getsockname()[1], flush=True); l.accept()[0].sendall(b'here')"
    )
    with (
        namespace_or_skip(),
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        assert child.stdout is not None
        port = int(child.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            assert client.recv(4) == b"here"


def test_an_unknown_congestion_control_is_refused_and_the_thread_returns() -> None:
    before = default_congestion_control()
    with pytest.raises(NamespaceUnavailable), own_network("no such algorithm"):
        pass
    assert default_congestion_control() == before
