"""The layout of a .proto text: indentation, blocks, and options in brackets. Pure.

The layout is Confluent's: two spaces a level, also before empty lines of nested blocks.
"""

from __future__ import annotations

from collections.abc import Iterable

INDENT = "  "
"""The indentation of one level."""


def indented(text: str) -> list[str]:
    """Return the lines of a text, each indented by one level."""
    return [f"{INDENT}{line}" for line in text.split("\n")]


def enclosed(start: str, items: list[str], end: str) -> str:
    """Return items on lines of their own, with a comma after each but the last."""
    lines = [start]
    for position, item in enumerate(items, 1):
        lines += indented(item if position == len(items) else f"{item},")
    return "\n".join([*lines, end])


def block(head: str, sections: Iterable[list[str]], end: str = "}") -> list[str]:
    """Return a declaration with its body: an empty line between sections, none in an empty body."""
    body: list[str] = []
    for section in sections:
        if section:
            body += [""] if body else []
            body += [f"{INDENT}{line}" for line in section]
    lines = f"{head} {{".split("\n")
    if not body:
        return [*lines[:-1], f"{lines[-1]}{end}"]
    return [*lines, *body, end]


def in_brackets(assignments: list[str]) -> str:
    """Return the options of a field or an enum value, with a space before. None: an empty text."""
    if not assignments:
        return ""
    if len(assignments) == 1:
        return f" [{assignments[0]}]"
    return f" {enclosed('[', assignments, ']')}"
