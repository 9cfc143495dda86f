"""JSON as Confluent's registry reads and writes JSON Schema (the library Jackson). Pure.

Numbers with a fraction or an exponent are exact decimals. The text of a decimal is the same in Java
(`BigDecimal.toString`) and in Python (`str`). Members keep their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, DecimalException
from json.encoder import encode_basestring
from typing import NoReturn, TypeAlias

from odradek.registry.schemas.parsed import DEPTH_MAX, TEXT_BYTES_MAX, InvalidSchema

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | Decimal | bool | None"
"""A JSON value. Objects keep the order of their members."""

NESTING_MAX = 2 * DEPTH_MAX
"""Maximum nesting of objects and arrays. A type inside a type takes at most two: an array or an
object of schemas, and the schema."""

NUMBER_CHARACTERS_MAX = 1_000
"""Maximum length of a number (Jackson's limit)."""

_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def load(text: str) -> Json:
    """Return the value of a JSON text.

    Raises:
        InvalidSchema: The text is not JSON, or exceeds a limit of size, nesting or numbers.
    """
    if len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        raise InvalidSchema(f"The schema is longer than {TEXT_BYTES_MAX} bytes")
    try:
        value: Json = json.loads(
            text,
            parse_float=_decimal,
            parse_int=_integer,
            parse_constant=_reject_constant,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidSchema(f"The schema is not valid JSON: {error}") from None
    _require_nesting(value)
    return value


def dump(value: Json, *, sort_members: bool = False) -> str:
    """Return the JSON text of a value without spaces.

    Args:
        value: The value. Its nesting is at most `NESTING_MAX`.
        sort_members: Sort the members of all objects by name, in the order of UTF-16 code units
            (Java's order).
    """
    parts: list[str] = []
    _write(value, parts.append, sort_members)
    return "".join(parts)


def value_key(value: Json) -> str:
    """Return a text that is equal for equal values and only for these.

    Equality is that of JSON Schema: ``1`` equals ``1.0``, the order of members has no meaning, and
    ``true`` does not equal ``1``.
    """
    parts: list[str] = []
    _write_key(value, parts.append)
    return "".join(parts)


def _decimal(text: str) -> Decimal:
    _require_length(text)
    try:
        number = Decimal(text)
    except DecimalException:
        raise ValueError("the exponent of a number is too large") from None
    return number.copy_abs() if number.is_zero() else number


def _integer(text: str) -> int:
    _require_length(text)
    return int(text)


def _require_length(number: str) -> None:
    if len(number) > NUMBER_CHARACTERS_MAX:
        raise ValueError(f"a number is longer than {NUMBER_CHARACTERS_MAX} characters")


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _too_deep() -> InvalidSchema:
    return InvalidSchema(f"The schema is nested more than {NESTING_MAX} levels deep")


def _require_nesting(value: Json) -> None:
    pending: list[tuple[Json, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if not isinstance(item, (dict, list)):
            continue
        if depth > NESTING_MAX:
            raise _too_deep()
        children = item.values() if isinstance(item, dict) else item
        pending.extend((child, depth + 1) for child in children)


def _write(value: Json, write: Callable[[str], None], sort_members: bool) -> None:
    if isinstance(value, dict):
        separator = "{"
        for name in sorted(value, key=_utf16_order) if sort_members else value:
            write(f"{separator}{_quoted(name)}:")
            _write(value[name], write, sort_members)
            separator = ","
        write("}" if value else "{}")
    elif isinstance(value, list):
        separator = "["
        for item in value:
            write(separator)
            _write(item, write, sort_members)
            separator = ","
        write("]" if value else "[]")
    else:
        write(_scalar(value))


def _utf16_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def _scalar(value: str | int | Decimal | bool | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    return str(value)


def _quoted(text: str) -> str:
    """Quote a text. Jackson writes the digits of an escaped control character in upper case."""
    quoted = encode_basestring(text)
    if "\\u" not in quoted:
        return quoted
    return _ESCAPE.sub(_upper_digits, quoted)


def _upper_digits(escape: re.Match[str]) -> str:
    text = escape.group()
    return f"\\u{text[2:].upper()}" if text.startswith("\\u") else text


def _write_key(value: Json, write: Callable[[str], None]) -> None:
    if isinstance(value, dict):
        write("{")
        for name in sorted(value):
            write(f"{json.dumps(name)}:")
            _write_key(value[name], write)
            write(",")
        write("}")
    elif isinstance(value, list):
        write("[")
        for item in value:
            _write_key(item, write)
            write(",")
        write("]")
    elif isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        write(_number_key(value))
    else:
        write(json.dumps(value))


def _number_key(number: int | Decimal) -> str:
    """Return sign, significant digits and exponent, without a rounding to Decimal's context."""
    sign, digits, exponent = Decimal(number).as_tuple()
    significant = "".join(map(str, digits)).lstrip("0")
    stripped = significant.rstrip("0")
    if not stripped:
        return "0"
    assert isinstance(exponent, int)
    return f"{'-' if sign else ''}{stripped}e{exponent + len(significant) - len(stripped)}"
