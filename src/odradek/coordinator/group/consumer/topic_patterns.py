"""Topics that the regular expressions of consumer groups match, within bounds of memory and time.

`odradek.coordinator.regular_expressions` bounds the cost of one expression. Further limits:

- All compiled expressions that are kept hold at most `COMPILED_BYTES_MAX`.
- Refused expressions are remembered, so a client that repeats one costs no compilation.
- Matching yields after each `SLICE_MS` (`TopicPatterns.match`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from odradek.coordinator.group.consumer.pattern_matches import PatternMatches
from odradek.coordinator.regular_expressions import (
    EXPRESSION_BYTES_MAX,
    EXPRESSION_CHARACTERS_MAX,
    CompiledExpression,
    compile_expression,
    too_costly,
)
from odradek.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.environment.clock import Clock

COMPILED_BYTES_MAX = 4 * 1024 * 1024
"""RE2's memory for all expressions that are kept compiled."""
REFUSED_MAX = 256
"""Refused expressions that are kept with the reason."""
SLICE_MS = 0.5
"""Length of one time slice of matching."""


class TopicPatterns:
    """Compiled expressions, matched against topic names. Owned by the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._compiled: OrderedDict[str, CompiledExpression] = OrderedDict()
        self._refused: OrderedDict[str, str] = OrderedDict()

    def match(
        self, patterns: Iterable[str], names: Iterable[str], known: PatternMatches
    ) -> Generator[None, None, PatternMatches]:
        """Return `known` and the topics in `names` that each expression matches.

        Yield after each time slice.
        """
        topics, refused = dict(known.topics), dict(known.refused)
        for pattern in patterns:
            until_ms = self._clock.monotonic_ms() + SLICE_MS
            try:
                fullmatch = self._compile(pattern).fullmatch
            except KafkaError as error:
                refused[pattern] = error
                yield
                continue
            found = []
            for name in names:
                if fullmatch(name):
                    found.append(name)
                if self._clock.monotonic_ms() >= until_ms:
                    yield
                    until_ms = self._clock.monotonic_ms() + SLICE_MS
            topics[pattern] = frozenset(found)
        return PatternMatches(topics, refused)

    def _compile(self, pattern: str) -> CompiledExpression:
        """Return the compiled expression.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION when it is invalid or too costly.
        """
        compiled = self._compiled.get(pattern)
        if compiled is not None:
            self._compiled.move_to_end(pattern)
            return compiled
        reason = too_costly(pattern) or self._refused.get(pattern)
        if reason is None:
            try:
                compiled = compile_expression(pattern)
            except ValueError as error:
                reason = self._refused[pattern] = str(error)
                while len(self._refused) > REFUSED_MAX:
                    self._refused.popitem(last=False)
        if compiled is None:
            shown = pattern[:EXPRESSION_CHARACTERS_MAX]
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
            )
        self._compiled[pattern] = compiled
        while len(self._compiled) * EXPRESSION_BYTES_MAX > COMPILED_BYTES_MAX:
            self._compiled.popitem(last=False)
        return compiled
