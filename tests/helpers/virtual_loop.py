"""An event loop whose time jumps to the next timer when no callback is due."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._virtual_s = 0.0

    def time(self) -> float:
        return self._virtual_s

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():  # the loop would wait for the next one
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        if not self._ready:  # type: ignore[attr-defined]
            assert scheduled, "every task waits for another one"
            self._virtual_s = max(self._virtual_s, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def run_virtually(call: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine on a loop with virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(call)
    finally:
        loop.close()
