"""The end of a broker's process, and partitions of the network, imitated inside one process.

A broker whose process is killed sends nothing more and changes no file. Its earlier writes remain,
because the page cache survives. `end` of `EndableNetwork` and `EndableFiles` has this effect from
one moment on. The threads, sockets and descriptors of the broker are then released by
its ordinary stop, which has no effect on clients, other brokers and files.

A partition breaks the connections between brokers. An attempt to connect waits until the partition
heals, as if its packets were lost. Connections of clients are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Collection
from typing import TypeVar

from odradek.environment.files import READ, Buffer, RealFiles
from odradek.environment.network import ListeningSocket, ListenOptions, StreamSocket
from odradek.environment.sockets import SocketNetwork
from odradek.launcher.plan import HOST

P = TypeVar("P", bound=asyncio.BaseProtocol)

POLL_S = 0.02
"""Interval of the checks whether a partition has healed."""


class EndableFiles(RealFiles):
    """The operating system's files, which take no changes after `end`.

    Calls after that return as if they had succeeded. `ended` is set once, and read by all threads
    of the broker.

    Args:
        portable: Offer no call that another operating system lacks.
        boot_notes: The boot notes by name, which all processes of this broker share.
    """

    def __init__(self, *, portable: bool, boot_notes: dict[str, str] | None = None) -> None:
        self.ended = False
        self._boot_notes = {} if boot_notes is None else boot_notes
        if portable:
            self.nowait = None
            self.sends_files = False

    def end(self) -> None:
        self.ended = True

    def open(self, path: str, flags: int) -> int:
        if self.ended:  # the file may not have been written
            try:
                return os.open(path, READ)
            except FileNotFoundError:
                return os.open(os.devnull, READ)
        return super().open(path, flags)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:  # type: ignore[override]
        return len(data) if self.ended else os.pwrite(fd, data, position)

    def ftruncate(self, fd: int, length: int) -> None:
        if not self.ended:
            os.ftruncate(fd, length)

    def allocate(self, fd: int, position: int, length: int) -> bool:
        return not self.ended and RealFiles.allocate(fd, position, length)

    def fsync(self, fd: int) -> None:
        if not self.ended:
            super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        if not self.ended:
            super().fsync_dir(path)

    def sync(self, path: str) -> None:
        if not self.ended:
            super().sync(path)

    def replace(self, source: str, target: str) -> None:  # type: ignore[override]
        if not self.ended:
            os.replace(source, target)  # noqa: PTH105 - string paths, as everywhere in `Files`

    def unlink(self, path: str) -> None:  # type: ignore[override]
        if not self.ended:
            os.unlink(path)  # noqa: PTH108

    def mkdir(self, path: str) -> None:
        if not self.ended:
            super().mkdir(path)

    def modified_ms(self, path: str) -> int:
        if self.ended and not os.path.exists(path):  # noqa: PTH110 - a file that was not written
            return 0
        return super().modified_ms(path)

    def copy_modified(self, source: str, target: str) -> None:
        if not self.ended:
            super().copy_modified(source, target)

    def remove_tree(self, path: str) -> None:
        if not self.ended:
            super().remove_tree(path)

    def boot_note(self, name: str) -> str:
        return self._boot_notes.get(name, "")

    def write_boot_note(self, name: str, text: str) -> None:
        if not self.ended:
            self._boot_notes[name] = text

    def remove_boot_note(self, name: str) -> None:
        if not self.ended:
            self._boot_notes.pop(name, None)


class Links:
    """The connections that may exist. Used by the threads of all brokers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brokers: dict[int, int] = {}
        self._outgoing: set[int] = set()
        self._separated: frozenset[int] = frozenset()
        self._without_clients: frozenset[int] = frozenset()

    def add(self, broker_id: int, port: int) -> None:
        """Add the address of a broker."""
        with self._lock:
            self._brokers[port] = broker_id

    def add_outgoing(self, port: int) -> None:
        """Add the local port of a connection to another broker, before it is opened."""
        with self._lock:
            self._outgoing.add(port)

    def remove_outgoing(self, port: int) -> None:
        with self._lock:
            self._outgoing.discard(port)

    def separate(self, broker_ids: Collection[int], *, from_clients: bool) -> None:
        """Separate these brokers from all others. They can still reach each other."""
        self._separated = frozenset(broker_ids)
        self._without_clients = self._separated if from_clients else frozenset()

    def allows(self, broker_id: int, port: int) -> bool:
        """Return whether a broker may have a connection to the broker at the port."""
        with self._lock:
            other = self._brokers.get(port)
        separated = self._separated
        return other is None or (broker_id in separated) == (other in separated)

    def accepts(self, broker_id: int, peer_port: int) -> bool:
        """Return whether a broker may accept a connection from that port."""
        if broker_id not in self._without_clients:
            return True
        with self._lock:
            return peer_port in self._outgoing


class _Listening:
    """A listening socket that can be closed before its listener closes it."""

    def __init__(self, sock: ListeningSocket) -> None:
        self._sock = sock

    @property
    def address(self) -> tuple[str, int]:
        return self._sock.address

    @property
    def closed(self) -> bool:
        return self._sock.closed

    def watch(self, on_connection: Callable[[], None]) -> None:
        self._sock.watch(on_connection)

    def unwatch(self) -> None:
        if not self.closed:
            self._sock.unwatch()

    def accept(self) -> StreamSocket:
        return self._sock.accept()

    def close(self) -> None:
        if not self.closed:
            self._sock.unwatch()
            self._sock.close()


class EndableNetwork(SocketNetwork):
    """The sockets of a broker of a test cluster.

    All methods but `cut_off` are called on its event loop.
    """

    def __init__(self, broker_id: int, links: Links) -> None:
        self._broker_id = broker_id
        self._links = links
        self._ended = False
        self._listening: list[_Listening] = []
        self._accepted: list[tuple[int, socket.socket]] = []
        """The port of the peer, and the socket."""
        self._outgoing: list[tuple[int, int, asyncio.Transport, socket.socket]] = []
        """The port of the other broker, the own port, the transport, and its socket."""

    async def listen(self, host: str, port: int, options: ListenOptions) -> list[ListeningSocket]:
        found = [_Listening(each) for each in await super().listen(host, port, options)]
        for each in found:
            self._links.add(self._broker_id, each.address[1])
        self._listening += found
        return list(found)

    async def attach(self, sock: StreamSocket, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(sock, socket.socket)
        peer_port = sock.getpeername()[1]
        if self._ended or not self._links.accepts(self._broker_id, peer_port):
            raise OSError(errno.ECONNABORTED, "the peer is not reachable")
        self._accepted = [each for each in self._accepted if each[1].fileno() >= 0]
        self._accepted.append((peer_port, sock))
        await super().attach(sock, protocol)

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        await self._await_link(port)
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            sock.bind((HOST, 0))
            own_port = sock.getsockname()[1]
            self._links.add_outgoing(own_port)
            await loop.sock_connect(sock, (host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # uvloop's `create_connection` does not detach a socket whose connection ends at once.
            # Its finalizer would close the descriptor of another file.
            transport, protocol = await loop.connect_accepted_socket(protocol_factory, sock)
        except BaseException:
            sock.close()
            raise
        self._forget_closed()
        self._outgoing.append((port, own_port, transport, sock))
        if self._ended or not self._links.allows(self._broker_id, port):
            transport.abort()
        return transport, protocol

    def _forget_closed(self) -> None:
        for _, own_port, transport, _ in self._outgoing:
            if transport.is_closing():
                self._links.remove_outgoing(own_port)
        self._outgoing = [each for each in self._outgoing if not each[2].is_closing()]

    async def _await_link(self, port: int) -> None:
        while not self._ended and not self._links.allows(self._broker_id, port):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        if self._ended:
            raise OSError(errno.ENETDOWN, "the process has ended")

    def break_separated(self) -> None:
        """Break the connections that the links no longer allow."""
        for port, _, transport, _ in self._outgoing:
            if not self._links.allows(self._broker_id, port):
                transport.abort()
        for peer_port, sock in self._accepted:
            if not self._links.accepts(self._broker_id, peer_port):
                _shut_down(sock)

    def end(self) -> None:
        """Break all connections. Nothing is sent after this call, not even in this iteration.

        A response may be sent beside the transport, so the sockets are shut down, too.
        """
        self._ended = True
        for listening in self._listening:
            listening.close()
        for _, sock in self._accepted:
            _shut_down(sock)
        for _, _, transport, _ in self._outgoing:
            transport.abort()

    def cut_off(self) -> None:
        """Have all connections send nothing more, and allow no further ones.

        For another thread, while the event loop is blocked. `end` releases the sockets.
        """
        self._ended = True
        for sock in (*(each[1] for each in self._accepted), *(each[3] for each in self._outgoing)):
            _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed
        sock.shutdown(socket.SHUT_RDWR)
