"""Replacement of functions of the product by mutants, in this process only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Patches:
    """The replaced functions of one mutant."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self.uncalled: set[str] = set()

    def replace(self, owner: Any, name: str, instead: Callable[..., Any]) -> None:
        assert name in vars(owner), f"{owner} has no {name} of its own"
        original = vars(owner)[name]
        self._undo.append((owner, name, original))
        self.uncalled.add(name)

        def mutated(*arguments: Any, **named: Any) -> Any:
            self.uncalled.discard(name)
            return instead(*arguments, **named)

        is_property = isinstance(original, property)
        setattr(owner, name, property(mutated) if is_property else mutated)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace a constant of a module."""
        self._undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        for owner, name, original in reversed(self._undo):
            setattr(owner, name, original)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug, and the number of brokers of the simulation that finds it."""

    name: str
    what: str
    apply: Callable[[Patches], None]
    brokers: int = 1
