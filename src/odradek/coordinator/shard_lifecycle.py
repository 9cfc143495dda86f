"""The lifecycle of a shard: a shard belongs to the leader epoch in which it was loaded. Pure.

`ShardLifecycle` decides when the runtime loads, serves and drops the shard of one partition. It
gets events and returns the actions of `CoordinatorRuntime`, which is its shell.

- A shard is loaded after each election, and dropped after each loss of the leadership. A broker
  that leads the partition again loads it again.
- A loaded shard serves when the high watermark has reached the log end that was loaded. Before,
  its state may contain records that another leader truncates.
- A log that cannot be read now is loaded again after a pause. A damaged log is not read again in
  the same leader epoch. Neither lasts longer than the leader epoch.

Each load has a number. An event of an earlier load has no effect, also in the same leader epoch:
a broker without a lease stops leading a partition and leads it again in the same epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from odradek.errors import ErrorCode

Transition = Iterator[int]
"""The start or the end of a shard. It yields the number of elements that it has just visited."""

NOT_LED = -1
"""Leader epoch of a partition that this broker does not lead."""
RELOAD_MS = 100
"""Pause before the second load of a log that could not be read. It doubles with each failure."""
RELOAD_MS_MAX = 10_000
"""Maximum of that pause, in milliseconds."""


class Phase(Enum):
    """The phase of a shard in its leader epoch."""

    NOT_LED = "not led"
    LOADING = "loading"
    AWAITING_COMMIT = "awaiting commit"
    """All records are loaded. Some of them are not committed yet."""
    SERVING = "serving"
    UNREADABLE = "unreadable"
    """The log could not be read. It is loaded again after a pause."""
    DAMAGED = "damaged"
    """The log is damaged. It is not read again in this leader epoch."""


REFUSALS = {
    Phase.NOT_LED: ErrorCode.NOT_COORDINATOR,
    Phase.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Phase.AWAITING_COMMIT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Phase.UNREADABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Phase.DAMAGED: ErrorCode.NOT_COORDINATOR,
}
"""The response to a request in each phase, except for `Phase.SERVING`."""


class Actions(NamedTuple):
    """The actions that an event requires, in this order.

    Attributes:
        drop: Drop the shard, or end its load.
        load: The number of a load to begin, or 0.
        await_offset: Report `high_watermark_moved` when the high watermark has reached this offset.
            None: nothing to wait for.
        serve: Serve the loaded shard.
        reload_ms: Report `reload_due` after this pause. 0: no pause.
    """

    drop: bool = False
    load: int = 0
    await_offset: int | None = None
    serve: bool = False
    reload_ms: int = 0


NO_ACTIONS = Actions()


class ShardLifecycle:
    """The state of one partition. Each method takes an event and returns the required actions.

    Attributes:
        phase: The present phase.
        leader_epoch: The leader epoch of the shard, or `NOT_LED`.
        load: The number of the newest load.
    """

    __slots__ = ("_failures", "_log_end_offset", "leader_epoch", "load", "phase")

    def __init__(self) -> None:
        self.phase = Phase.NOT_LED
        self.leader_epoch = NOT_LED
        self.load = 0
        self._log_end_offset = 0
        self._failures = 0

    def elected(self, leader_epoch: int) -> Actions:
        """Load the shard, because this broker leads the partition in this epoch.

        A repeated report of the same epoch, and an older epoch, have no effect.
        """
        if leader_epoch <= self.leader_epoch:
            return NO_ACTIONS
        was_led = self.phase is not Phase.NOT_LED
        self.leader_epoch = leader_epoch
        self._failures = 0
        return self._begin_load(drop=was_led)

    def deposed(self) -> Actions:
        """Drop the shard, because this broker does not lead the partition any longer."""
        if self.phase is Phase.NOT_LED:
            return NO_ACTIONS
        self.phase = Phase.NOT_LED
        self.leader_epoch = NOT_LED
        return Actions(drop=True)

    def loaded(self, load: int, log_end_offset: int) -> Actions:
        """Wait for the commit of all records that were loaded, which end before this offset."""
        if not self._is_loading(load):
            return NO_ACTIONS
        self.phase = Phase.AWAITING_COMMIT
        self._log_end_offset = log_end_offset
        return Actions(await_offset=log_end_offset)

    def high_watermark_moved(self, load: int, high_watermark: int) -> Actions:
        """Serve if all records that were loaded are committed."""
        if load != self.load or self.phase is not Phase.AWAITING_COMMIT:
            return NO_ACTIONS
        if high_watermark < self._log_end_offset:
            return NO_ACTIONS
        self.phase = Phase.SERVING
        return Actions(serve=True)

    def load_failed(self, load: int, *, is_damaged: bool) -> Actions:
        """Load again after a pause, or never in this leader epoch if the log is damaged."""
        if not self._is_loading(load):
            return NO_ACTIONS
        if is_damaged:
            self.phase = Phase.DAMAGED
            return Actions(drop=True)
        self.phase = Phase.UNREADABLE
        pause_ms = min(RELOAD_MS << min(self._failures, 16), RELOAD_MS_MAX)
        self._failures += 1
        return Actions(drop=True, reload_ms=pause_ms)

    def reload_due(self, load: int) -> Actions:
        """Load again after the pause that followed this load."""
        if load != self.load or self.phase is not Phase.UNREADABLE:
            return NO_ACTIONS
        return self._begin_load(drop=False)

    def serves(self, load: int) -> bool:
        """Return whether the shard of this load serves, or is about to."""
        return load == self.load and self.phase is Phase.SERVING

    def _is_loading(self, load: int) -> bool:
        return load == self.load and self.phase is Phase.LOADING

    def _begin_load(self, *, drop: bool) -> Actions:
        self.phase = Phase.LOADING
        self.load += 1
        return Actions(drop=drop, load=self.load)
