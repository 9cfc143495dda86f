"""Threads for blocking calls that end with the process, even in the middle of a call.

`concurrent.futures.ThreadPoolExecutor` joins its threads when the interpreter exits. A single fsync
on a slow disk would delay the exit of the process, or of a program that runs a broker. The threads
of this module are daemon threads. Their writes are as safe as after a crash: see
`LogManager.close`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from odradek.environment.executors import Pool

P = ParamSpec("P")
T = TypeVar("T")
_Call = tuple["Future[Any]", Callable[[], Any]]


class ThreadPool(Pool):
    """A pool with at most `threads_max` threads, which start when they are needed.

    The event loop submits calls. `shutdown` may be called from any thread.
    """

    def __init__(self, threads_max: int, name: str) -> None:
        assert threads_max > 0
        self._threads_max = threads_max
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._shut_down = False
        self.ended: Future[None] = Future()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn(*args, **kwargs)` on a thread.

        Raises:
            RuntimeError: The pool was shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._shut_down:
                raise RuntimeError(f"{self._name}: a call was submitted after shutdown")
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._threads_max:
                self._start_thread()
        return future

    def _start_thread(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        self._running += 1

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            _execute(*call)
            del call  # an idle thread must not keep the objects of its last call alive
            self._idle.release()
        with self._lock:
            self._running -= 1
            is_last = not self._running
        if is_last:
            self.ended.set_result(None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls. The threads end after the calls that were submitted.

        Args:
            wait: Return only when the threads have ended.
            cancel_futures: Cancel the calls that have not started.
        """
        with self._lock:
            first, self._shut_down = not self._shut_down, True
            if cancel_futures:
                self._cancel_waiting()
            if first or cancel_futures:
                for _ in self._threads:
                    self._calls.put(None)
        if first and not self._threads:
            self.ended.set_result(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _cancel_waiting(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is not None:
                    call[0].cancel()


def _execute(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - raised by `Future.result`
        future.set_exception(error)
    else:
        future.set_result(result)


class ThreadExecutors:
    """Threads of the operating system. See the module docstring."""

    __slots__ = ()

    def pool(self, threads_max: int, name: str) -> Pool:
        return ThreadPool(threads_max, name)

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        threading.Thread(target=target, name=name, daemon=True).start()
