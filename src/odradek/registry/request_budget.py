"""The work that one request may cause: comparisons of types, and time for them.

A request may compare a schema with all versions of its subject. The limits of a single comparison
would then permit minutes of work on the one thread of the writer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from odradek.registry.errors import RegistryError, RegistryErrorCode

STEPS_MAX = 250_000
"""Maximum number of pairs of types that a request compares. It takes about 5 seconds."""

TIME_MS_MAX = 5_000.0
"""Time after which a request begins no further comparison of two types and parses no schema."""

STEPS_PER_CLOCK_READ = 256
"""Number of comparisons after which the time is read again."""

OVERLOADED = 503
"""Error code and HTTP status of a request above a limit. Clients repeat such a request."""

Spend: TypeAlias = Callable[[int], None]
"""Accounts for a number of comparisons. Raises `BudgetExceeded`."""


class BudgetExceeded(RegistryError):
    """A request needs more work than it may cause: 422 for steps, 503 for time."""


class RequestBudget:
    """The budget of one request, which one thread uses at a time. It begins with the first use.

    Args:
        monotonic_ms: The clock, in milliseconds.
    """

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._deadline_ms: float | None = None
        self._steps = 0
        self._clock_read_at = 0

    def spend(self, steps: int) -> None:
        """Account for comparisons that begin.

        Raises:
            BudgetExceeded: The budget is spent.
        """
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise BudgetExceeded(
                RegistryErrorCode.UNPROCESSABLE,
                f"The comparison with earlier versions needs more than {STEPS_MAX} steps. Use"
                " smaller schemas, or a level that is not transitive",
            )
        if self._steps >= self._clock_read_at:
            self._clock_read_at = self._steps + STEPS_PER_CLOCK_READ
            self.check_time()

    def check_time(self) -> None:
        """Return if a further schema may be parsed.

        Raises:
            BudgetExceeded: The time is over.
        """
        now_ms = self._monotonic_ms()
        if self._deadline_ms is None:
            self._deadline_ms = now_ms + TIME_MS_MAX
        elif now_ms >= self._deadline_ms:
            raise BudgetExceeded(
                OVERLOADED,
                f"The schemas were not parsed and compared within {TIME_MS_MAX / 1000:g} s."
                " Repeat the request: parsed versions are remembered",
            )


def unlimited(steps: int) -> None:
    """Account for nothing."""
