"""The comparison of strings, numbers, enumerations and constants. Pure.

``format`` is an annotation and is not compared, as in Confluent's registry.
"""

from __future__ import annotations

from decimal import Decimal, DecimalException

from odradek.registry.compatibility.json_differences import Findings, JsonDifferenceKind
from odradek.registry.compatibility.json_steps import compare_limit, compare_typed
from odradek.registry.schemas.json_model import (
    ConstForm,
    EnumForm,
    Number,
    NumberForm,
    StringForm,
    Whole,
)

_WHOLE_ORDER = (Whole.BY_NOTATION, Whole.BY_VALUE, Whole.ANY)
"""From the fewest to the most numbers."""


def compare_strings(found: Findings, writer: StringForm, reader: StringForm) -> None:
    """Compare the keywords of strings."""
    compare_typed(found, writer.typed, reader.typed)
    compare_limit(found, "maxLength", "MAX_LENGTH", writer.max_length, reader.max_length)
    compare_limit(found, "minLength", "MIN_LENGTH", writer.min_length, reader.min_length)
    if writer.pattern == reader.pattern:
        return
    if writer.pattern is None:
        found.add(JsonDifferenceKind.PATTERN_ADDED, "pattern")
    elif reader.pattern is None:
        found.add(JsonDifferenceKind.PATTERN_REMOVED, "pattern")
    else:
        found.add(JsonDifferenceKind.PATTERN_CHANGED, "pattern")


def compare_numbers(found: Findings, writer: NumberForm, reader: NumberForm) -> None:
    """Compare the keywords of numbers."""
    compare_typed(found, writer.typed, reader.typed)
    compare_limit(found, "maximum", "MAXIMUM", writer.maximum, reader.maximum)
    compare_limit(found, "minimum", "MINIMUM", writer.minimum, reader.minimum)
    compare_limit(
        found,
        "exclusiveMaximum",
        "EXCLUSIVE_MAXIMUM",
        writer.exclusive_maximum,
        reader.exclusive_maximum,
    )
    compare_limit(
        found,
        "exclusiveMinimum",
        "EXCLUSIVE_MINIMUM",
        writer.exclusive_minimum,
        reader.exclusive_minimum,
    )
    _compare_multiples(found, writer.multiple_of, reader.multiple_of)
    change = _WHOLE_ORDER.index(reader.whole) - _WHOLE_ORDER.index(writer.whole)
    if change > 0:
        found.add(JsonDifferenceKind.TYPE_EXTENDED)
    elif change < 0:
        found.add(JsonDifferenceKind.TYPE_NARROWED)


def compare_enumerations(found: Findings, writer: EnumForm, reader: EnumForm) -> None:
    """Compare the values of two enumerations."""
    if writer.keys == reader.keys:
        return
    if writer.keys < reader.keys:
        found.add(JsonDifferenceKind.ENUM_ARRAY_EXTENDED, "enum")
    elif writer.keys > reader.keys:
        found.add(JsonDifferenceKind.ENUM_ARRAY_NARROWED, "enum")
    else:
        found.add(JsonDifferenceKind.ENUM_ARRAY_CHANGED, "enum")


def compare_constants(found: Findings, writer: ConstForm, reader: ConstForm) -> None:
    """Compare two constants."""
    if writer.key != reader.key:
        found.add(JsonDifferenceKind.ENUM_ARRAY_CHANGED, "const")


def _compare_multiples(found: Findings, writer: Number | None, reader: Number | None) -> None:
    if writer == reader:
        return
    if writer is None:
        found.add(JsonDifferenceKind.MULTIPLE_OF_ADDED, "multipleOf")
    elif reader is None:
        found.add(JsonDifferenceKind.MULTIPLE_OF_REMOVED, "multipleOf")
    elif _is_multiple(reader, writer):
        found.add(JsonDifferenceKind.MULTIPLE_OF_EXPANDED, "multipleOf")
    elif _is_multiple(writer, reader):
        found.add(JsonDifferenceKind.MULTIPLE_OF_REDUCED, "multipleOf")
    else:
        found.add(JsonDifferenceKind.MULTIPLE_OF_CHANGED, "multipleOf")


def _is_multiple(number: Number, divisor: Number) -> bool:
    """Whether a number is a multiple. False if the quotient has too many digits to find out."""
    try:
        return Decimal(number) % Decimal(divisor) == 0
    except DecimalException:
        return False
