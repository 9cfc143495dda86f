"""Java properties as ``java.util.Properties`` reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.properties import parse_properties
from odradek.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t = \t b ", {"a": "b "}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("# c\n! d\n  # e\n\na=1", {"a": "1"}),
        ("a=b#c", {"a": "b#c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x,\\\n   y", {"a": "x,y"}),
        ("a=x\\\n#y", {"a": "x#y"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\n\nb=y", {"a": "x", "b": "y"}),
        ("a=x\\", {"a": "x"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("p=C:\\\\logs\\ttab", {"p": "C:\\logs\ttab"}),
        ("p=\\q\\u00e9\\uD83D\\uDE00", {"p": "qé😀"}),
        ("\\#a=b", {"#a": "b"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_malformed_unicode_escape_is_invalid_config() -> None:
    with pytest.raises(KafkaError) as caught:
        parse_properties("a=\\u12g4")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@given(st.text(alphabet="ab=: \t\\\n\r#!u09", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_properties(text)
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_CONFIG


@given(st.dictionaries(st.text("ab.#=: \\\n\té", min_size=1), st.text("xy=: \\\n\t!é")))
def test_escaped_properties_read_back_as_written(values: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        special = {"\n": "\\n", "\t": "\\t", "é": "\\u00e9"}
        return "".join(special.get(c, f"\\{c}" if c in "#!=: \\" else c) for c in text)

    text = "".join(f"{escaped(key)} = {escaped(value)}\n" for key, value in values.items())
    assert parse_properties(text) == values
