"""Names of `odradek.slicing` for handlers that are not converted yet (produce, list_offsets)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from odradek.collector import postponed_full_collections
from odradek.slicing import ELEMENTS_PER_SLICE as ELEMENTS_A_TURN
from odradek.slicing import Pause, SliceCounter, end_slice
from odradek.slicing import in_slices as in_turns

__all__ = ["ELEMENTS_A_TURN", "Turns", "begun", "begun_work", "in_turns"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Turns(SliceCounter):
    """Counts the elements of one piece of work, over all of its lists."""

    __slots__ = ()

    async def take(self) -> None:
        """Counts one element, after having given way if the turn was over."""
        await self.count()

    async def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """``list(map(function, items))``, giving way where a turn is over."""
        results: list[R] = []
        self._left -= 1
        for item in items:
            if self._left <= 0:
                self._left = ELEMENTS_A_TURN
                await end_slice()
            self._left -= 1
            results.append(function(item))
        return results


def begun_work(work: Generator[Pause, None, R]) -> R | Coroutine[Any, Any, R]:
    """What the generator returns, if that takes no more than a turn, else a coroutine of the
    rest.
    """
    try:
        pause = next(work)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    return in_turns(work, pause)


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
    with postponed_full_collections():
        return await begun_before
