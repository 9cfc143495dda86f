"""JSON that is decoded in time slices: the same values and errors as `json.loads`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.metadata.json_slices import decoding_json
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)
objects = st.dictionaries(st.text(max_size=3), values)
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-32-be"]
FRAGMENTS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b" ", b"\t", b"\n", b"\0", b"1", b"\xff"]


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """JSON with white space anywhere, in any encoding, whose names may occur twice."""
    value = draw(objects | values)
    indent = draw(st.sampled_from([None, 0, 1, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n", "\t: ")]))
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        text = f'{{"a": {text}, "b": 1, "a": {{"c": {text}, "c": {text}}}}}'
    around = st.sampled_from(["", " ", "\n\t\r "])
    text = draw(around) + text + draw(around)
    return text.encode(draw(st.sampled_from(ENCODINGS)), "surrogatepass")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A document in which pieces were removed, inserted, or replaced."""
    data = draw(documents())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(start + 3, len(data))))
        data = data[:start] + draw(st.sampled_from([b"", *FRAGMENTS])) + data[end:]
    return data


def outcome(decode: Callable[[bytes], Any], data: bytes) -> str:
    """Return the value, or the error with its message. NaN equals NaN as text."""
    try:
        return repr(decode(data))
    except ValueError as error:
        return f"{type(error)} {error}"


def sliced(data: bytes) -> Any:
    return run_to_completion(decoding_json(data))


@given(documents() | mutated() | st.binary(max_size=20))
@example(b"")
@example(b"{")
@example(b'{"a"')
@example(b'{"a":')
@example(b'{"a":1')
@example(b'{"a":1,')
@example(b'{"a":1,}')
@example(b'{"a":1 "b":2}')
@example(b'{"a":{"b":1,},"c":2}')
@example(b'{"a":{"b" 1}}')
@example(b"{1:2}")
@example(b'{"a":1}}')
@example(b'{"a":1}\x0b')
@example(b'{"a":NaN,"b":{"c":-Infinity}}')
@example(b'{"a":%s}' % (b"1" * 5_000))
@example("\ufeff\ufeff{}".encode())
def test_value_and_error_are_those_of_json_loads(data: bytes) -> None:
    assert outcome(sliced, data) == outcome(json.loads, data)


@pytest.mark.parametrize("levels", [1, 2])
def test_members_are_decoded_in_time_slices(levels: int) -> None:
    members = {str(number): [number] for number in range(2 * ELEMENTS_PER_SLICE)}
    value = members if levels == 1 else {"before": 1, "members": members, "after": 2}
    work = decoding_json(json.dumps(value).encode())
    assert next(work) is None
    assert next(work) is None
    with pytest.raises(StopIteration) as ended:
        next(work)
    assert ended.value.value == value


def test_members_of_several_objects_share_the_time_slices() -> None:
    half = {str(number): number for number in range(ELEMENTS_PER_SLICE // 2)}
    work = decoding_json(json.dumps({"a": half, "b": half}).encode())
    assert next(work) is None
    with pytest.raises(StopIteration):
        next(work)
