"""One event loop for each process of a simulation, stepped by the scheduler.

`SimulatedLoop` is a `BaseEventLoop` without a selector. A step runs the callbacks that were ready
when it began, in FIFO order, as an iteration of asyncio's own loop does. A paused loop (SIGSTOP) is
not stepped. A stopped loop (SIGKILL) drops all callbacks and is never stepped again.

Each loop has a clock, whose wall time has an offset and whose speed has a drift. `loop.time()`, the
timers and the clock of one process therefore agree.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.scheduler import SECOND, Event, Scheduler

START_TIME_MS = 1_700_000_000_000
STEP_US_MIN, STEP_US_MAX = 10, 150
"""Virtual duration of one iteration of a loop."""


class ProcessKilled(BaseException):
    """The process died inside of this call. Raised by its files, and caught by its loop."""


class SimulatedClock:
    """The clock of one process: virtual time with an offset of its wall time and a drift."""

    __slots__ = ("_drift", "_offset_ms", "_scheduler")

    def __init__(self, scheduler: Scheduler, offset_ms: int = 0, drift: float = 0.0) -> None:
        self._scheduler = scheduler
        self._offset_ms = offset_ms
        self._drift = drift

    def time_ms(self) -> int:
        return START_TIME_MS + self._offset_ms + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return self._scheduler.now_us * (1.0 + self._drift) / 1000.0

    def real_us(self, delay_s: float) -> int:
        """Return the virtual microseconds of a delay that this clock measures."""
        return max(int(delay_s * SECOND / (1.0 + self._drift)), 0)


class SimulatedHandle(asyncio.TimerHandle):
    """A timer of a loop: an event of the scheduler that makes a callback ready."""

    __slots__ = ("event",)

    event: Event | None

    def cancel(self) -> None:
        if self.event is not None:
            self.event.cancel()
            self.event = None
        super(asyncio.TimerHandle, self).cancel()


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one process; see the module.

    Attributes:
        on_step: Called after each step that ran callbacks.
        failures: Errors that no callback handled, as lines of text.
        stopped: The process was killed.
    """

    def __init__(self, scheduler: Scheduler, name: str, clock: SimulatedClock) -> None:
        super().__init__()
        self.name = name
        self.clock = clock
        self.on_step: Callable[[], None] | None = None
        self.failures: list[str] = []
        self.stopped = False
        self.paused = False
        self._scheduler = scheduler
        self._random = scheduler.stream(f"loop {name}").random
        self._queue: deque[asyncio.Handle] = deque()
        # Code that unwinds after a kill may create tasks, which must stay referenced as well.
        self._late: list[asyncio.Handle] = []
        self._step_event: Event | None = None
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<simulated loop {self.name}>"

    def __del__(self) -> None:
        """Warn of nothing: the loop of a killed process is not closed."""

    # -- interface of asyncio ----------------------------------------------------------------------

    def time(self) -> float:
        return self.clock.monotonic_ms() / 1000.0

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **named)
        self._tasks.add(task)
        return task

    def call_soon(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self._step_event is None or self.stopped:
            self._enqueue(handle)
        else:
            self._queue.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = SimulatedHandle(self.time() + delay, callback, args, self, context)
        if self.stopped:
            handle.event = None
            return handle
        delay_us = self.clock.real_us(delay)
        handle.event = self._scheduler.after(delay_us, self._timer_due, handle)
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Timers are events of the scheduler, so there is no heap to clean up."""

    def _timer_due(self, handle: SimulatedHandle) -> None:
        handle.event = None
        if not handle.cancelled():
            self._enqueue(handle)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.stopped or isinstance(error, ProcessKilled):
            return
        what = _coroutine_of(context.get("task") or context.get("future"))
        self.failures.append(f"{self.name}: {context.get('message')}: {error!r}{what}")

    def failures_of_tasks(self) -> list[str]:
        """Return the errors of ended tasks that no code has retrieved.

        A task that is collected reports its error itself. A task in an attribute does not.
        """
        return sorted(
            f"{self.name}: no code has retrieved the error of a task: {task.exception()!r}"
            f"{_coroutine_of(task)}"
            for task in list(self._tasks)
            if task.done() and getattr(task, "_log_traceback", False)
        )

    # -- interface of the simulator ----------------------------------------------------------------

    def _enqueue(self, handle: asyncio.Handle) -> None:
        if self.stopped:
            self._late.append(handle)
            return
        self._queue.append(handle)
        if self._step_event is None and not self.paused:
            self._schedule_step()

    def _schedule_step(self) -> None:
        delay_us = STEP_US_MIN + int(self._random() * (STEP_US_MAX - STEP_US_MIN))
        self._step_event = self._scheduler.after(delay_us, self._step)

    def _step(self) -> None:
        self._step_event = None
        if self.paused or self.stopped:
            return
        queue = self._queue
        events._set_running_loop(self)
        try:
            for _ in range(len(queue)):
                handle = queue.popleft()
                if not handle._cancelled:
                    handle._run()
                if self.stopped:
                    return
        finally:
            events._set_running_loop(None)
        if queue and self._step_event is None and not self.paused:
            self._schedule_step()
        if self.on_step is not None:
            self.on_step()

    def pause(self) -> None:
        """Stop stepping, as SIGSTOP does. Timers and data that become due wait."""
        self.paused = True
        if self._step_event is not None:
            self._step_event.cancel()
            self._step_event = None

    def resume(self) -> None:
        """Continue after `pause`."""
        self.paused = False
        if self._queue and self._step_event is None and not self.stopped:
            self._schedule_step()

    def kill(self) -> object:
        """Run no code of the process from now on. Return the callbacks that were ready."""
        self.stopped = True
        if self._step_event is not None:
            self._step_event.cancel()
            self._step_event = None
        dropped, self._queue = self._queue, deque()
        return dropped


def _coroutine_of(task: Any) -> str:
    """Return the name of a task's coroutine for a message."""
    if not isinstance(task, asyncio.Task):
        return ""
    return f" ({getattr(task.get_coro(), '__qualname__', '')})"
