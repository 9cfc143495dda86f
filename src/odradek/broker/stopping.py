"""The end of a broker: its parts are stopped one after the other, none of them for long.

Clients that wait, a slow disk or a part that does not end must not keep a broker from stopping. A
step that takes too long is logged and cancelled, and the next one begins. A thread that waits for
the disk is left behind: it keeps no process alive (`ThreadPool`), and its data is as safe as after
a crash, because nothing is marked as synced before it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from odradek.environment.clock import Clock

logger = logging.getLogger(__name__)


class StopLimits(NamedTuple):
    """When a broker goes on with the next step of its end, in milliseconds since the stop began.

    Attributes:
        answers_ms: Requests that are pending have been answered.
        parts_ms: All parts but the logs have stopped.
        syncs_ms: Logs have been synced as far as there was time.
        logs_ms: Logs are closed. The rest of two seconds is for the end of the process.
        threads_ms: How long threads that still run are waited for after that.
    """

    answers_ms: float = 1_000.0
    parts_ms: float = 1_100.0
    syncs_ms: float = 1_200.0
    logs_ms: float = 1_600.0
    threads_ms: float = 50.0


STOP_LIMITS = StopLimits()
"""The limits of a broker that is given none: SIGTERM ends its process within two seconds."""

Step = Callable[[], Awaitable[None]]


class StopSequence:
    """The steps that stop what a broker has started so far; the last that was added runs first."""

    def __init__(self, clock: Clock, limits: StopLimits) -> None:
        self._clock = clock
        self.limits = limits
        self._steps: list[tuple[str, Step, float]] = []
        self._began_ms = 0.0

    def add(self, name: str, step: Step, until_ms: float) -> None:
        """Add a step that has until `until_ms`. `name` completes "stopping ..." in the log."""
        self._steps.append((name, step, until_ms))

    def left_ms(self, until_ms: float) -> float:
        """How much time is left until `until_ms` of the stop, which runs."""
        return max(self._began_ms + until_ms - self._clock.monotonic_ms(), 0.0)

    async def run(self) -> None:
        """Run all steps. What fails is logged."""
        self._began_ms = self._clock.monotonic_ms()
        while self._steps:
            name, step, until_ms = self._steps.pop()
            task = asyncio.ensure_future(step())
            await asyncio.wait([task], timeout=self.left_ms(until_ms) / 1000)
            if not task.done():
                logger.warning("stopping %s takes too long, and is left behind", name)
                task.cancel()
            elif not task.cancelled() and (error := task.exception()) is not None:
                logger.error("stopping %s failed", name, exc_info=error)
