"""TCP proxies in front of the processes of a test cluster, which separate them from each other.

Each broker advertises the address of its proxy. A proxy knows the sender of a connection by the
client id of its first request: brokers use ``broker-N-PURPOSE``. All other senders are clients. A
connection to ZooKeeper passes a proxy that belongs to one broker.

A proxy can also hold or slow down the bytes of one direction. Held bytes arrive when the direction
is free again, as with TCP after packets were lost.

All proxies run on one event loop, on a thread of their own.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from odradek.launcher.plan import HOST

CHUNK_BYTES = 64 * 1024
HEADER_BYTES = 14
"""Length of a frame up to its client id: size, key, version, correlation id, length of the id."""
CALL_TIMEOUT_S = 30.0
CLIENTS = "clients"
STORE = "zookeeper"
R = TypeVar("R")
Direction = tuple[str, str]
"""Sender and receiver of bytes: `CLIENTS`, `STORE`, or a broker as in `broker_name`."""
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


@dataclass(frozen=True, slots=True)
class Conditions:
    """Directions whose bytes arrive late. Pure.

    Attributes:
        held: No byte arrives while a direction is held.
        bytes_per_s: The rate of each slow direction.
    """

    held: frozenset[Direction] = frozenset()
    bytes_per_s: Mapping[Direction, int] = field(default_factory=dict)

    def delay_s(self, direction: Direction, size: int) -> float | None:
        """Return the delay of so many bytes in seconds. None: until the conditions change."""
        if direction in self.held:
            return None
        rate = self.bytes_per_s.get(direction)
        return 0.0 if rate is None else size / rate


def broker_name(broker: int) -> str:
    """Return the name of a broker in a direction."""
    return f"broker-{broker}"


def sender_of(header: bytes) -> int | None:
    """Return the broker whose first request begins with these bytes, or None for a client."""
    found = _BROKER.match(header[HEADER_BYTES:])
    return None if found is None else int(found[1])


class LinkProxies:
    """All proxies of one cluster. Its methods may be called from each thread."""

    def __init__(self) -> None:
        self._separation = Separation()
        self._conditions = Conditions()
        self._links: set[_Link] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="odradek-proxies", daemon=True
        )
        self._thread.start()

    def to_broker(self, broker: int, port: int) -> int:
        """Begin to pass connections on to a broker. Return the port of the proxy."""
        return self._call(self._listen(port, broker_name(broker), self._allows_sender(broker)))

    def to_store(self, broker: int, port: int) -> int:
        """Begin to pass connections of a broker on to ZooKeeper. Return the port of the proxy."""
        allows = partial(self._allows_store, broker)
        return self._call(self._listen(port, STORE, allows, broker))

    def separate(self, separation: Separation) -> None:
        """Break the connections that are not possible any longer, and refuse new ones."""
        self._call(self._separate(separation))

    def hold(self, conditions: Conditions) -> None:
        """Replace the conditions of all directions. No connection breaks."""
        self._call(self._hold(conditions))

    def close(self) -> None:
        """Break all connections and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- on the event loop ---

    def _call(self, call: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(CALL_TIMEOUT_S)

    def _allows_sender(self, broker: int) -> Callable[[int | None], bool]:
        return lambda sender: self._separation.allows(sender, broker)

    def _allows_store(self, broker: int, _: int | None) -> bool:
        return self._separation.allows_store(broker)

    async def _listen(
        self,
        port: int,
        receiver: str,
        allows: Callable[[int | None], bool],
        owner: int | None = None,
    ) -> int:
        """Listen for a receiver. `owner` is the broker that all connections belong to."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = _Link(port, receiver, allows, owner, (reader, writer), self._await_passage)
            self._links.add(link)
            try:
                await link.run()
            except asyncio.CancelledError:
                pass  # `_close`. asyncio would log the cancelled handler as an error
            finally:
                link.abort()
                self._links.discard(link)

        server = await asyncio.start_server(accepted, HOST, 0)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def _await_passage(self, direction: Direction, size: int) -> None:
        """Wait until so many bytes may go on."""
        while (delay_s := self._conditions.delay_s(direction, size)) != 0:
            try:
                await asyncio.wait_for(self._changed.wait(), delay_s)
            except TimeoutError:
                return

    async def _hold(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._changed.set()
        self._changed = asyncio.Event()

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
        receiver: str,
        allows: Callable[[int | None], bool],
        owner: int | None,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        passage: Callable[[Direction, int], Awaitable[None]],
    ) -> None:
        self._port = port
        self._receiver = receiver
        self._allows = allows
        self._identifies = owner is None
        self._reader, self._writer = streams
        self._passage = passage
        self._behind: asyncio.StreamWriter | None = None
        self._sender = owner
        self._is_known = owner is not None

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
            sender = CLIENTS if self._sender is None else broker_name(self._sender)
            request = partial(self._passage, (sender, self._receiver))
            response = partial(self._passage, (self._receiver, sender))
            await request(len(header))
            self._behind.write(header)
            # The end of one side ends both: Kafka's connections are never half open.
            pumps = [
                asyncio.ensure_future(_pump(self._reader, self._behind, request)),
                asyncio.ensure_future(_pump(reader, self._writer, response)),
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


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    passage: Callable[[int], Awaitable[None]],
) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        await passage(len(chunk))
        writer.write(chunk)
        await writer.drain()
