"""JSON as Java's Avro library reads and writes it (the library Jackson). Pure.

Jackson accepts comments, writes numbers as `Double.toString` does, and escapes the characters below
U+0020, the quotation mark and the backslash.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import NoReturn, TypeAlias

from odradek.registry.schemas.parsed import DEPTH_MAX, InvalidSchema

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""A JSON value. Objects keep the order of their members."""

JSON_DEPTH_MAX = 4 * DEPTH_MAX
"""Maximum depth of objects and arrays. A type in a field of a record is three levels below it."""

SHOWN_CHARACTERS_MAX = 120
"""A longer value is truncated in messages."""

_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRING_OR_COMMENT = re.compile(r'"|/\*|//')
_PLAIN_EXPONENTS = range(-3, 7)
_TOO_DEEP = "The schema's JSON is nested too deeply."


def load(text: str) -> Json:
    """Return the value of a JSON text.

    Raises:
        InvalidSchema: The text is not JSON, or is nested too deeply for the JSON parser.
    """
    try:
        return _load(text)
    except ValueError as error:
        if "/*" not in text and "//" not in text:
            raise InvalidSchema(f"The schema is not JSON: {error}") from None
    try:
        blanked = _blank_comments(text)
        value = _load(blanked)
    except ValueError as error:
        raise InvalidSchema(f"The schema is not JSON: {error}") from None
    # Java's library reads on after the value without its JSON parser.
    if text[len(blanked.rstrip()) :].strip():
        raise InvalidSchema("There is a comment after the end of the schema.")
    return value


def dump(value: Json) -> str:
    """Return the JSON text of a value, without spaces."""
    written: list[str] = []
    pending: list[tuple[bool, Json]] = [(False, value)]
    while pending:
        is_text, item = pending.pop()
        if is_text:
            written.append(str(item))
        elif isinstance(item, dict):
            pending.extend(reversed(_object_parts(item)))
        elif isinstance(item, list):
            pending.extend(reversed(_array_parts(item)))
        else:
            written.append(_scalar(item))
    return "".join(written)


def quote(text: str) -> str:
    """Return a JSON string."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def shown(value: Json) -> str:
    """Return a value for a message. A long one is truncated."""
    text = dump(value)
    if len(text) > SHOWN_CHARACTERS_MAX:
        return text[:SHOWN_CHARACTERS_MAX] + "..."
    return text


def java_order(text: str) -> bytes:
    """Return the key that sorts strings as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def double_text(value: float) -> str:
    """Return the JSON text of a double by the rule of Java's `Double.toString`.

    A value that is not finite becomes a string, as Jackson writes it.
    """
    if math.isnan(value):
        return '"NaN"'
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f'"{sign}Infinity"'
    if value == 0:
        return f"{sign}0.0"
    _, numbers, exponent = Decimal(repr(abs(value))).as_tuple()
    assert isinstance(exponent, int)
    scale = len(numbers) + exponent - 1
    digits = "".join(map(str, numbers)).rstrip("0")
    if scale not in _PLAIN_EXPONENTS:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{scale}"
    if scale < 0:
        return f"{sign}0.{'0' * (-scale - 1)}{digits}"
    whole = digits[: scale + 1].ljust(scale + 1, "0")
    return f"{sign}{whole}.{digits[scale + 1 :] or '0'}"


def _load(text: str) -> Json:
    try:
        value: Json = json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise InvalidSchema(_TOO_DEEP) from None
    _check_depth(value)
    return value


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(JSON_DEPTH_MAX):
        level = [part for each in level for part in _parts(each) if isinstance(part, dict | list)]
        if not level:
            return
    raise InvalidSchema(_TOO_DEEP)


def _parts(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _blank_comments(text: str) -> str:
    """The text with spaces in the place of comments."""
    kept: list[str] = []
    position = 0
    while (opened := _STRING_OR_COMMENT.search(text, position)) is not None:
        start = opened.start()
        end = _end(text, opened.group(), start)
        kept.append(text[position:start])
        kept.append(text[start:end] if opened.group() == '"' else " " * (end - start))
        position = end
    kept.append(text[position:])
    return "".join(kept)


def _end(text: str, opened: str, start: int) -> int:
    """The position after the string or comment that begins at `start`."""
    if opened == '"':
        string = _STRING.match(text, start)
        end = -1 if string is None else string.end()
    elif opened == "//":
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
    else:
        end = text.find("*/", start + 2)
        end += 2 if end >= 0 else 0
    if end < 0:
        raise ValueError(f"the string or comment at character {start} does not end")
    return end


def _object_parts(item: dict[str, Json]) -> list[tuple[bool, Json]]:
    parts: list[tuple[bool, Json]] = [(True, "{")]
    for name, value in item.items():
        separator = "" if len(parts) == 1 else ","
        parts.append((True, f"{separator}{quote(name)}:"))
        parts.append((False, value))
    return [*parts, (True, "}")]


def _array_parts(item: list[Json]) -> list[tuple[bool, Json]]:
    parts: list[tuple[bool, Json]] = [(True, "[")]
    for value in item:
        if len(parts) > 1:
            parts.append((True, ","))
        parts.append((False, value))
    return [*parts, (True, "]")]


def _scalar(value: str | int | float | bool | None) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, float):
        return double_text(value)
    return json.dumps(value)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"
