"""Regular expressions of JSON Schemas."""

from __future__ import annotations

import re
from string import printable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.schemas.json_patterns import (
    EXPRESSION_CHARACTERS_MAX,
    exclude_each_other,
    matches,
    require_expression,
)
from odradek.registry.schemas.parsed import InvalidSchema

EXPRESSIONS = ["^a", "a$", "^[ab]+$", r"\d", r"^\w+\s", "a|b", "(?i)A", "^a{2,3}$", "x?y*"]
names = st.text(alphabet=printable + "é٣\x1c", max_size=8)


@given(st.sampled_from(EXPRESSIONS), names)
def test_known_match_equals_that_of_python(expression: str, name: str) -> None:
    found = matches(expression, name)
    if found is not None:
        assert found == (re.search(expression, name) is not None)
    else:
        assert not all(" " <= character <= "~" for character in name)


@pytest.mark.parametrize("expression", ["[[:alpha:]]", "a{,3}", "(?!a)", r"(a)\1", r"\p{IsGreek}"])
def test_match_is_unknown_where_dialects_differ(expression: str) -> None:
    assert matches(expression, "a") is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("^a_", "^b_", True),
        ("^a_", "^a_b", False),
        ("^a_b", "^a_", False),
        ("^ab?", "^ac", False),
        ("^ab+", "^ac", False),
        ("^abb*", "^ac", True),
        ("^a|b", "^c", False),
        ("a_", "^b_", False),
        ("^", "^b_", False),
        ("^a(b|c)", "^d", False),
        ("^a.*", "^b.*", True),
    ],
)
def test_literal_prefixes_exclude_each_other(first: str, second: str, expected: bool) -> None:
    assert exclude_each_other(first, second) is expected
    assert exclude_each_other(second, first) is expected


@given(st.sampled_from(["^a", "^ab", "^b_x", "^a?b", "^abc*", "^b{2}"]), names)
def test_excluded_expressions_share_no_name(first: str, name: str) -> None:
    for second in ("^a", "^ab", "^b_x", "^ac", "^bb"):
        if exclude_each_other(first, second):
            assert not (re.search(first, name) and re.search(second, name))


@pytest.mark.parametrize("expression", ["[", "(", "a**", "?", "(?P<n"])
def test_malformed_expression_is_invalid(expression: str) -> None:
    with pytest.raises(InvalidSchema, match="#/pattern: not a regular expression"):
        require_expression(expression, "#/pattern")


@pytest.mark.parametrize("expression", [r"^\p{L}+$", r"\p{IsGreek}", r"\cA", "(?<name>a)", "a++"])
def test_expression_of_another_dialect_is_valid(expression: str) -> None:
    require_expression(expression, "#/pattern")


def test_long_expression_is_invalid() -> None:
    require_expression("a" * EXPRESSION_CHARACTERS_MAX, "#")
    with pytest.raises(InvalidSchema, match="longer than"):
        require_expression("a" * (EXPRESSION_CHARACTERS_MAX + 1), "#")
