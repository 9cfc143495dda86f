"""JSON values, and typed reads of the fields of a JSON object. Pure.

Requests and records are read alike: an unknown field is never an error, null is an absent field,
and a number or a boolean is accepted where a string is expected, as Jackson does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

JsonValue: TypeAlias = (
    "Mapping[str, JsonValue] | Sequence[JsonValue] | str | int | float | bool | None"
)
"""Any value of JSON. Arrays are lists, but a string is a value of its own."""

JsonObject: TypeAlias = "dict[str, JsonValue]"

INTEGER_MAX = 2**31 - 1
"""The largest id and version: both are Java's int."""


class WrongType(Exception):
    """A field has a value of a wrong type. The message names the field."""


class JsonFields:
    """The fields of a JSON object."""

    def __init__(self, value: JsonValue, what: str) -> None:
        """Read a JSON object.

        Args:
            value: The value that must be an object.
            what: Its name in error messages, such as ``metadata``.

        Raises:
            WrongType: The value is not an object.
        """
        if not isinstance(value, Mapping):
            raise WrongType(f"{what} must be a JSON object")
        self._fields = value
        self._what = what

    def __contains__(self, name: str) -> bool:
        """Whether the field exists, also with the value null."""
        return name in self._fields

    def value(self, name: str) -> JsonValue:
        """Return the value of a field, or None if it is absent."""
        return self._fields.get(name)

    def text(self, name: str) -> str | None:
        """Return a string field."""
        value = self._fields.get(name)
        return None if value is None else self._text(value, name)

    def integer(self, name: str) -> int | None:
        """Return an integer field between -2^31 and 2^31-1."""
        value = self._fields.get(name)
        if value is None or value == "":
            return None
        number = _whole_number(value)
        if number is None or not -INTEGER_MAX - 1 <= number <= INTEGER_MAX:
            raise self._wrong(name, "a 32-bit integer")
        return number

    def boolean(self, name: str) -> bool | None:
        """Return a boolean field."""
        value = self._fields.get(name)
        if value is None or isinstance(value, bool):
            return value
        if value in ("true", "True", "TRUE"):
            return True
        if value in ("false", "False", "FALSE"):
            return False
        raise self._wrong(name, "a boolean")

    def elements(self, name: str) -> Sequence[JsonValue]:
        """Return the elements of an array field, or none if it is absent."""
        value = self._fields.get(name)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self._wrong(name, "an array")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the strings of an array field, without null."""
        return tuple(self._text(e, name) for e in self.elements(name) if e is not None)

    def entries(self, name: str) -> Iterable[tuple[str, JsonValue]]:
        """Return the entries of an object field, or none if it is absent."""
        value = self._fields.get(name)
        if value is None:
            return ()
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object")
        return ((self._text(key, name), element) for key, element in value.items())

    def text_entries(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the entries of an object field of strings, sorted by key, without null."""
        return tuple(
            sorted(
                (key, self._text(value, name))
                for key, value in self.entries(name)
                if value is not None
            )
        )

    def unknown(self, known: frozenset[str]) -> JsonObject:
        """Return the fields whose names are not in `known`."""
        return {name: value for name, value in self._fields.items() if name not in known}

    def _text(self, value: JsonValue, name: str) -> str:
        if isinstance(value, str):
            text = value
        elif isinstance(value, (bool, int, float)):
            text = json.dumps(value)
        else:
            raise self._wrong(name, "a string")
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise WrongType(f"{self._what}.{name} contains an unpaired surrogate")
        return text

    def _wrong(self, name: str, expected: str) -> WrongType:
        return WrongType(f"{self._what}.{name} must be {expected}")


def encode_json(value: JsonValue) -> bytes:
    """Return the UTF-8 text of a value without spaces, as Jackson writes it.

    Half a surrogate pair has no UTF-8 form. A value with one is escaped.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _whole_number(value: JsonValue) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= len(str(INTEGER_MAX)):
            return int(value)
    return None
