"""`Broker`: a real broker in this process, with its own thread and event loop.

The broker listens on a free port of the loopback interface. It keeps its log in a temporary
directory and its metadata in memory. It is ready when `with` or `start` returns. After `close`
nothing is left: no port, descriptor, thread or directory.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from odradek.broker.stopping import StopLimits
from odradek.environment.environment import Environment
from odradek.testing.barriers import Barriers
from odradek.testing.faults import Faults, FaultSetters
from odradek.testing.movable_time import (
    MovableClock,
    MovableTimers,
    QuietLoop,
    quiet_loop_factory,
)
from odradek.testing.state import do_periodic_work, reset

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 120.0
STOP_LIMITS = StopLimits(
    responses_ms=1_000, parts_ms=40_000, syncs_ms=40_000, logs_ms=50_000, threads_ms=9_000
)
"""Longer limits than in production, so that `close` returns only when nothing is left."""

Result = TypeVar("Result")


class Broker(Barriers, FaultSetters):
    """A broker of one node for tests.

    Methods may be called from each thread except the broker's own.

    Args:
        config: Kafka's broker configs by name, such as ``{"num.partitions": 3}``.
        port: The port to listen on; 0 means a free one.
        data_dir: Directory of the log, which remains after `close`. None means a temporary
            directory.
        environment: Another file system in place of the operating system's. Its clock, timers and
            interceptor are replaced.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        data_dir: str | Path | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._config = {name: _text(value) for name, value in (config or {}).items()}
        self._port = port
        self._environment = environment
        self._data_dir = Path(data_dir) if data_dir is not None else None
        self._temporary: Path | None = None
        self._thread: threading.Thread | None = None
        self._loop: QuietLoop | None = None
        self._clock = MovableClock()
        self._timers = MovableTimers(self._clock)
        self._faults = Faults(self.call, self._timers)
        self._server: BrokerServer | None = None
        self._ended: asyncio.Event | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:PORT``, the value of a client's `bootstrap.servers`."""
        return self.server.bootstrap_servers

    @property
    def server(self) -> BrokerServer:
        """The running broker itself. Use it only on its loop (`call`)."""
        if self._server is None:
            raise RuntimeError("the broker is not running: use it in a `with` or call start()")
        return self._server

    def start(self) -> Self:
        """Start the broker, and return when it accepts requests. Raise the error if that fails."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        if self._data_dir is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="odradek-"))
        started: _Outcome = _Outcome()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="odradek-broker", daemon=True
        )
        self._thread.start()
        try:
            started.wait(START_TIMEOUT_S)
        except BaseException:
            self._thread.join(STOP_TIMEOUT_S)
            self._clean_up()
            raise
        return self

    def close(self) -> None:
        """Stop the broker and remove its temporary directory. A second call does nothing."""
        if self._thread is None:
            return
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None:
            loop.call_soon_threadsafe(ended.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {STOP_TIMEOUT_S} s")
        self._clean_up()

    def reset(self) -> None:
        """Delete all topics, groups, offsets, transactions and faults, and reset the clock.

        The broker is then like a new one. Clients may stay connected.
        """
        self.call(self._reset)

    async def _reset(self, server: BrokerServer) -> None:
        self._faults.clear()
        self._clock.reset()
        await reset(server)

    def clear_faults(self) -> None:
        """End all faults that are set."""

        async def clear(_server: BrokerServer) -> None:
            self._faults.clear()

        self.call(clear)

    def advance(self, seconds: float) -> None:
        """Move the broker's time forward by `seconds`, as if no request had arrived in that time.

        When this returns, the broker has done all work that is due by then, independent of the
        intervals of its periodic checks. This covers the timeouts of sessions, rebalances and
        transactions, retention and compaction, and the expiration of offsets and ids. Connections
        stay open, and real time continues.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0 <= seconds < math.inf:  # after an infinite step the clock could not move again
            raise ValueError(f"seconds must be finite and not negative: advance({seconds})")

        async def advance(server: BrokerServer) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, QuietLoop)
            await loop.quiet()  # work that has already started may still set a timer
            self._clock.advance(seconds * 1000.0)
            self._timers.clock_moved()
            await loop.quiet()
            await do_periodic_work(server)
            await loop.quiet()

        self.call(advance)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic, which is usable when this returns.

        Raises:
            KafkaError: The broker refused the topic.
        """
        texts = {key: _text(value) for key, value in (config or {}).items()}
        self.call(lambda server: server.create_topic(name, partitions, texts))

    def call(self, function: Callable[[BrokerServer], Coroutine[Any, Any, Result]]) -> Result:
        """Run `function(server)` on the broker's loop and return its result."""
        server = self.server
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(function(server), self._loop)
        return future.result(CALL_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _properties(self) -> dict[str, str]:
        directory = self._data_dir or self._temporary
        assert directory is not None
        return {
            # Clients stay connected when a test moves the time.
            "connections.max.idle.ms": "-1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": str(directory),
            **self._config,
        }

    def _run(self, started: _Outcome) -> None:
        from odradek.broker.main import loop_factory

        with asyncio.Runner(loop_factory=quiet_loop_factory(loop_factory())) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: _Outcome) -> None:
        try:
            server = await self._start_server()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            started.fail(error)
            return
        loop = asyncio.get_running_loop()
        assert isinstance(loop, QuietLoop)
        self._loop = loop
        self._ended = asyncio.Event()
        self._server = server
        started.succeed()
        try:
            await self._ended.wait()
        finally:
            self._faults.clear()
            await server.stop()

    async def _start_server(self) -> BrokerServer:
        from odradek.broker.broker import BrokerServer
        from odradek.broker.main import real_environment
        from odradek.config.broker import BrokerConfig
        from odradek.metadata.store.memory import MemoryStore

        config = BrokerConfig.from_properties(self._properties())
        # A directory of the user outlives this broker, and so must the metadata of its topics.
        # It is then kept in SQLite in that directory.
        store = MemoryStore() if self._data_dir is None else None
        environment = replace(
            self._environment or real_environment(),
            clock=self._clock,
            timers=self._timers,
            interceptor=self._faults,
        )
        server = BrokerServer(config, environment=environment, store=store, stop_limits=STOP_LIMITS)
        await server.start()
        return server

    def _clean_up(self) -> None:
        self._thread = self._loop = self._ended = self._server = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


class _Outcome:
    """The outcome of the start, passed from the broker's thread to the thread that waits."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._error: BaseException | None = None

    def succeed(self) -> None:
        self._done.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def wait(self, timeout_s: float) -> None:
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"the broker did not start within {timeout_s} s")
        if self._error is not None:
            raise self._error


def _text(value: object) -> str:
    """Return a config value as Kafka writes it, with true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
