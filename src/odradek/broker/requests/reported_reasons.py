"""Reasons that a broker has logged, so that repeated requests do not log them again."""

from __future__ import annotations

REASONS_REMEMBERED_MAX = 100
"""Reasons that are remembered. A reason that is older than so many others is logged again."""


class ReportedReasons:
    """The reasons that one broker has logged. Owned by its event loop."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, str], None] = {}

    def is_new(self, subject: str, reason: str) -> bool:
        """Note that the reason is logged. Return False if it was noted before."""
        key = (subject, reason)
        if key in self._reported:
            return False
        if len(self._reported) >= REASONS_REMEMBERED_MAX:
            del self._reported[next(iter(self._reported))]
        self._reported[key] = None
        return True
