"""A TCP proxy in front of ZooKeeper that loses requests or responses and cuts connections.

It runs on a thread of its own and knows the frames of ZooKeeper's protocol: the length in four
bytes, then the request's number and, in a request, its type. The first frame of each direction
belongs to the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from enum import Enum

HOST = "127.0.0.1"
WRITES = {1, 2, 5, 14, 15}
"""Types of requests that write: create, delete, setData, multi, create2."""


class Loss(Enum):
    REQUEST = "the request is lost, and the connection with it"
    RESPONSE = "the request is executed, and its response is lost with the connection"


class ZooKeeperProxy:
    """A proxy to a server on this host. `close` ends it."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._loss: Loss | None = None
        self._refuses = False
        self._connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = self._call(self._listen())

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lose_next_write(self, loss: Loss) -> None:
        """Lose the next write that any client sends, or its response."""
        self._loss = loss

    @property
    def is_armed(self) -> bool:
        """Whether the write to be lost was not sent yet."""
        return self._loss is not None

    def cut(self, *, refuse: bool = False) -> None:
        """Cut all connections, and refuse new ones if requested."""
        self._call(self._cut(refuse))

    def accept(self) -> None:
        """Accept connections again."""
        self._refuses = False

    def _call(self, call: asyncio._CoroutineLike[int | None]) -> int:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(60) or 0

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accepted, HOST, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        self._server.close()
        await self._cut(refuse=True)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self, refuse: bool) -> None:
        self._refuses = refuse
        for connection in list(self._connections):
            connection.cut()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.close()
            return
        try:
            server = await asyncio.open_connection(HOST, self._server_port)
        except OSError:
            writer.close()
            return
        connection = _Connection(self, (reader, writer), server)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    def take_loss(self) -> Loss | None:
        loss, self._loss = self._loss, None
        return loss


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """One connection of a client, and the one to the server."""

    def __init__(self, proxy: ZooKeeperProxy, client: _Streams, server: _Streams) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._lost_number: int | None = None

    def cut(self) -> None:
        self._client[1].close()
        self._server[1].close()

    async def run(self) -> None:
        pumps = [asyncio.create_task(pump) for pump in (self._requests(), self._responses())]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        self.cut()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(self) -> None:
        reader, writer = self._client[0], self._server[1]
        is_handshake = True
        while (frame := await _read_frame(reader)) is not None:
            if not is_handshake:
                number, kind = struct.unpack_from(">ii", frame)
                loss = self._proxy.take_loss() if kind in WRITES else None
                if loss is Loss.REQUEST:
                    return
                if loss is Loss.RESPONSE:
                    self._lost_number = number
            is_handshake = False
            writer.write(struct.pack(">i", len(frame)) + frame)

    async def _responses(self) -> None:
        reader, writer = self._server[0], self._client[1]
        is_handshake = True
        while (frame := await _read_frame(reader)) is not None:
            if not is_handshake and struct.unpack_from(">i", frame)[0] == self._lost_number:
                return
            is_handshake = False
            writer.write(struct.pack(">i", len(frame)) + frame)


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next frame without its length, None at the end of the connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)
    return None
