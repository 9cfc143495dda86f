"""Which default values a field may have, by the rules of Java's `Schema.isValidDefault`. Pure.

The default of a union may be a value of any branch. The symbol of an enum and the length of a fixed
are not checked, as in Java.
"""

from __future__ import annotations

import struct

from odradek.registry.recursion import Recursion, run
from odradek.registry.schemas.avro_json import Json, java_order
from odradek.registry.schemas.avro_types import (
    AvroArray,
    AvroKind,
    AvroMap,
    AvroRecord,
    AvroReference,
    AvroType,
    AvroUnion,
    defined,
)
from odradek.registry.schemas.parsed import InvalidSchema

COMPARISONS_MAX = 1_000_000
"""Maximum number of comparisons of a value with a type for all defaults of a schema."""

_INT = range(-(1 << 31), 1 << 31)
_LONG = range(-(1 << 63), 1 << 63)
_TEXTUAL = {AvroKind.STRING, AvroKind.BYTES, AvroKind.ENUM, AvroKind.FIXED}
_FLOATING = {AvroKind.FLOAT, AvroKind.DOUBLE}
_FLOAT_DIGITS_MAX = 9
"""A float of 32 bits is identified by so many significant digits."""


class DefaultValidator:
    """Validates the defaults of one schema.

    A type whose name is not yet defined counts as a record without fields, as in Java. So a default
    is validated where it is read, and again when all names are defined.
    """

    def __init__(self) -> None:
        self._comparisons = 0
        self._records: dict[tuple[int, int], bool] = {}

    def is_valid(self, type_: AvroType, value: Json) -> bool:
        """Return whether a field of this type may have this default.

        Raises:
            InvalidSchema: All defaults together need more than `COMPARISONS_MAX` comparisons, or an
                object is compared with a record whose fields have not been read.
        """
        return run(self._is_valid(type_, value))

    def _is_valid(self, used: AvroType, value: Json) -> Recursion[bool]:
        self._comparisons += 1
        if self._comparisons > COMPARISONS_MAX:
            raise InvalidSchema(f"The defaults need more than {COMPARISONS_MAX} comparisons.")
        if isinstance(used, AvroReference) and used.target is None:
            return isinstance(value, dict)
        type_ = defined(used)
        valid: bool
        if isinstance(type_, AvroUnion):
            valid = yield self._is_any_branch(type_, value)
        elif isinstance(type_, AvroArray):
            valid = yield self._are_valid(type_.items, value if isinstance(value, list) else None)
        elif isinstance(type_, AvroMap):
            values = list(value.values()) if isinstance(value, dict) else None
            valid = yield self._are_valid(type_.values, values)
        elif isinstance(type_, AvroRecord):
            valid = yield self._is_valid_record(type_, value)
        else:
            valid = _is_scalar(type_.kind, value)
        return valid

    def _is_any_branch(self, union: AvroUnion, value: Json) -> Recursion[bool]:
        for branch in union.branches:
            if (yield self._is_valid(branch, value)):
                return True
        return False

    def _are_valid(self, type_: AvroType, values: list[Json] | None) -> Recursion[bool]:
        if values is None:
            return False
        for value in values:
            if not (yield self._is_valid(type_, value)):
                return False
        return True

    def _is_valid_record(self, record: AvroRecord, value: Json) -> Recursion[bool]:
        if not isinstance(value, dict):
            return False
        if record.is_open:
            raise InvalidSchema(f"The record {record.name.full} is inside of its own default.")
        key = (id(record), id(value))
        if key in self._records:
            return self._records[key]
        # A default that needs itself, through the defaults of its fields, has no end.
        self._records[key] = False
        for each in record.fields:
            if each.name not in value and not each.has_default:
                return False
            used = value.get(each.name, each.default)
            if not (yield self._is_valid(each.type, used)):
                return False
        self._records[key] = True
        return True


def normal_default(type_: AvroType, value: Json) -> Json:
    """Return the default value in the form that is equal for equal defaults.

    The members of objects are sorted, and a number for a float or a double becomes a float. A value
    that the type does not have is kept.
    """
    return run(_normal(type_, value))


def sorted_members(value: Json) -> Json:
    """Return a JSON value with the members of all objects sorted by name."""
    return run(_normal(None, value))


def _normal(used: AvroType | None, value: Json) -> Recursion[Json]:
    type_ = None if used is None else defined(used)
    if isinstance(type_, AvroUnion):
        branch = _branch_of(type_, value)
        type_ = None if branch is None else defined(branch)
    if isinstance(value, dict):
        members: dict[str, Json] = {}
        for name in sorted(value, key=java_order):
            members[name] = yield _normal(_member_type(type_, name), value[name])
        return members
    if isinstance(value, list):
        items: list[Json] = []
        for each in value:
            item: Json = yield _normal(type_.items if isinstance(type_, AvroArray) else None, each)
            items.append(item)
        return items
    if type_ is not None and type_.kind in _FLOATING and _is_number(value):
        return _floating(type_.kind, value)
    return value


def _branch_of(union: AvroUnion, value: Json) -> AvroType | None:
    validator = DefaultValidator()
    return next((each for each in union.branches if validator.is_valid(each, value)), None)


def _member_type(type_: AvroType | None, name: str) -> AvroType | None:
    if isinstance(type_, AvroMap):
        return type_.values
    if isinstance(type_, AvroRecord):
        found = type_.by_name.get(name)
        return None if found is None else found.type
    return None


def _floating(kind: AvroKind, value: Json) -> Json:
    assert isinstance(value, int | float)
    try:
        number = float(value)
        if kind is AvroKind.DOUBLE:
            return number
        narrow = _as_float(number)
    except OverflowError:
        return value
    for digits in range(1, _FLOAT_DIGITS_MAX):
        shortest = float(f"{narrow:.{digits}g}")
        if _as_float(shortest) == narrow:
            return shortest
    return float(f"{narrow:.{_FLOAT_DIGITS_MAX}g}")


def _as_float(number: float) -> float:
    value: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return value


def _is_scalar(kind: AvroKind, value: Json) -> bool:
    if kind in _TEXTUAL:
        return isinstance(value, str)
    if kind in _FLOATING:
        return _is_number(value)
    if kind is AvroKind.BOOLEAN:
        return isinstance(value, bool)
    if kind is AvroKind.NULL:
        return value is None
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and value in (_INT if kind is AvroKind.INT else _LONG)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
