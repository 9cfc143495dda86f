"""The objects of killed processes, which are kept until the end of a simulation.

The collection of a suspended coroutine runs its `finally` blocks. A killed process runs no code, so
its tasks must stay referenced. `Graveyard.close` drops them all, and ignores what their code does.
That code may create further tasks, which keep objects of its process until the next collection.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
import weakref
from typing import Any

from odradek import result_tasks
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.scheduler import Scheduler

COLLECTIONS_MAX = 10
"""Limit of the collections until no loop is left. One suffices, as a rule."""


class Graveyard:
    """The dead processes of one simulation. Call `close` at its end."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._loops: weakref.WeakSet[SimulatedLoop] = weakref.WeakSet()

    def bury(self, loop: SimulatedLoop, *others: object) -> None:
        """Kill a loop, and keep its tasks and other objects of its process."""
        self._loops.add(loop)
        self._kept.append((loop, asyncio.all_tasks(loop), loop.kill(), others))

    def close(self, scheduler: Scheduler) -> None:
        """Drop the objects, and the events that refer to them. Ignore errors of destructors."""
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        logging.disable(logging.CRITICAL)
        # A coroutine that ends may ask for the loop. Without this, asyncio makes one for it.
        asyncio.set_event_loop(None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # coroutines that were never awaited
                self._kept.clear()
                scheduler.clear()
                for _ in range(COLLECTIONS_MAX):
                    _drop_tasks()
                    gc.collect()
                    if not self._loops:
                        break
        finally:
            logging.disable(logging.NOTSET)
            sys.unraisablehook = hook


def _drop_tasks() -> None:
    """Drop the references of `result_tasks` to the tasks of dead processes."""
    tasks = result_tasks._tasks
    dead = [task for task in tasks if isinstance(task.get_loop(), SimulatedLoop)]
    tasks.difference_update(dead)
