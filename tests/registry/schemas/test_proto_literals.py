"""Literals of the .proto language."""

from __future__ import annotations

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from odradek.registry.schemas.proto_literals import double, quoted, quoted_bytes, single


def test_control_characters_and_quotes_are_escaped() -> None:
    assert quoted("a\n\t\"b'\\\x00\x7fé") == '"a\\n\\t\\"b\\\'\\\\\\000\\177é"'


def test_bytes_are_ascii() -> None:
    assert quoted_bytes(b'a"\xff\x00') == '"a\\"\\377\\000"'


def test_numbers_are_short() -> None:
    assert [single(each) for each in (0.0, 1.5, math.inf, -math.inf)] == ["0", "1.5", "inf", "-inf"]
    assert single(struct.unpack("<f", struct.pack("<f", 0.1))[0]) == "0.1"
    assert double(0.1) == "0.1"
    assert single(math.nan) == double(math.nan) == "nan"


@given(st.floats(width=32, allow_nan=False))
def test_a_literal_of_32_bits_has_the_same_value(value: float) -> None:
    text = float(single(value))
    if math.isfinite(text):
        try:
            text = struct.unpack("<f", struct.pack("<f", text))[0]
        except OverflowError:
            text = math.copysign(math.inf, text)
    assert text == value


@given(st.floats(allow_nan=False))
def test_a_literal_of_64_bits_has_the_same_value(value: float) -> None:
    assert float(double(value)) == value
