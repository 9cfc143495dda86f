"""Two lists of answers, field by field, and which differences are allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from conformance.differential.allowed import ALLOWED

MISSING = "-"


@dataclass(frozen=True, slots=True)
class Difference:
    """`path`: ``scenario@version/step/field/field``."""

    path: str
    kafka: Any
    odradek: Any

    @property
    def reason(self) -> str | None:
        """Why it is allowed, if it is."""
        return next((why for at, why in ALLOWED.items() if fnmatchcase(self.path, at)), None)

    @property
    def pattern(self) -> str | None:
        return next((at for at in ALLOWED if fnmatchcase(self.path, at)), None)


def compare(
    name: str, kafka: list[tuple[str, Any]], odradek: list[tuple[str, Any]]
) -> list[Difference]:
    """The differences of two runs of a scenario."""
    found: list[Difference] = []
    for index in range(max(len(kafka), len(odradek))):
        step, theirs = kafka[index] if index < len(kafka) else (odradek[index][0], MISSING)
        _, ours = odradek[index] if index < len(odradek) else (step, MISSING)
        found += _differences(f"{name}/{step}", theirs, ours)
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
