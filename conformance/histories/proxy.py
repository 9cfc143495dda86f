"""The network between clients and broker, and its faults: a TCP proxy on loopback.

The broker advertises the proxy's address, so every connection passes the proxy. Faults act on the
connections that are open when the fault begins:

- `cut`: the connection is closed on both sides.
- `mute`: the broker's responses are discarded for some time, then the connection is closed. The
  broker has executed the requests, but the client does not know it.
- `delay`: requests with some API keys are held for some time and then delivered. Requests on other
  connections overtake them.
- `late`: the same as `delay`, but the client's side is closed before the delivery.
- `overtake`: produce requests are held until an EndTxn request of the same client has passed them
  on another connection, or until the fault ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

HOST = "127.0.0.1"
PRODUCE = 0
END_TXN = 26
# The delay from an EndTxn request to the produce request that it has overtaken. It is long enough
# for the markers to be written, and too short for the next transaction to begin.
OVERTAKEN_S = 0.01
DRAIN_S = 0.5
READ_BYTES = 1 << 16


def api_key(frame: bytes) -> int:
    """Return the API key of a request that begins with its four bytes of size."""
    return int(struct.unpack_from(">h", frame, 4)[0])


def client_of(frame: bytes) -> bytes:
    """Return the client id in a request's header (its length is an int16, -1 for null)."""
    length = int(struct.unpack_from(">h", frame, 12)[0])
    return frame[14 : 14 + max(0, length)]


class Link:
    """A client's connection and its connection to the broker. The proxy's loop owns it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.broker: asyncio.StreamWriter | None = None
        self.muted = False
        self.holds: frozenset[int] = frozenset()
        self.held: list[bytes] = []

    def reset(self) -> None:
        for writer in (self.client, self.broker):
            if writer is not None:
                writer.transport.abort()

    def release(self) -> None:
        """Deliver the held requests. If the client has gone, deliver only the held API keys."""
        held, kinds = self.held, self.holds
        self.held, self.holds = [], frozenset()
        gone = self.client.is_closing()
        if self.broker is None or self.broker.is_closing():
            return
        self.broker.writelines(f for f in held if not gone or api_key(f) in kinds)
        if gone:
            asyncio.get_running_loop().call_later(DRAIN_S, self.reset)


class Proxy:
    """A proxy on an event loop in its own thread. Its methods may be called from any thread."""

    def __init__(self, port: int, target_port: int) -> None:
        """Listen on `port`, or on any free port if it is 0."""
        self.port = port
        self.target_port = target_port
        self.links: set[Link] = set()
        self.everyone: list[Link] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.overtaking: set[Link] = set()
        self.overtaken = 0
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep  # its end ends a fault
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self._run(self._listen())

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def close(self) -> None:
        self._run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def cut(self, share: float = 1.0) -> int:
        """Reset this share of the connections. Return their number."""
        return self._run(self._cut(share))

    def mute(self, for_s: float) -> int:
        return self._run(self._mute(for_s))

    def delay(self, for_s: float, kinds: frozenset[int]) -> int:
        """Hold requests of these API keys for `for_s` seconds. Return their number."""
        return self._run(self._delay(for_s, kinds))

    def overtake(self, for_s: float) -> int:
        """Let EndTxn requests overtake produce requests. Return how many times it happened."""
        return self._run(self._overtake(for_s))

    def late(self, for_s: float, after_s: float, kinds: frozenset[int]) -> int:
        """Hold requests of these API keys for `for_s`, cut the clients, deliver after `after_s`."""
        return self._run(self._late(for_s, after_s, kinds))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    async def _listen(self) -> None:
        self.server = await asyncio.start_server(self._accept, HOST, self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self.server.close()
        for link in self.everyone:
            link.reset()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close in the loop's next iteration

    async def _cut(self, share: float) -> int:
        chosen = list(self.links)[: max(1, round(len(self.links) * share))]
        for link in chosen:
            link.reset()
        return len(chosen)

    async def _mute(self, for_s: float) -> int:
        chosen = list(self.links)
        for link in chosen:
            link.muted = True
        await self.sleep(for_s)
        for link in chosen:
            link.reset()
        return len(chosen)

    async def _hold(self, for_s: float, kinds: frozenset[int]) -> list[Link]:
        """Hold requests. Return the links that held at least one request."""
        chosen = list(self.links)
        for link in chosen:
            link.holds = kinds
        await self.sleep(for_s)
        for link in chosen:
            if not link.held:
                link.holds = frozenset()
        return [link for link in chosen if link.held]

    async def _delay(self, for_s: float, kinds: frozenset[int]) -> int:
        caught = await self._hold(for_s, kinds)
        number = sum(len(link.held) for link in caught)
        for link in caught:
            link.release()
        return number

    async def _late(self, for_s: float, after_s: float, kinds: frozenset[int]) -> int:
        caught = await self._hold(for_s, kinds)
        number = sum(len(link.held) for link in caught)
        for link in caught:
            link.muted = True
            link.client.transport.abort()
            self.loop.call_later(after_s, link.release)
        return number

    async def _overtake(self, for_s: float) -> int:
        self.overtaken = 0
        self.overtaking = set(self.links)
        caught = await self._hold(for_s, frozenset({PRODUCE}))
        self.overtaking = set()
        for link in caught:
            link.release()
        return self.overtaken

    def _ended(self, frame: bytes) -> None:
        """Release the produce requests of a client shortly after its EndTxn request."""
        for link in list(self.overtaking):
            if link.held and client_of(link.held[0]) == client_of(frame):
                self.overtaking.discard(link)
                self.overtaken += 1
                self._task(self._release(link))

    async def _release(self, link: Link) -> None:
        await self.sleep(OVERTAKEN_S)
        link.release()

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(writer)
        self.everyone.append(link)
        try:
            from_broker, link.broker = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            link.reset()
            return
        self.links.add(link)
        self._task(self._responses(link, from_broker))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._requests(link, reader)
        if not link.held:
            link.reset()
        self.links.discard(link)

    async def _requests(self, link: Link, reader: asyncio.StreamReader) -> None:
        """Forward requests frame by frame, so that a frame and later frames can be held."""
        assert link.broker is not None
        while True:
            size = await reader.readexactly(4)
            frame = size + await reader.readexactly(struct.unpack(">i", size)[0])
            if api_key(frame) == END_TXN and self.overtaking:
                self._ended(frame)
            if api_key(frame) in link.holds or link.held:
                link.held.append(frame)
                continue
            link.broker.write(frame)
            await link.broker.drain()

    async def _responses(self, link: Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if not link.muted:
                    link.client.write(data)
                    await link.client.drain()
        if not link.held:
            link.reset()
