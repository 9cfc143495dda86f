"""`Registry`: a real schema registry in this process, with its own thread and event loop.

The registry listens on a free port of the loopback interface. Its schemas are in a topic of the
broker. It is ready when `with` or `start` returns. After `close` nothing is left but the topic: no
port, descriptor or thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from odradek.registry.server import RegistryServer, ServerOptions

START_TIMEOUT_S = 90.0
"""A start that takes longer is cancelled."""
STOP_TIMEOUT_S = 30.0


class HasBootstrapServers(Protocol):
    """A `Broker` or a `Cluster`."""

    @property
    def bootstrap_servers(self) -> str: ...


class Registry:
    """An instance of the schema registry for tests.

    Methods may be called from each thread. Close it before its broker.

    Args:
        broker: A running `Broker` or `Cluster`, or the `bootstrap.servers` of another Kafka.
        topic: The topic of the schemas. Instances with the same topic form one registry.
        port: The port to listen on; 0 means a free one.
        compatibility: The compatibility level of subjects without a config.
        kafka: Properties of librdkafka for the registry's clients.
    """

    def __init__(
        self,
        broker: HasBootstrapServers | str,
        *,
        topic: str = "_schemas",
        port: int = 0,
        compatibility: str = "BACKWARD",
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._port = port
        self._compatibility = compatibility
        self._kafka = dict(kafka or {})
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._server: RegistryServer | None = None
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``, the value of a client's `schema.registry.url`."""
        return self._running.url

    @property
    def is_writer(self) -> bool:
        """Whether this instance is the one that writes to the topic."""
        return self._running.is_writer

    def start(self) -> Self:
        """Start the registry, and return when it has read its topic and accepts requests.

        Raises:
            ModuleNotFoundError: The extra `registry` is not installed.
            InstanceFailure: The broker does not respond, or the topic is refused.
        """
        if self._thread is not None:
            raise RuntimeError("the registry is already running")
        options = self._options()
        started: Future[RegistryServer] = Future()
        self._failure = None
        self._thread = threading.Thread(
            target=self._run, args=(options, started), name="odradek-registry", daemon=True
        )
        self._thread.start()
        try:
            self._server = started.result(START_TIMEOUT_S)
        except BaseException:
            self._end_thread()
            raise
        return self

    def close(self) -> None:
        """Stop the registry. A second call does nothing.

        Raises:
            InstanceFailure: The registry has ended before, for example because its topic was
                deleted.
        """
        self._end_thread()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._end_thread()  # the error of the test is raised, not the one of the registry

    @property
    def _running(self) -> RegistryServer:
        if self._server is None:
            raise RuntimeError("the registry is not running: use it in a `with` or call start()")
        return self._server

    def _options(self) -> ServerOptions:
        try:
            from odradek.registry.compatibility.levels import CompatibilityLevel
            from odradek.registry.kafka_settings import KafkaSettings
            from odradek.registry.server import ServerOptions
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("odradek"):
                raise
            raise ModuleNotFoundError(
                f"{error.name} is missing: pip install 'odradek[registry]'", name=error.name
            ) from None
        servers = self._broker if isinstance(self._broker, str) else self._broker.bootstrap_servers
        return ServerOptions(
            kafka=KafkaSettings(servers, self._topic, self._kafka),
            port=self._port,
            default_level=CompatibilityLevel(self._compatibility),
        )

    def _end_thread(self) -> None:
        if self._thread is None:
            return
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # a start that failed closes the event loop
                loop.call_soon_threadsafe(ended.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the registry did not stop within {STOP_TIMEOUT_S:g} s")
        self._thread = self._loop = self._ended = self._server = None

    # --- on the registry's thread ---

    def _run(self, options: ServerOptions, started: Future[RegistryServer]) -> None:
        from odradek.broker.main import loop_factory

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve(options, started))

    async def _serve(self, options: ServerOptions, started: Future[RegistryServer]) -> None:
        from odradek.registry.server import RegistryServer

        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        self._loop, self._ended = loop, ended
        server = RegistryServer(options)
        waiting = loop.create_task(ended.wait())
        starting = loop.create_task(server.start())
        await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # the caller waits no longer
            starting.cancel()
            await asyncio.wait([starting])
            return
        error = starting.exception()
        if error is not None:
            waiting.cancel()
            started.set_exception(error)
            return
        started.set_result(server)
        failing = loop.create_task(server.failed())
        await asyncio.wait([waiting, failing], return_when=asyncio.FIRST_COMPLETED)
        if failing.done() and not failing.cancelled():
            self._failure = failing.exception()
        failing.cancel()
        waiting.cancel()
        await server.stop()
