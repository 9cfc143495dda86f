"""Writes strings, bytes and floating-point numbers as literals of the .proto language. Pure.

Each literal is parsed by protoc to the same value again.
"""

from __future__ import annotations

import math
import struct

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
}

_FLOAT_DIGITS = range(6, 10)
"""Numbers of decimal digits to try for a value of 32 bits. Nine are always enough."""


def quoted(text: str) -> str:
    """Return a string literal. Characters outside of ASCII stay as they are."""
    return '"' + "".join(_escaped(each) for each in text) + '"'


def quoted_bytes(value: bytes) -> str:
    """Return a literal for bytes: all but printable ASCII characters in octal."""
    parts = (_escaped(chr(each)) if each < 128 else f"\\{each:03o}" for each in value)
    return '"' + "".join(parts) + '"'


def double(value: float) -> str:
    """Return the shortest literal of a 64-bit floating-point number."""
    return repr(value) if math.isfinite(value) else _not_finite(value)


def single(value: float) -> str:
    """Return a short literal of a number that a 32-bit floating-point number holds."""
    if not math.isfinite(value):
        return _not_finite(value)
    for digits in _FLOAT_DIGITS:
        text = f"{value:.{digits}g}"
        if _rounded(float(text)) == value:
            break
    return text


def _rounded(value: float) -> float:
    """Return the nearest 32-bit value, or an infinity."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(rounded)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def _escaped(character: str) -> str:
    escape = _ESCAPES.get(character)
    if escape is not None:
        return escape
    if character < " " or character == "\x7f":
        return f"\\{ord(character):03o}"
    return character
