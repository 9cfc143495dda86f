"""The liveness of the brokers, as the active controller knows it. Pure: time comes with the calls.

A broker is *live* while three conditions hold. Its ephemeral node exists. It has caught up with the
feed of metadata once since it registered. It has polled the feed within the session timeout
(``broker.session.timeout.ms``). Only a live broker is not fenced. The controller compares this
registry with the fenced flag of its image, and decides on the difference (`broker_changes`).

A broker has caught up when it polls with a metadata offset that is not below the one of its
registration. At a take-over each broker that has a node counts as caught up and as having polled,
because its polls went to the previous controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.ids import BrokerId

TICKS_PER_TIMEOUT = 4
"""`expired` is called so many times in each session timeout."""


@dataclass(slots=True)
class _Liveness:
    """A broker whose node exists.

    Attributes:
        epoch: The broker epoch: the czxid of the node.
        registered_offset: The metadata offset of the registration.
        applied_offset: The metadata offset that the broker has reported last. -1: none.
    """

    epoch: int
    registered_offset: int
    polled_ms: float
    is_caught_up: bool
    applied_offset: int = -1
    is_expired: bool = False


class BrokerRegistry:
    """The brokers whose nodes exist. Owned by the active controller, one for each take-over."""

    def __init__(self, session_timeout_ms: float, now_ms: float) -> None:
        self._timeout_ms = session_timeout_ms
        self._ticked_ms = now_ms
        self._brokers: dict[BrokerId, _Liveness] = {}

    @property
    def epochs(self) -> Mapping[BrokerId, int]:
        """The epoch of each broker whose node exists."""
        return {broker: each.epoch for broker, each in self._brokers.items()}

    @property
    def tick_ms(self) -> float:
        """The interval of `expired`."""
        return self._timeout_ms / TICKS_PER_TIMEOUT

    def taken_over(self, epochs: Mapping[BrokerId, int], now_ms: float) -> None:
        """Begin with the nodes that exist at a take-over."""
        for broker, epoch in epochs.items():
            self._brokers[broker] = _Liveness(epoch, -1, now_ms, True)

    def registered(self, broker: BrokerId, epoch: int, offset: int, now_ms: float) -> None:
        """Begin with a new node, whose registration has this metadata offset."""
        self._brokers[broker] = _Liveness(epoch, offset, now_ms, False)

    def gone(self, broker: BrokerId) -> None:
        """End with the node of a broker."""
        self._brokers.pop(broker, None)

    def unregistered(self, broker: BrokerId) -> None:
        """Note that a broker is never live again with its present node, if it has one."""
        found = self._brokers.get(broker)
        if found is not None:
            found.registered_offset = -1
            found.is_caught_up = False

    def polled(self, broker: BrokerId, epoch: int, offset: int, now_ms: float) -> bool:
        """Handle a poll of the feed from a position of this controller.

        Args:
            broker: The sender.
            epoch: Its broker epoch. A poll of another process than the registered one has no
                effect.
            offset: The metadata offset that the broker has applied. -1: one of another controller.
            now_ms: The time.

        Returns:
            Whether the broker has become live.
        """
        found = self._brokers.get(broker)
        if found is None or found.epoch != epoch:
            return False
        was_live = found.is_caught_up and not found.is_expired
        found.polled_ms = now_ms
        found.is_expired = False
        found.applied_offset = max(found.applied_offset, offset)
        found.is_caught_up |= offset >= found.registered_offset >= 0
        return found.is_caught_up and not was_live

    def expired(self, now_ms: float) -> list[BrokerId]:
        """Return the live brokers that have not polled within the timeout. They are live no longer.

        When this call is late by half a timeout, this process was stopped. The polls of the other
        brokers then wait in its sockets, so they all count as having polled now.
        """
        late = now_ms - self._ticked_ms > self._timeout_ms / 2 + self.tick_ms
        self._ticked_ms = now_ms
        expired = []
        for broker, each in self._brokers.items():
            if late:
                each.polled_ms = now_ms
            elif not each.is_expired and now_ms - each.polled_ms >= self._timeout_ms:
                each.is_expired = True
                if each.is_caught_up:
                    expired.append(broker)
        return expired

    def is_live(self, broker: BrokerId) -> bool:
        found = self._brokers.get(broker)
        return found is not None and found.is_caught_up and not found.is_expired

    def applied_offsets(self) -> dict[BrokerId, int]:
        """Return the metadata offset that each live broker has applied."""
        return {
            broker: each.applied_offset
            for broker, each in self._brokers.items()
            if each.is_caught_up and not each.is_expired
        }
