"""JSON as Java's Avro library reads and writes it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.schemas.avro_json import double_text, dump, load, shown
from odradek.registry.schemas.parsed import InvalidSchema

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(VALUES)
def test_written_values_are_read_back(value: Any) -> None:
    assert load(dump(value)) == value
    assert json.loads(dump(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_read_back(value: float) -> None:
    assert json.loads(double_text(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (100.0, "100.0"),
        (123.456, "123.456"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9_999_999.0, "9999999.0"),
        (10_000_000.0, "1.0E7"),
        (12_345_678.9, "1.23456789E7"),
        (1e300, "1.0E300"),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
        (math.nan, '"NaN"'),
    ],
)
def test_doubles_are_written_as_in_java(value: float, text: str) -> None:
    assert double_text(value) == text


def test_strings_are_escaped_as_by_jackson() -> None:
    assert dump('"\\/\b\t\n\f\r\x00\x1f\x7fé\u2028') == (
        '"\\"\\\\/\\b\\t\\n\\f\\r\\u0000\\u001F\x7fé\u2028"'
    )


@pytest.mark.parametrize(
    "text",
    [
        '/* a */ {"a": 1} ',
        '{"a": /* "b */ 1}',
        '// "\n{"a": 1}',
        '{"a":\n// {\n1}',
    ],
)
def test_comments_are_ignored(text: str) -> None:
    assert load(text) == {"a": 1}


def test_a_string_may_look_like_a_comment() -> None:
    assert load('{"a//b": "/* c \\" */" /* d */}') == {"a//b": '/* c " */'}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "nul",
        "NaN",
        "-Infinity",
        "1 2",
        '"\t"',
        "/* a",
        '// "a"',
        '"a // b',
        "'a'",
        "1 // a",
    ],
)
def test_other_texts_are_invalid(text: str) -> None:
    with pytest.raises(InvalidSchema):
        load(text)


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 200_000, "/*/" * 300_000])
def test_hostile_texts_are_rejected_in_linear_time(text: str) -> None:
    with pytest.raises(InvalidSchema):
        load(text)


def test_numbers_of_any_length_are_bounded() -> None:
    assert load("9" * 100) == int("9" * 100)
    with pytest.raises(InvalidSchema):
        load("9" * 100_000)


def test_deep_values_are_written() -> None:
    value: Any = 1
    for _ in range(10_000):
        value = [value]
    assert dump(value) == "[" * 10_000 + "1" + "]" * 10_000


def test_a_long_value_is_truncated_in_messages() -> None:
    assert shown("x" * 1_000).endswith("x...")
    assert len(shown("x" * 1_000)) < 200
