"""A TCP proxy in front of a registry, which records the requests of a client.

The proxy forwards bytes unchanged, so that clients and registry use each other's HTTP features.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from conformance.schema_registry.exchanges import Conversation, Exchange

HOST = "127.0.0.1"
READ_BYTES = 1 << 16
START_S = STOP_S = 30.0


class Recorder:
    """The proxy. Its thread owns the connections and appends to `exchanges`.

    Args:
        url: The URL of the registry.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None, url
        self._registry = (parts.hostname, parts.port)
        self.exchanges: list[Exchange] = []
        self.failures: list[str] = []
        self._port: Future[int] = Future()
        self._ended: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    @property
    def url(self) -> str:
        """The URL for the client."""
        return f"http://{HOST}:{self._port.result(START_S)}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._port.result(START_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._loop is not None and self._ended is not None, "the proxy was started"
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(STOP_S)

    # --- on the proxy's thread ---

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._connection(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        try:
            server = await asyncio.start_server(accept, HOST, 0)
        except OSError as error:
            self._port.set_exception(error)
            return
        self._port.set_result(server.sockets[0].getsockname()[1])
        await self._ended.wait()
        server.close()
        open_ones = list(connections)
        for each in open_ones:
            each.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ours, theirs = await asyncio.open_connection(*self._registry)
            conversation = Conversation(self.exchanges.append)
            await asyncio.gather(
                self._copy(reader, theirs, conversation.from_client),
                self._copy(ours, writer, conversation.from_server),
            )
        except OSError as error:
            self.failures.append(f"the registry accepts no connection: {error}")
        finally:
            writer.close()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        parse: Callable[[bytes], None],
    ) -> None:
        try:
            while data := await source.read(READ_BYTES):
                parse(data)
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        except Exception as error:  # noqa: BLE001 - the case that used the proxy reports it
            self.failures.append(f"{type(error).__name__}: {error}")
        finally:
            sink.close()
