"""Executors as a protocol: everything that starts a thread for a broker.

The event loop passes work to a `Pool` by `loop.run_in_executor`. A simulator runs the work at a
random virtual moment on the thread of the loop. Work that a pool executes may therefore block on
files and locks, but it never waits for other work.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Pool(Executor):
    """An executor of blocking calls, with a limit on the calls that run at the same time.

    Calls start in the order in which they were submitted.

    Attributes:
        ended: Done after `shutdown`, when the last call that was submitted has ended or was
            cancelled. A call that never ends keeps it undone.
    """

    ended: Future[None]

    @abstractmethod
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn(*args, **kwargs)` later.

        Raises:
            RuntimeError: The pool was shut down.
        """

    @abstractmethod
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls. May be called again.

        Args:
            wait: Return only when the threads have ended. Used only when no call is in progress,
                so that it does not block the event loop.
            cancel_futures: Cancel the calls that have not started.
        """


class Executors(Protocol):
    """The source of the threads of one broker."""

    def pool(self, threads_max: int, name: str) -> Pool:
        """Return a pool with at most `threads_max` threads, which start when they are needed.

        Args:
            threads_max: Limit on the calls that run at the same time.
            name: Prefix of the names of its threads, such as "odradek-io".
        """

    def start_thread(self, target: Callable[[], None], name: str) -> None:
        """Run `target` on a thread of its own, which does not keep the process alive.

        The caller may wait for the effects of `target` under a lock. A simulator runs `target` to
        its end before it returns.
        """
