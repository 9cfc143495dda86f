"""Helpers of the tests of the network layer: frames, loops, sockets, waiting without sleeping."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from odradek.environment.clock import Clock, ManualClock
from odradek.environment.files import Files, RealFiles
from odradek.environment.timers import LoopTimers
from odradek.net.connection import Chunks
from odradek.net.limits import NetLimits
from odradek.net.listener import Endpoint
from odradek.net.server import Server
from odradek.net.session import PLAIN_SOCKET, PLAIN_SOCKET_WITHOUT_SENDFILE
from odradek.records.region import FileRegion

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
on_both_loops = pytest.mark.parametrize("loop", list(LOOPS))
DEADLINE_S = 180
"""Only a hang takes this long. A busy machine may not run the test for many seconds."""


def run(main: Coroutine[Any, Any, Any], loop: str = "asyncio") -> Any:
    """Run `main` to its end on a loop of that kind. A hang fails the test."""

    async def bounded() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await main

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(bounded())


async def until(condition: Callable[[], Any]) -> None:
    """Run the loop until `condition` holds, for at most the time that `run` allows."""
    while not condition():  # noqa: ASYNC110 - a turn of the loop: any event may be it
        await asyncio.sleep(0)


async def iterations(count: int = 5) -> None:
    """Run everything that is ready on the loop, in `count` iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


def silent(_: object) -> Chunks:
    """Return the reply of a dispatcher that sends no response."""
    return []


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def frames_in(data: bytes | bytearray) -> list[bytes]:
    """Return the bodies of complete frames. The data must end with a complete frame."""
    bodies = []
    pos = 0
    while pos < len(data):
        (size,) = struct.unpack_from(">i", data, pos)
        assert pos + 4 + size <= len(data), "a torn frame at the end"
        bodies.append(bytes(data[pos + 4 : pos + 4 + size]))
        pos += 4 + size
    return bodies


def body(seed: int, size: int) -> bytes:
    """Return `size` bytes in which every piece differs from every other."""
    return random.Random(seed).randbytes(size)


class OpenFile:
    """A file for regions. `FileRegion` keeps it open by referring to it."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.files = files or RealFiles()
        self.fd = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.fd)


class CountedRegion(FileRegion):
    """A region that counts the open ones, and that may report that it is not in the page cache."""

    __slots__ = ("cold", "counter", "is_open")

    def __init__(self, counter: list[int], file: OpenFile, position: int, length: int) -> None:
        super().__init__(file, position, length)
        self.counter = counter
        self.cold = False
        self.is_open = True
        counter[0] += 1

    def resident(self) -> int:
        return 0 if self.cold else super().resident()

    def close(self) -> None:
        super().close()
        if self.is_open:
            self.is_open = False
            self.counter[0] -= 1


@asynccontextmanager
async def serving(
    dispatch: Any,
    *,
    limits: NetLimits | None = None,
    clock: Clock | None = None,
    use_sendfile: bool = True,
    host: str = "127.0.0.1",
) -> AsyncIterator[Server]:
    server = Server(dispatch, clock=clock or ManualClock(), timers=LoopTimers(), limits=limits)
    kind = PLAIN_SOCKET if use_sendfile else PLAIN_SOCKET_WITHOUT_SENDFILE
    await server.start([Endpoint("PLAINTEXT", host, 0, transport_kind=kind)])
    try:
        yield server
    finally:
        await server.stop(0)


class Peer:
    """A client's socket that the test controls."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @classmethod
    async def connect(
        cls, server: Server, receive_buffer: int | None = None, endpoint_number: int = 0
    ) -> Peer:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        endpoint = server.endpoints[endpoint_number]
        peer = cls(sock)
        await asyncio.get_running_loop().sock_connect(sock, (endpoint.host, endpoint.port))
        return peer

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def read(self, count: int) -> bytes:
        """Return `count` bytes, or fewer if the connection ends before."""
        loop = asyncio.get_running_loop()
        chunks = bytearray()
        while len(chunks) < count:
            try:
                chunk = await loop.sock_recv(self.sock, min(1 << 16, count - len(chunks)))
            except ConnectionResetError:
                break
            if not chunk:
                break
            chunks += chunk
        return bytes(chunks)

    async def read_frame(self) -> bytes | None:
        """Return a whole frame's body, or None at the end of the connection."""
        head = await self.read(4)
        if len(head) < 4:
            return None
        (size,) = struct.unpack(">i", head)
        data = await self.read(size)
        return data if len(data) == size else None

    async def ended(self) -> bool:
        """Wait for the end of the connection and drop the bytes before it."""
        while await self.read(1 << 16):
            pass
        return True

    def reset(self) -> None:
        """Disconnect by RST, without an orderly close."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    def __del__(self) -> None:
        self.sock.close()


async def until_descriptors_at_most(count: int) -> None:
    """Wait for uvloop, which closes descriptors an iteration or two after `connection_lost`."""
    await until(lambda: open_descriptors() <= count)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
