"""Long work on the event loop, in turns: the others have theirs in between.

One request may name 200,000 things, each of which costs some microseconds. Whoever works on such a
list gives way after every `ELEMENTS_A_TURN` of them. The number is counted, not timed, so what
happens between two turns can be repeated in a test.

Between two turns anything may change that another request can change: state is looked up anew for
each element, and nothing that was found in one turn is taken for true in the next. The order of a
connection's requests does not change, because its next one waits for the coroutine.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from odradek.result_tasks import run
from odradek.results import Result

ELEMENTS_A_TURN = 200
"""Elements worked on before the others have their turn: some milliseconds."""

ELEMENTS_AT_ONCE = 1_000
"""Elements of a request that is worked on without any turns, in plain calls."""

Pause = asyncio.Future[Any] | None
"""What a generator yields at the end of a slice: None, or a future that it needs before the next
one. It asks the future itself for its value or error.
"""

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


COLLECTIONS_PUT_OFF = 2_000
"""Collections of the middle generation without one of the oldest, while long work is done: some ten
million new objects, ten times as many as the longest request makes.
"""

_thresholds_lock = threading.Lock()
"""The collector is the process's; several brokers in it have a loop on a thread each."""
_usual_thresholds = (0, 0, 0)
_long_work = 0


@contextmanager
def long_work() -> Iterator[None]:
    """Puts full garbage collections off. They stop everybody for as long as there are objects, of
    which long work has a million, and none of them is garbage before its end. For work that waits
    for nothing but its turns: what waits for others may be under way all the time.
    """
    global _long_work, _usual_thresholds
    with _thresholds_lock:
        if not _long_work:
            _usual_thresholds = gc.get_threshold()
            gc.set_threshold(*_usual_thresholds[:2], COLLECTIONS_PUT_OFF)
        _long_work += 1
    try:
        yield
    finally:
        with _thresholds_lock:
            _long_work -= 1
            if not _long_work:
                gc.set_threshold(*_usual_thresholds)


async def give_way() -> None:
    """Lets the loop serve everybody else once."""
    await asyncio.sleep(0)


class Turns:
    """Counts the elements of one piece of work, over all of its lists."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ELEMENTS_A_TURN

    def charge(self, count: int) -> None:
        """The element being worked on costs as much as `count` more."""
        self._left -= count

    async def take(self) -> None:
        """Counts one element, after having given way if the turn was over."""
        if self._left <= 0:
            self._left = ELEMENTS_A_TURN
            await give_way()
        self._left -= 1

    async def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """``list(map(function, items))``, giving way where a turn is over. `items` must not change
        meanwhile. The list itself counts as an element, so that many short ones count, too.
        """
        results: list[R] = []
        self._left -= 1
        for item in items:
            if self._left <= 0:
                self._left = ELEMENTS_A_TURN
                await give_way()
            self._left -= 1
            results.append(function(item))
        return results


def at_once(work: Generator[None, None, R]) -> R:
    """What the generator returns; nobody has a turn in between."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]


def begun_work(work: Generator[Pause, None, R]) -> R | Coroutine[Any, Any, R]:
    """What the generator returns, if that takes no more than a turn, else a coroutine of the rest,
    which begins in a turn of its own.
    """
    try:
        pause = next(work)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    return in_turns(work, pause)


async def in_turns(work: Generator[Pause, None, R], pause: Pause = None) -> R:
    """What the generator returns; wherever it yields, others have their turn, and a future that it
    yields is waited for. Cancelled meanwhile, it is closed.
    """
    try:
        while True:
            if pause is not None:
                await asyncio.wait((pause,))
            try:
                pause = next(work)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            if pause is None:
                await give_way()
    finally:
        work.close()


def sliced(work: Generator[Pause, None, Result[R]]) -> Result[R]:
    """Run the generator in time slices, which it ends by its yields.

    The first slice runs at once. When the generator returns in it, its result is returned.
    Otherwise the result is not executed before the generator has returned.
    """
    try:
        pause = next(work)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    return run(_remaining_slices(work, pause))


async def _remaining_slices(work: Generator[Pause, None, Result[R]], pause: Pause) -> Result[R]:
    try:
        while True:
            if pause is not None:
                await asyncio.wait((pause,))
                pause = next(work)
            with long_work():
                while pause is None:
                    await give_way()
                    pause = next(work)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    finally:
        work.close()


def begun(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R | Coroutine[Any, Any, R]]:
    """Has a coroutine function begin at once: its result, if that takes no more than a turn, else
    a coroutine of the rest. It may wait for nothing but its turns.
    """

    @wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> R | Coroutine[Any, Any, R]:
        coroutine = function(*args, **kwargs)
        try:
            waits_for = coroutine.send(None)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        assert waits_for is None, "it waits for something else than its turn"
        return _rest(_Begun(coroutine))

    return begin


class _Begun:
    """A coroutine that has begun may be awaited no more, its iterator may."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()


async def _rest(begun_before: _Begun) -> Any:
    with long_work():
        return await begun_before
