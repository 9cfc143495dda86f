"""The messages that the page on troubleshooting quotes are messages of the code."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.helpers.garbage import collect_quietly

PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
QUOTED = sorted(set(re.findall(r"^\| (?:log: )?`([^`]* [^`]* [^`]*)` \|", PAGE, re.M)))
OF_OTHERS = {"Address already in use", "fixture 'kafka' not found"}


@cache
def _literals() -> str:
    """All texts of the product. A placeholder of a formatted string is `...`.

    `ast.parse` of CPython 3.11 raises SystemError if a collection in it reports garbage with a
    traceback, which parses source, too. So the garbage of earlier tests is collected before.
    """
    collect_quietly()
    found = []
    for path in (ROOT / "src" / "odradek").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (
                    each.value if isinstance(each, ast.Constant) else "..." for each in node.values
                )
                found.append("".join(map(str, parts)))
    return "\n".join(found)


@pytest.mark.parametrize("message", [each for each in QUOTED if each not in OF_OTHERS])
def test_quoted_message_is_one_of_the_code(message: str) -> None:
    """The code may join a message of two parts with a colon: the operation and the reason."""
    assert _is_literal(message) or all(map(_is_literal, message.split(": ")))


def _is_literal(message: str) -> bool:
    pattern = "[^\\n]*".join(map(re.escape, message.split("...")))
    return re.search(pattern, _literals()) is not None


def test_messages_that_no_code_has_are_found() -> None:
    assert not _is_literal("the port is in use by another cat")


def test_messages_are_quoted() -> None:
    assert len(QUOTED) >= 4
