"""A broker on a thread of its own with an own event loop: the common part of all test brokers."""

from __future__ import annotations

import asyncio
import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from odradek.environment.environment import Environment
from odradek.testing.barriers import Barriers
from odradek.testing.faults import Faults, FaultSetters
from odradek.testing.movable_time import (
    MovableClock,
    MovableTimers,
    QuietLoop,
    quiet_loop_factory,
)
from odradek.testing.state import do_periodic_work

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer

START_TIMEOUT_S = 60.0
"""A start that takes longer is cancelled."""
STOP_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 120.0

Result = TypeVar("Result")


class BrokerThread(Barriers, FaultSetters):
    """A broker, its thread and its event loop.

    Methods may be called from each thread except the broker's own.
    """

    def __init__(self, config: Mapping[str, object] | None) -> None:
        self._config = {name: text_of(value) for name, value in (config or {}).items()}
        self._thread: threading.Thread | None = None
        self._loop: QuietLoop | None = None
        self._clock = MovableClock()
        self._timers = MovableTimers(self._clock)
        self._faults = Faults(self.call, self._timers)
        self._server: BrokerServer | None = None
        self._started: Outcome | None = None
        self._ended: asyncio.Event | None = None

    # --- for subclasses ---

    @abstractmethod
    def _make_server(self, environment: Environment) -> BrokerServer:
        """Create the broker, on its event loop. The environment has its clock and its faults."""

    def _prepare(self) -> None:
        """Prepare a start, on the thread of the test."""

    def _clean_up(self) -> None:
        """Remove what is left when the thread has ended."""
        self._thread = self._loop = self._ended = self._server = None

    # --- for tests ---

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
        self.begin_start()
        self.await_start()
        return self

    def begin_start(self) -> None:
        """Begin to start the broker. `await_start` has to follow."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        self._prepare()
        self._started = started = Outcome()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="odradek-broker", daemon=True
        )
        self._thread.start()

    def await_start(self) -> None:
        """Return when the broker accepts requests. Raise the error if the start fails."""
        assert self._started is not None and self._thread is not None, "begin_start was called"
        try:
            self._started.wait(START_TIMEOUT_S + STOP_TIMEOUT_S)
        except BaseException:
            self._thread.join(STOP_TIMEOUT_S)
            self._clean_up()
            raise

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

    # --- on the broker's thread ---

    def _run(self, started: Outcome) -> None:
        from odradek.broker.main import loop_factory

        with asyncio.Runner(loop_factory=quiet_loop_factory(loop_factory())) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Outcome) -> None:
        limit = asyncio.timeout(START_TIMEOUT_S)
        try:
            async with limit:
                server = await self._start_server()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            late = TimeoutError(f"the broker did not start within {START_TIMEOUT_S} s")
            started.fail(late if limit.expired() else error)
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
        from odradek.broker.main import real_environment

        environment = replace(
            real_environment(),
            clock=self._clock,
            timers=self._timers,
            interceptor=self._faults,
        )
        server = self._make_server(environment)
        await server.start()
        return server


class Outcome:
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
            raise TimeoutError(f"the start of the broker did not end within {timeout_s} s")
        if self._error is not None:
            raise self._error


def text_of(value: object) -> str:
    """Return a config value as Kafka writes it, with true and false in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)
