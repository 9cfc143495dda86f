"""Responses that wait until the leaders that a change elects have applied it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from odradek.environment.timers import Timers
from odradek.ids import BrokerId
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import NO_LEADER


@dataclass(slots=True)
class _Wait:
    offset: int
    brokers: Collection[BrokerId]
    applied: asyncio.Future[bool]

    def complete(self, outcome: bool) -> None:
        if not self.applied.done():
            self.applied.set_result(outcome)


class AppliedWaits:
    """Owned by the event loop of the controller."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waits: list[_Wait] = []

    async def wait(
        self,
        offset: int,
        brokers: Collection[BrokerId],
        applied: Mapping[BrokerId, int],
        timeout_ms: float,
    ) -> bool:
        """Return when each of the brokers has applied an offset, or is no longer live.

        Args:
            offset: The metadata offset.
            brokers: The brokers.
            applied: The offset that each live broker has applied now.
            timeout_ms: The limit of the wait.

        Returns:
            Whether they have. False at the limit, or if the controller is no longer active.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        wait = _Wait(offset, brokers, future)
        if _is_applied(wait, applied):
            return True
        timer = self._timers.call_later(timeout_ms / 1000, wait.complete, False)
        self._waits.append(wait)
        try:
            return await wait.applied
        finally:
            timer.cancel()
            self._waits.remove(wait)

    def check(self, applied: Mapping[BrokerId, int]) -> None:
        """Complete the waits that have ended, after a poll or a change of the live brokers."""
        for wait in self._waits:
            if _is_applied(wait, applied):
                wait.complete(True)

    @property
    def is_empty(self) -> bool:
        return not self._waits

    def end(self) -> None:
        """Complete all waits, because the controller is no longer active."""
        for wait in self._waits:
            wait.complete(False)


def _is_applied(wait: _Wait, applied: Mapping[BrokerId, int]) -> bool:
    return all(applied.get(broker, wait.offset) >= wait.offset for broker in wait.brokers)


def elected_leaders(delta: MetadataDelta) -> set[BrokerId]:
    """Return the leaders of the partitions that begin a leader epoch in a change."""
    leaders: set[BrokerId] = set()
    for topic in delta.topics.changed.values():
        before = topic.before
        for number, after in topic.partitions.items():
            if after.leader == NO_LEADER:
                continue
            if (
                before is None
                or number >= before.partition_count
                or before.partitions[number].leader_epoch != after.leader_epoch
            ):
                leaders.add(after.leader)
    return leaders
