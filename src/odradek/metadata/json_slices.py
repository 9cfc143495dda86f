"""Decoding of long JSON documents in time slices.

`json.loads` holds the interpreter lock until it returns: 6 to 16 ms for the node of a topic with
10,000 partitions, also on a thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from itertools import count
from typing import Any

from odradek.slicing import ELEMENTS_PER_SLICE

_WHITESPACE = re.compile(r"[ \t\n\r]*")
_SLICED_LEVELS = 2

_raw_decode = json.JSONDecoder().raw_decode


def decoding_json(data: bytes) -> Generator[None, None, Any]:
    """Return the value of `json.loads(data)`, or raise its error.

    Members of the outermost object, and those of objects in it, are decoded one after the other.
    A time slice ends after `ELEMENTS_PER_SLICE` of them. Other values are decoded in one step.
    """
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    try:
        value, end = yield from _decoding(text, _skip(text, 0), _SLICED_LEVELS, count(1))
        if _skip(text, end) == len(text):
            return value
    except ValueError:
        pass
    return json.loads(data)  # raises the error with its usual message


def _skip(text: str, position: int) -> int:
    """Return the position after the white space."""
    return _WHITESPACE.match(text, position).end()  # type: ignore[union-attr]


def _decoding(
    text: str, position: int, levels: int, members: Iterator[int]
) -> Generator[None, None, tuple[Any, int]]:
    """Decode the value at a position. Return it with the position of its end.

    Args:
        text: The document.
        position: The first character of the value.
        levels: Levels of objects whose members are decoded one after the other.
        members: Counts the members that were decoded.

    Raises:
        ValueError: The value is not valid.
    """
    if not levels or not text.startswith("{", position):
        return _raw_decode(text, position)
    found: dict[str, Any] = {}
    position = _skip(text, position + 1)
    if text.startswith("}", position):
        return found, position + 1
    while text.startswith('"', position):
        name, position = _raw_decode(text, position)
        position = _skip(text, position)
        if not text.startswith(":", position):
            break
        position = _skip(text, position + 1)
        found[name], position = yield from _decoding(text, position, levels - 1, members)
        if not next(members) % ELEMENTS_PER_SLICE:
            yield
        position = _skip(text, position)
        if text.startswith("}", position):
            return found, position + 1
        if not text.startswith(",", position):
            break
        position = _skip(text, position + 1)
    raise ValueError("the object is not valid JSON")
