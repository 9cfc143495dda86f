"""Runs the comparison of two JSON Schemas: cycles, repeated pairs and limits. Pure.

Recursive schemas lead back to a pair that is being compared. The pair is assumed to be compatible
(the greatest fixed point). If the assumption turns out to be wrong, the comparison is repeated with
the incompatible pairs known, until no assumption is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from odradek.registry.compatibility.json_differences import NO_DIFFERENCE, Findings, Outcome
from odradek.registry.compatibility.json_disjoint import Disjointness
from odradek.registry.compatibility.json_pairs import compare_pair
from odradek.registry.compatibility.json_steps import Pair, Steps
from odradek.registry.request_budget import Spend, unlimited
from odradek.registry.schemas.json_model import Node, ObjectForm, resolved

PAIRS_MAX = 100_000
"""Maximum number of comparisons of pairs for two schemas, repetitions included."""

MATCHES_PER_PAIR = 8
"""So many matches of names with patterns cost as much as one pair."""

COMPARISON_DEPTH_MAX = 2_000
"""Maximum number of nested pairs."""

_Key: TypeAlias = tuple[Node, Node]
"""A pair by the identity of its nodes, without references."""


class ComparisonLimit(Exception):
    """The schemas are too large or too deep to be compared. The message says which limit it is."""


def compare_schemas(writer: Node, reader: Node, spend: Spend = unlimited) -> Outcome:
    """Return the differences between two schemas.

    Args:
        writer: The schema of the data.
        reader: The schema that must accept the data.
        spend: Called with the cost of each pair of subschemas.

    Raises:
        ComparisonLimit: The comparison exceeds `PAIRS_MAX` or `COMPARISON_DEPTH_MAX`.
    """
    disjointness = Disjointness()
    wrong: dict[_Key, Outcome] = {}
    pairs_left = PAIRS_MAX
    while True:
        comparison = _JsonComparison(wrong, disjointness, pairs_left, spend)
        outcome = comparison.run(writer, reader)
        incompatible = comparison.incompatible()
        if not comparison.assumed or incompatible.keys() <= wrong.keys():
            return outcome
        wrong = {**wrong, **incompatible}
        pairs_left = comparison.pairs_left


@dataclass(slots=True)
class _Frame:
    key: _Key
    found: Findings
    steps: Steps[None]


@dataclass(slots=True)
class _JsonComparison:
    """One pass over all pairs."""

    wrong: dict[_Key, Outcome]
    """The outcomes of pairs that an earlier pass found to be incompatible."""
    disjointness: Disjointness
    pairs_left: int
    spend: Spend
    assumed: bool = False
    """Whether a pair was assumed to be compatible."""
    _known: dict[_Key, Outcome] = field(default_factory=dict)
    _active: set[_Key] = field(default_factory=set)
    _stack: list[_Frame] = field(default_factory=list)

    def run(self, writer: Node, reader: Node) -> Outcome:
        """Compare two schemas and, through `Steps`, their subschemas."""
        outcome = self._enter((writer, reader))
        while self._stack:
            frame = self._stack[-1]
            try:
                pair = next(frame.steps) if outcome is None else frame.steps.send(outcome)
            except StopIteration:
                outcome = self._leave()
            else:
                outcome = self._enter(pair)
        assert outcome is not None
        return outcome

    def incompatible(self) -> dict[_Key, Outcome]:
        """Return the outcomes of the incompatible pairs."""
        return {key: each for key, each in self._known.items() if not each.is_compatible}

    def _enter(self, pair: Pair) -> Outcome | None:
        """Return the outcome if it is known. Otherwise begin the comparison of the pair."""
        key = resolved(pair[0]), resolved(pair[1])
        known = self._known.get(key)
        if known is not None:
            return known
        if key in self._active:
            return self._assume(key)
        cost = _cost(*key)
        if self.pairs_left < cost:
            raise ComparisonLimit(f"more than {PAIRS_MAX} pairs of subschemas")
        if len(self._stack) == COMPARISON_DEPTH_MAX:
            raise ComparisonLimit(f"more than {COMPARISON_DEPTH_MAX} nested subschemas")
        self.pairs_left -= cost
        self.spend(cost)
        self._active.add(key)
        found = Findings()
        self._stack.append(_Frame(key, found, compare_pair(found, *key, self.disjointness)))
        return None

    def _assume(self, key: _Key) -> Outcome:
        wrong = self.wrong.get(key)
        if wrong is not None:
            return wrong
        self.assumed = True
        return NO_DIFFERENCE

    def _leave(self) -> Outcome:
        frame = self._stack.pop()
        outcome = frame.found.outcome()
        self._active.discard(frame.key)
        self._known[frame.key] = outcome
        return outcome


def _cost(writer: Node, reader: Node) -> int:
    """Return the cost of a pair in pairs."""
    one, two = writer.form, reader.form
    if not isinstance(one, ObjectForm) or not isinstance(two, ObjectForm):
        return 1
    patterns = len(one.pattern_properties) + len(two.pattern_properties)
    names = len(one.properties) + len(two.properties) + patterns
    return 1 + names * patterns // MATCHES_PER_PAIR
