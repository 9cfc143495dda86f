"""Regular expressions of consumer groups, within bounds of memory and time.

Expressions have RE2's syntax, as in Kafka (KIP-848). A client chooses the expression, so each of
its costs has a limit:

- Compilation holds the interpreter lock, so it runs on the event loop and its time is bounded by
  the program size (`PATTERN_BYTES_MAX`), the length, and the number of constructs that expand
  (`REPETITIONS_MAX`, `UNICODE_CLASSES_MAX`). RE2's own limit does not bound the time of parsing:
  200 times ``\\pL`` take 20 ms and are then refused. The slowest known expression within these
  limits takes 4 ms to compile, and 4 ms to match one name of 249 characters.
- A compiled expression holds at most `PATTERN_BYTES_MAX`, and all of them `COMPILED_BYTES_MAX`.
- Refused expressions are remembered, so a client that repeats one costs no compilation.
- Matching yields after each `SLICE_MS` (`TopicPatterns.match`).

The library is imported when the first expression is compiled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Protocol

from odradek.coordinator.group.consumer.pattern_matches import PatternMatches
from odradek.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.environment.clock import Clock

PATTERN_BYTES_MAX = 32 * 1024
"""RE2's memory for one expression: its program and its cached states."""
COMPILED_BYTES_MAX = 4 * 1024 * 1024
"""RE2's memory for all expressions that are kept compiled."""
PATTERN_CHARACTERS_MAX = 1_024
REPETITIONS_MAX = 16
"""Counted repetitions, as in ``x{1,30}``, in one expression."""
UNICODE_CLASSES_MAX = 8
"""Unicode classes, as ``\\pL``, in one expression."""
REFUSED_MAX = 256
"""Refused expressions that are kept with the reason."""
SLICE_MS = 0.5
"""Length of one time slice of matching."""


class _Compiled(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


class TopicPatterns:
    """Compiled expressions, matched against topic names. Owned by the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._compiled: OrderedDict[str, _Compiled] = OrderedDict()
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

    def _compile(self, pattern: str) -> _Compiled:
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
                compiled = _compile(pattern)
            except ValueError as error:
                reason = self._refused[pattern] = str(error)
                while len(self._refused) > REFUSED_MAX:
                    self._refused.popitem(last=False)
        if compiled is None:
            shown = pattern[:PATTERN_CHARACTERS_MAX]
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
            )
        self._compiled[pattern] = compiled
        while len(self._compiled) * PATTERN_BYTES_MAX > COMPILED_BYTES_MAX:
            self._compiled.popitem(last=False)
        return compiled


def too_costly(pattern: str) -> str | None:
    """Return the limit that an expression exceeds before compilation, or None."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"longer than {PATTERN_CHARACTERS_MAX} characters"
    if pattern.count("{") > REPETITIONS_MAX:
        return f"more than {REPETITIONS_MAX} counted repetitions"
    if pattern.count("\\p") + pattern.count("\\P") > UNICODE_CLASSES_MAX:
        return f"more than {UNICODE_CLASSES_MAX} Unicode classes"
    return None


def _compile(pattern: str) -> _Compiled:
    """Compile with RE2. Raise ValueError with the reason for an invalid expression."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    # The spans of groups are not needed. RE2 can then use its faster algorithms.
    options.never_capture = True
    try:
        compiled: _Compiled = re2.compile(pattern, options)
        return compiled
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(text) from None
    finally:
        # The library itself caches the last 128 expressions of any size.
        re2.purge()
