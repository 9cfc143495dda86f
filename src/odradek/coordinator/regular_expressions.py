"""Regular expressions from clients, compiled within bounds of memory and time.

Expressions have RE2's syntax, as in Kafka (KIP-848, KIP-1152). A client chooses the expression, so
each of its costs has a limit:

- Compilation holds the interpreter lock, so it runs on the event loop and its time is bounded by
  the program size (`EXPRESSION_BYTES_MAX`), the length, and the number of constructs that expand
  (`REPETITIONS_MAX`, `UNICODE_CLASSES_MAX`). RE2's own limit does not bound the time of parsing:
  200 times ``\\pL`` take 20 ms and are then refused. The slowest known expression within these
  limits takes 4 ms to compile, and 4 ms to match one text of 249 characters.
- A compiled expression holds at most `EXPRESSION_BYTES_MAX`. The library keeps none.

The library is imported when the first expression is compiled.
"""

from __future__ import annotations

from typing import Protocol

EXPRESSION_BYTES_MAX = 32 * 1024
"""RE2's memory for one expression: its program and its cached states."""
EXPRESSION_CHARACTERS_MAX = 1_024
REPETITIONS_MAX = 16
"""Counted repetitions, as in ``x{1,30}``, in one expression."""
UNICODE_CLASSES_MAX = 8
"""Unicode classes, as ``\\pL``, in one expression."""


class CompiledExpression(Protocol):
    """A regular expression that is ready to be matched."""

    def fullmatch(self, text: str) -> object | None: ...


def too_costly(expression: str) -> str | None:
    """Return the limit that an expression exceeds before compilation, or None."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        return f"longer than {EXPRESSION_CHARACTERS_MAX} characters"
    if expression.count("{") > REPETITIONS_MAX:
        return f"more than {REPETITIONS_MAX} counted repetitions"
    if expression.count("\\p") + expression.count("\\P") > UNICODE_CLASSES_MAX:
        return f"more than {UNICODE_CLASSES_MAX} Unicode classes"
    return None


def compile_expression(expression: str) -> CompiledExpression:
    """Compile with RE2. Raise ValueError with the reason why an expression is refused."""
    import re2

    reason = too_costly(expression)
    if reason is not None:
        raise ValueError(reason)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = EXPRESSION_BYTES_MAX
    # The spans of groups are not needed. RE2 can then use its faster algorithms.
    options.never_capture = True
    try:
        compiled: CompiledExpression = re2.compile(expression, options)
        return compiled
    except re2.error as error:
        cause = error.args[0]
        text = cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
        raise ValueError(text) from None
    finally:
        # The library itself caches the last 128 expressions of any size.
        re2.purge()
