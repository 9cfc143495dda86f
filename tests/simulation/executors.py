"""The threads of one simulated process: each call runs at a random virtual moment.

Calls of one pool start in the order in which they were submitted, and at most `threads_max` of them
are in progress. While a call waits for the disk (`Threads.wait`), all other events of the
simulation go on inside of that wait, except for other calls of the same process: these might need a
lock that the waiting call holds. The result of a call reaches the event loop at a later moment. In
between the process may be killed. The effects of the call stay, and no code learns of them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from odradek.environment.executors import Pool
from tests.simulation.event_loop import ProcessKilled, SimulatedLoop
from tests.simulation.scheduler import MILLISECOND, Scheduler

START_US_MAX = 2 * MILLISECOND
"""Longest usual delay between the submission of a call and its execution."""
DELIVERY_US_MAX = 1 * MILLISECOND
SLOW_START_RATE = 0.02
SLOW_START_US_MAX = 200 * MILLISECOND
"""A busy machine runs some calls much later."""

_Call = tuple["Future[Any]", Callable[[], Any]]


class Threads:
    """The threads of one process, and the thread that is running now.

    Attributes:
        running: A thread of the process executes a call. Otherwise its event loop is running.
        is_waiting: A call waits for the disk. The wait may last longer than the disk needs: waits
            are nested, so it ends after those that other processes have begun in the meantime.
    """

    def __init__(self, scheduler: Scheduler, loop: SimulatedLoop, rng: random.Random) -> None:
        self.scheduler = scheduler
        self.loop = loop
        self.rng = rng
        self.running = False
        self.calls = 0
        self.waits = 0
        self.is_waiting = False
        self._waiting_while_paused: list[Callable[[], None]] = []

    def wait(self, delay_us: int) -> None:
        """Let the running call wait for the disk. In the meantime other events happen."""
        scheduler, loop = self.scheduler, self.loop
        if self.is_waiting or not scheduler.begin_nested():
            return
        self.waits += 1
        self.running, self.is_waiting = False, True
        try:
            scheduler.run_until(scheduler.now_us + delay_us)
            while loop.paused and not loop.stopped and scheduler.step():
                pass
        finally:
            scheduler.end_nested()
            self.running, self.is_waiting = True, False
            self.resumed()

    def run(self, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """Execute a call. Return its value and its error."""
        outer, self.running = self.running, True
        self.calls += 1
        value: Any = None
        failure: BaseException | None = None
        try:
            value = call()
        except BaseException as error:  # noqa: BLE001 - the future raises it
            failure = error
        finally:
            self.running = outer
        return value, failure

    def when_running(self, call: Callable[[], None]) -> None:
        """Make a call now, or when a paused process continues. Never if the process is dead."""
        if self.loop.stopped:
            return
        if self.loop.paused:
            self._waiting_while_paused.append(call)
        else:
            call()

    def when_free(self, call: Callable[[], None]) -> None:
        """Make a call as `when_running` does, but not while another one waits for the disk."""
        if self.is_waiting and not self.loop.stopped:
            self._waiting_while_paused.append(call)
        else:
            self.when_running(call)

    def resumed(self) -> None:
        """The process continues after a pause, or one of its calls after a wait."""
        waiting, self._waiting_while_paused = self._waiting_while_paused, []
        for call in waiting:
            self.scheduler.after(self.rng.randrange(START_US_MAX), self.when_free, call)


class SimulatedPool(Pool):
    """A pool of one process; see the module."""

    def __init__(self, threads: Threads, threads_max: int, name: str) -> None:
        self.ended: Future[None] = Future()
        self.name = name
        self._threads = threads
        self._threads_max = threads_max
        self._calls: deque[_Call] = deque()
        self._in_progress = 0
        self._shut = False

    @property
    def loop(self) -> SimulatedLoop:
        return self._threads.loop

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._shut:
            raise RuntimeError(f"{self.name}: a call was submitted after shutdown")
        future: Future[Any] = Future()
        self._calls.append((future, lambda: fn(*args, **kwargs)))
        self._start_next()
        return future

    def _start_next(self) -> None:
        while self._calls and self._in_progress < self._threads_max:
            self._in_progress += 1
            threads = self._threads
            delay_us = threads.rng.randrange(START_US_MAX)
            if threads.rng.random() < SLOW_START_RATE:
                delay_us = threads.rng.randrange(SLOW_START_US_MAX)
            run = partial(self._run, self._calls.popleft())
            threads.scheduler.after(delay_us, threads.when_free, run)

    def _run(self, call: _Call) -> None:
        future, function = call
        threads = self._threads
        if not future.set_running_or_notify_cancel():
            self._end_call()
            return
        value, failure = threads.run(function)
        if isinstance(failure, ProcessKilled) or threads.loop.stopped:
            return
        delay_us = threads.rng.randrange(DELIVERY_US_MAX)

        def deliver() -> None:
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(value)
            self._end_call()

        threads.scheduler.after(delay_us, threads.when_running, deliver)

    def _end_call(self) -> None:
        self._in_progress -= 1
        self._start_next()
        self._check_end()

    def _check_end(self) -> None:
        if self._shut and not self._calls and not self._in_progress and not self.ended.done():
            self.ended.set_result(None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._shut = True
        if cancel_futures:
            while self._calls:
                self._calls.popleft()[0].cancel()
        self._check_end()


class SimulatedExecutors:
    """`Executors` of one process."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def pool(self, threads_max: int, name: str) -> SimulatedPool:
        return SimulatedPool(self._threads, threads_max, name)

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        """Run `target` to its end, at once: its caller may hold no lock that `target` takes."""
        _, failure = self._threads.run(target)
        if failure is not None:
            raise failure
