"""TCP proxies in front of the processes of a test cluster, which separate them from each other.

Each broker advertises the address of its proxy. A proxy knows the sender of a connection by the
client id of its first request: brokers use ``broker-N-PURPOSE``. All other senders are clients. A
connection to ZooKeeper passes a proxy that belongs to one broker.

All proxies run on one event loop, on a thread of their own.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from odradek.launcher.plan import HOST

CHUNK_BYTES = 64 * 1024
HEADER_BYTES = 14
"""Length of a frame up to its client id: size, key, version, correlation id, length of the id."""
CALL_TIMEOUT_S = 30.0
R = TypeVar("R")
_BROKER = re.compile(rb"broker-(\d+)-")


@dataclass(frozen=True, slots=True)
class Separation:
    """Which connections are possible. Pure.

    Attributes:
        brokers: These reach each other, but not the rest, and the rest does not reach them.
        from_clients: Whether clients do not reach them either.
        without_store: These do not reach ZooKeeper.
    """

    brokers: frozenset[int] = frozenset()
    from_clients: bool = False
    without_store: frozenset[int] = frozenset()

    def allows(self, sender: int | None, broker: int) -> bool:
        """Return whether a sender reaches a broker. The sender None is a client."""
        if sender is None:
            return not (self.from_clients and broker in self.brokers)
        return (sender in self.brokers) == (broker in self.brokers)

    def allows_store(self, broker: int) -> bool:
        return broker not in self.without_store


def sender_of(header: bytes) -> int | None:
    """Return the broker whose first request begins with these bytes, or None for a client."""
    found = _BROKER.match(header[HEADER_BYTES:])
    return None if found is None else int(found[1])


class LinkProxies:
    """All proxies of one cluster. Its methods may be called from each thread."""

    def __init__(self) -> None:
        self._separation = Separation()
        self._links: set[_Link] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="odradek-proxies", daemon=True
        )
        self._thread.start()

    def to_broker(self, broker: int, port: int) -> int:
        """Begin to pass connections on to a broker. Return the port of the proxy."""
        return self._call(self._listen(port, lambda sender: self._allows(sender, broker), True))

    def to_store(self, broker: int, port: int) -> int:
        """Begin to pass connections of a broker on to ZooKeeper. Return the port of the proxy."""
        return self._call(self._listen(port, lambda _: self._allows_store(broker), False))

    def separate(self, separation: Separation) -> None:
        """Break the connections that are not possible any longer, and refuse new ones."""
        self._call(self._separate(separation))

    def close(self) -> None:
        """Break all connections and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- on the event loop ---

    def _call(self, call: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(CALL_TIMEOUT_S)

    def _allows(self, sender: int | None, broker: int) -> bool:
        return self._separation.allows(sender, broker)

    def _allows_store(self, broker: int) -> bool:
        return self._separation.allows_store(broker)

    async def _listen(
        self, port: int, allows: Callable[[int | None], bool], identifies: bool
    ) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = _Link(port, allows, identifies, reader, writer)
            self._links.add(link)
            try:
                await link.run()
            finally:
                link.abort()
                self._links.discard(link)

        server = await asyncio.start_server(accepted, HOST, 0)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def _separate(self, separation: Separation) -> None:
        self._separation = separation
        for link in list(self._links):
            link.check()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for link in list(self._links):
            link.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close in the next iteration


class _Link:
    """One connection, and the one behind the proxy. On the event loop of the proxies."""

    def __init__(
        self,
        port: int,
        allows: Callable[[int | None], bool],
        identifies: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._port = port
        self._allows = allows
        self._identifies = identifies
        self._reader = reader
        self._writer = writer
        self._behind: asyncio.StreamWriter | None = None
        self._sender: int | None = None
        self._is_known = not identifies

    def check(self) -> None:
        """Break the connection if it is not possible any longer."""
        if self._is_known and not self._allows(self._sender):
            self.abort()

    def abort(self) -> None:
        for writer in (self._writer, self._behind):
            if writer is not None:
                writer.transport.abort()

    async def run(self) -> None:
        try:
            header = await self._header() if self._identifies else b""
            self._is_known = True
            if not self._allows(self._sender):
                return
            reader, self._behind = await asyncio.open_connection(HOST, self._port)
            self.check()
            self._behind.write(header)
            # The end of one side ends both: Kafka's connections are never half open.
            pumps = [
                asyncio.ensure_future(_pump(self._reader, self._behind)),
                asyncio.ensure_future(_pump(reader, self._writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            return

    async def _header(self) -> bytes:
        """Read the begin of the first request, which names its sender."""
        header = await self._reader.readexactly(HEADER_BYTES)
        (length,) = struct.unpack(">h", header[-2:])
        header += await self._reader.readexactly(max(0, length))
        self._sender = sender_of(header)
        return header


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
