"""Stop sequence of a broker: its parts stop one after the other, each within a time limit.

Waiting clients, a slow disk or a part that does not end must not keep a broker from stopping. A
step that exceeds its limit is logged and cancelled, and the next step begins. The broker does not
wait for a thread that is blocked by the disk. Such a thread does not keep the process alive
(`ThreadPool`). Its data is as safe as after a crash, because data is marked as synced only after
fsync.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from odradek.environment.clock import Clock

logger = logging.getLogger(__name__)


class StopLimits(NamedTuple):
    """Deadlines of the stop steps, in milliseconds since the stop began.

    The broker continues with the next step when a deadline has passed.

    Attributes:
        responses_ms: Deadline for the responses to pending requests.
        parts_ms: Deadline for stopping all parts except the logs.
        syncs_ms: Deadline for syncing logs.
        logs_ms: Deadline for closing logs. The rest of two seconds is for the end of the process.
        threads_ms: Duration, after the last step, for which the broker waits for threads that
            still run.
    """

    responses_ms: float = 1_000.0
    parts_ms: float = 1_100.0
    syncs_ms: float = 1_200.0
    logs_ms: float = 1_600.0
    threads_ms: float = 50.0


STOP_LIMITS = StopLimits()
"""The default limits, with which SIGTERM ends the process within two seconds."""

Step = Callable[[], Awaitable[None]]


class StopSequence:
    """The steps that stop the parts that a broker has started so far, run in the reverse order."""

    def __init__(self, clock: Clock, limits: StopLimits) -> None:
        self._clock = clock
        self.limits = limits
        self._steps: list[tuple[str, Step, float]] = []
        self._began_ms = 0.0

    def add(self, name: str, step: Step, until_ms: float) -> None:
        """Add a step.

        Args:
            name: The name of the part in log lines, such as "the logs".
            step: Stops the part.
            until_ms: Deadline of the step in milliseconds since the stop began.
        """
        self._steps.append((name, step, until_ms))

    def left_ms(self, until_ms: float) -> float:
        """Return the time in milliseconds until the deadline `until_ms` of the running stop."""
        return max(self._began_ms + until_ms - self._clock.monotonic_ms(), 0.0)

    async def run(self) -> None:
        """Run all steps, each until its deadline. Log the steps that fail."""
        self._began_ms = self._clock.monotonic_ms()
        while self._steps:
            name, step, until_ms = self._steps.pop()
            task = asyncio.ensure_future(step())
            await asyncio.wait([task], timeout=self.left_ms(until_ms) / 1000)
            if not task.done():
                logger.warning("stopping %s takes too long. The broker stops without it", name)
                task.cancel()
            elif not task.cancelled() and (error := task.exception()) is not None:
                logger.error(
                    "stopping %s failed. The broker continues to stop", name, exc_info=error
                )
