"""Threads for blocking calls that end with the process, even in the middle of a call.

`concurrent.futures.ThreadPoolExecutor` joins its threads when the interpreter exits. A single fsync
on a slow disk would delay the exit of the process, or of a program that runs a broker. The threads
of this pool are daemon threads. Their writes are as safe as after a crash: see `LogManager.close`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Call = tuple["Future[Any]", Callable[[], Any]]


class ThreadPool(Executor):
    """An executor with at most `threads_max` threads, which start when they are needed.

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
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn(*args, **kwargs)` on a thread.

        Raises:
            RuntimeError: The pool was shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._ended:
                raise RuntimeError(f"{self._name}: a call was submitted after shutdown")
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._threads_max:
                self._start_thread()
        return future

    def _start_thread(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            _execute(*call)
            del call  # an idle thread must not keep the objects of its last call alive
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls. The threads end after the calls that were submitted.

        Args:
            wait: Return only when the threads have ended.
            cancel_futures: Cancel the calls that have not started.
        """
        with self._lock:
            first, self._ended = not self._ended, True
            if cancel_futures:
                self._cancel_waiting()
            if first or cancel_futures:
                for _ in self._threads:
                    self._calls.put(None)
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
