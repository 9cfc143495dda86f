"""Regular expressions of JSON Schemas. Pure.

Names are matched with RE2, whose time is linear. An expression comes from a client, and Python's
`re` holds the interpreter lock for exponential time on some expressions. Where RE2 and the dialects
of JSON Schema's validators may disagree, a match is unknown.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol

import re2

from odradek.registry.schemas.parsed import InvalidSchema

EXPRESSION_CHARACTERS_MAX = 4_096
"""Maximum length of a regular expression in a schema."""

EXPRESSIONS_OF_SCHEMA_MAX = 100
"""Maximum number of entries in one ``patternProperties``."""

EXPRESSION_BYTES_MAX = 256 * 1024
"""RE2's memory for one expression. A match with a larger one is unknown."""

EXPRESSIONS_MAX = 256
"""Maximum number of compiled expressions in the cache."""

_PRINTABLE = re.compile(r"[ -~]*")
_DIFFERENT_IN_RE2 = ("[[", "[:", "{,")
"""Syntax with another meaning in RE2 than in Python's `re`."""
_OTHER_DIALECTS = ("bad escape", "unknown extension", "global flags", "bad character in group name")
"""Messages of Python's `re` for syntax that exists in ECMAScript's or Java's dialect."""
_LITERAL_PREFIX = re.compile(r"\^([A-Za-z0-9_ -]+)([?*+{]?)")


class Expression(Protocol):
    """A compiled regular expression."""

    def search(self, text: str) -> object | None: ...


def require_expression(expression: str, location: str) -> None:
    """Raise InvalidSchema for an expression that no dialect of JSON Schema accepts."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise InvalidSchema(
            f"{location}: the expression is longer than {EXPRESSION_CHARACTERS_MAX} characters"
        )
    if compiled_expression(expression) is not None:
        return
    try:
        re.compile(expression)
    except re.error as error:
        if not error.msg.startswith(_OTHER_DIALECTS):
            raise InvalidSchema(f"{location}: not a regular expression: {error.msg}") from None
    except (OverflowError, RecursionError):
        raise InvalidSchema(f"{location}: the expression is too complex") from None


def matches(expression: str, name: str) -> bool | None:
    """Return whether an expression matches somewhere in a name, or None if that is unknown."""
    if _PRINTABLE.fullmatch(name) is None:
        return None
    compiled = compiled_expression(expression)
    return None if compiled is None else compiled.search(name) is not None


def exclude_each_other(first: str, second: str) -> bool:
    """Whether no name can match both expressions, by the literal texts with which these begin."""
    one, two = _literal_prefix(first), _literal_prefix(second)
    if not one or not two:
        return False
    return not one.startswith(two) and not two.startswith(one)


def _literal_prefix(expression: str) -> str:
    """Return the text with which every matching name begins. It may be empty."""
    found = _LITERAL_PREFIX.match(expression)
    if found is None or "|" in expression:
        return ""
    literal, quantifier = found.groups()
    return literal[:-1] if quantifier else literal


@lru_cache(maxsize=EXPRESSIONS_MAX)
def compiled_expression(expression: str) -> Expression | None:
    """Return an expression that RE2 has compiled, or None if its dialect may be another one."""
    if any(syntax in expression for syntax in _DIFFERENT_IN_RE2):
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = EXPRESSION_BYTES_MAX
    try:
        compiled: Expression = re2.compile(expression, options)
    except re2.error:
        return None
    return compiled
