"""Parser of Java properties, the form of ``server.properties`` (``java.util.Properties.load``).

A line is a key, then ``=``, ``:`` or white space, then a value. Lines that begin with ``#`` or
``!`` are comments. A backslash at the end of a line continues it, without the leading white space
of the next line. Elsewhere a backslash escapes the next character, or makes ``\\t \\n \\r \\f
\\uXXXX``. If a key occurs twice, the last value counts. White space at the end of a value belongs
to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from odradek.errors import ErrorCode, KafkaError

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return keys and values in the order of the text.

    Raises:
        KafkaError: INVALID_CONFIG for a malformed ``\\uXXXX``.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        name = _unescaped(key)
        properties.pop(name, None)
        properties[name] = _unescaped(value)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines with their continuations, without comments and blank lines."""
    pending = ""
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not pending and line[:1] in ("", "#", "!"):
            continue
        line, pending = pending + line, ""
        if _continues(line):
            pending = line[:-1]
        else:
            yield line
    if pending:
        yield pending


def _continues(line: str) -> bool:
    """Return whether a line ends with a backslash that no other backslash escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Return the key and the value, both still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANK)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANK)
    return line[:end], value


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_meaning, text)
    # Java's characters are UTF-16: a pair of escapes can be one character.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meaning(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise KafkaError(ErrorCode.INVALID_CONFIG, "Malformed \\uxxxx encoding.")
    return _NAMED.get(escaped, escaped)
