"""Observation of the fast paths of repeated requests."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.requests.repeated_fetch import RepeatedFetch
from odradek.broker.requests.repeated_produce import RepeatedProduce


def observed_hits(
    monkeypatch: pytest.MonkeyPatch, path: type[RepeatedFetch | RepeatedProduce]
) -> list[bool]:
    """Return a list that gets, for each call of `path.respond`, whether it executed the request."""
    seen: list[bool] = []
    respond: Any = path.respond

    def observed(self: Any, connection: Any, frame: memoryview) -> Any:
        reply = respond(self, connection, frame)
        seen.append(reply is not None)
        return reply

    monkeypatch.setattr(path, "respond", observed)
    return seen
