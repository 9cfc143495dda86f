"""The comparison of two lists of responses, field by field, and the allowed differences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance.differential.allowed import ALLOWED

MISSING = "-"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at `path`, which is ``scenario@version/step/field/field``."""

    path: str
    kafka: Any
    odradek: Any

    @property
    def pattern(self) -> str | None:
        """The key of `ALLOWED` that covers the difference, or None."""
        return next((at for at in ALLOWED if _matches(self.path, at)), None)

    @property
    def text(self) -> str:
        """The difference without scenario and version."""
        where = self.path.partition("/")[2]
        return f"{where}: kafka={self.kafka!r:.200} odradek={self.odradek!r:.200}"


def _matches(path: str, pattern: str) -> bool:
    """Match a path. ``*`` matches any part of one component; all other characters are literal."""
    return re.fullmatch("[^/]*".join(map(re.escape, pattern.split("*"))), path) is not None


def compare(
    name: str, kafka: list[tuple[str, Any]], odradek: list[tuple[str, Any]]
) -> list[Difference]:
    """Return the differences between two runs of a scenario."""
    found: list[Difference] = []
    theirs, ours = dict(kafka), dict(odradek)
    for step in [*theirs, *(step for step in ours if step not in theirs)]:
        pair = theirs.get(step, MISSING), ours.get(step, MISSING)
        found += _differences(f"{name}/{step}", *pair)
    return found


def _differences(path: str, theirs: Any, ours: Any) -> Iterator[Difference]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            yield from _differences(
                f"{path}/{key}", theirs.get(key, MISSING), ours.get(key, MISSING)
            )
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(f"{path}/{index}", *pair)
    elif theirs != ours:
        yield Difference(path, theirs, ours)
