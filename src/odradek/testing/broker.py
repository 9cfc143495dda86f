"""`Broker`: a real broker in this process, on an event loop and a thread of its own.

It listens on a free port of the loopback, keeps its log in a temporary directory and its metadata
in memory, is ready when the constructor's `with` (or `start`) returns, and leaves nothing behind
when it is closed: no port, no descriptor, no thread, no directory.
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
"""A test that closes a broker goes on when nothing of it is left, if that takes a while."""

Result = TypeVar("Result")


class Broker(Barriers, FaultSetters):
    """A broker of one node for tests.

    `config` takes Kafka's broker configs by their names (``{"num.partitions": 3}``); `data_dir`
    keeps the log in a directory of yours, which stays when the broker is closed; `port` 0 is any
    free one; `environment` provides other files than those of the operating system. Methods may be
    called from any thread but the broker's own.
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
        """``127.0.0.1:PORT``, what a client wants as `bootstrap.servers`."""
        return self.server.bootstrap_servers

    @property
    def server(self) -> BrokerServer:
        """The running broker itself; use it on its loop only (`call`)."""
        if self._server is None:
            raise RuntimeError("the broker is not running: use it in a `with`, or call start()")
        return self._server

    def start(self) -> Self:
        """Starts the broker; returns when it answers. Raises what kept it from starting."""
        if self._thread is not None:
            raise RuntimeError("the broker is running already")
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
        """Stops the broker and removes its temporary directory; a second call does nothing."""
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
        """Forgets all topics, groups, offsets, transactions and faults, and sets the clock right,
        as if the broker were new; clients may stay."""
        self.call(self._reset)

    async def _reset(self, server: BrokerServer) -> None:
        self._faults.clear()
        self._clock.reset()
        await reset(server)

    def clear_faults(self) -> None:
        """Ends all faults that are set."""

        async def clear(_server: BrokerServer) -> None:
            self._faults.clear()

        self.call(clear)

    def advance(self, seconds: float) -> None:
        """Moves the broker's time forward, as if it had heard of nobody for so long.

        When this returns, everything has been done that is due by then, however seldom the broker
        would have looked: sessions and rebalances that ran out of time, transactions that were
        open for too long, retention and compaction, expired offsets and ids. Connections stay
        open, and real time goes on as before.
        """
        if not 0 <= seconds < math.inf:  # nor to where no later step would move it
            raise ValueError(f"time moves forward, and not for ever: advance({seconds})")

        async def advance(server: BrokerServer) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, QuietLoop)
            await loop.quiet()  # what was begun before may be about to set its timer
            self._clock.advance(seconds * 1000.0)
            self._timers.clock_moved()
            await loop.quiet()
            await do_periodic_work(server)
            await loop.quiet()

        self.call(advance)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Creates a topic that is usable when this returns; raises KafkaError if it is refused."""
        texts = {key: _text(value) for key, value in (config or {}).items()}
        self.call(lambda server: server.create_topic(name, partitions, texts))

    def call(self, function: Callable[[BrokerServer], Coroutine[Any, Any, Result]]) -> Result:
        """Runs `function(server)` on the broker's loop and returns its result."""
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
            # However far a test moves the time, its clients stay connected.
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
        # A directory of the user's outlives this broker, and so must the topics in it: SQLite
        # there.
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
    """How the start went, told from the broker's thread to the one that waits."""

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
    """A config value as Kafka writes it: true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
