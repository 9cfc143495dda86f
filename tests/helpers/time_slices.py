"""Count the time slices of long requests."""

from __future__ import annotations

import pytest

from odradek import slicing


def count_slices(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Return a list that gets one entry at each end of a time slice."""
    ended: list[None] = []
    end_slice = slicing.end_slice

    async def counted() -> None:
        ended.append(None)
        await end_slice()

    monkeypatch.setattr(slicing, "end_slice", counted)
    return ended
