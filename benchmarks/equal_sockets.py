"""Equal congestion control and send buffers for both brokers, and the state of their sockets.

As shipped, the brokers differ. Odradek sets Reno for peers on this machine, and its send buffer is
larger. Apache Kafka leaves congestion control to the system, because Java cannot set it. Linux has
a default for each network namespace. `own_network` moves the benchmark to a namespace of its own
whose default is Reno. Both brokers and their clients are started there.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from odradek.environment.sockets import UNPACED
from odradek.net.limits import SEND_BUFFER_BYTES

EQUAL_SETTINGS = {"socket.send.buffer.bytes": str(SEND_BUFFER_BYTES)}
"""For both brokers. Odradek has this value by default."""

CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
NAMESPACE = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP_AND_RUNNING = 0x1 | 0x40
_CONNECT_TIMEOUT_S = 10.0


class NamespaceUnavailable(RuntimeError):
    """This machine allows no network namespace. The message is one sentence with the reason."""


@contextmanager
def own_network(congestion_control: str = UNPACED.decode()) -> Iterator[None]:
    """Move the calling thread to a new network namespace, and back when the context ends.

    Processes and threads that it starts in the context belong to the new namespace. It has only the
    loopback interface. `congestion_control` is the default of all its sockets.

    Raises:
        NamespaceUnavailable: The system refuses it, mostly because it needs root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with NAMESPACE.open() as before:
        if libc.unshare(_CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            raise NamespaceUnavailable(f"The system allows no network namespace: {reason}.")
        try:
            _bring_loopback_up()
            _set_default(congestion_control)
            yield
        finally:
            if libc.setns(before.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot return to the network namespace")


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", _IFF_UP_AND_RUNNING)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _set_default(congestion_control: str) -> None:
    try:
        CONGESTION.write_text(congestion_control, encoding="ascii")
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise NamespaceUnavailable(
            f"The namespace does not use {congestion_control}: {reason}."
        ) from error


@dataclass(frozen=True, slots=True)
class SocketState:
    """State of an accepted socket of a broker in the kernel."""

    congestion_control: str
    send_buffer_bytes: int
    """As the kernel counts it: twice the value that was set, at most twice `wmem_max`."""

    def __str__(self) -> str:
        return f"{self.congestion_control}, send buffer {self.send_buffer_bytes} bytes"


def observed(address: str) -> SocketState | None:
    """Connect to a broker and return the state of the accepted socket; None without `ss`."""
    ss = shutil.which("ss")
    if ss is None:
        return None
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S) as client:
        peer = client.getsockname()[1]
        # The kernel accepts before the broker does, which may set options: a response shows that
        # the broker has the socket.
        client.sendall(_api_versions())
        client.recv(1)
        command = [ss, "-tinmH", "state", "established", f"sport = :{port} and dport = :{peer}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse_ss(done.stdout)


def _api_versions() -> bytes:
    body = struct.pack(">hhih", 18, 0, 1, 4) + b"ping"
    return struct.pack(">i", len(body)) + body


def parse_ss(output: str) -> SocketState | None:
    """The state of the only socket in the output of `ss -tinmH`."""
    found = re.search(r"skmem:\([^)]*\btb(\d+)[^)]*\)((?: \S+)*)", output)
    if found is None:
        return None
    # Flags of the connection stand before the name of the algorithm.
    flags = {"ts", "sack", "ecn", "ecnseen", "fastopen"}
    words = [word for word in found[2].split() if word not in flags]
    return SocketState(words[0], int(found[1])) if words else None
