"""The timers of a controller's term, one for each name."""

from __future__ import annotations

from collections.abc import Callable

from odradek.environment.timers import Timer, Timers


class NamedTimers:
    """Timers that have a name. Owned by the event loop of the controller.

    The number of names is the limit of their number.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._armed: dict[str, Timer] = {}

    def is_armed(self, name: str) -> bool:
        return name in self._armed

    def arm(self, name: str, delay_ms: float, call: Callable[[], None]) -> None:
        """Make the call after a delay. It replaces an armed call of that name."""
        armed = self._armed.pop(name, None)
        if armed is not None:
            armed.cancel()

        def due() -> None:
            self._armed.pop(name, None)
            call()

        self._armed[name] = self._timers.call_later(delay_ms / 1000, due)

    def cancel_all(self) -> None:
        for timer in self._armed.values():
            timer.cancel()
        self._armed.clear()
