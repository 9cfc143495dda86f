"""Starts and ends of the shards of one runtime, one after the other in time slices.

An election can give this broker fifty shards, or take them away, in one iteration of the event
loop. Each start restarts the sessions of all members of the shard, and each end completes their
waiting requests. Fifty of them at the same time would run fifty slices between two requests.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator

from odradek.coordinator.shard_lifecycle import Transition
from odradek.coordinator.slice_limits import SliceLimits
from odradek.environment.clock import Clock
from odradek.slicing import begin

logger = logging.getLogger(__name__)


class ShardTransitions:
    """The queue of starts and ends, which share each time slice. Owned by the event loop.

    A transition without elements, such as the start of an empty shard, runs immediately if none
    waits. The queue has at most one start and one end for each load of a shard.

    Args:
        topic: The internal topic, for the log.
        clock: Ends a time slice whose elements take long.
    """

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._waiting: deque[Transition] = deque()
        self._is_running = False

    def add(self, transition: Transition) -> None:
        """Run a transition after all waiting ones. Its first slice may run immediately."""
        self._waiting.append(transition)
        if not self._is_running:
            begin(self._running(), f"the starts and ends of the shards of {self._topic}")

    def _running(self) -> Generator[None, None, None]:
        self._is_running = True
        limits = SliceLimits(self._clock)
        try:
            while self._waiting:
                has_elements = yield from self._run(self._waiting.popleft(), limits)
                if has_elements and not self._waiting:
                    yield  # a transition that is added in this iteration has no slice of its own
        finally:
            self._is_running = False

    def _run(self, transition: Transition, limits: SliceLimits) -> Generator[None, None, bool]:
        """Run one transition. Return whether it has visited any element."""
        has_elements = False
        try:
            for elements in transition:
                has_elements = True
                yield from limits.spend(elements)
        except Exception:
            # A defect must not stop the other shards.
            logger.exception(
                "bug in the start or end of a shard of %s. Report the traceback", self._topic
            )
        return has_elements
