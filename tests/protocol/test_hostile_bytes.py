"""Framing and request decoding of every API and version, with bytes that hypothesis chooses.

Each frame begins as a request that Kafka's own classes wrote. Hypothesis chooses the mutations, and
shrinks a failure to the smallest such frame. Three properties hold for each frame. It decodes or
raises `MalformedMessage`, and no other error. Decoding allocates at most a few times the size of
the frame. The compiled decoder, its sliced variant and the slow decoder agree. The seed of the run
is hypothesis's.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from contextlib import suppress
from typing import Any

import hypothesis
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol import interpret
from odradek.protocol.codec import Message, decoder, decoding
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import frame_size, pack_size
from odradek.protocol.headers import parse_request_header, request_header
from odradek.protocol.registry import request_class
from odradek.protocol.wire import uvarint
from tests.protocol.building import plain, versions
from tests.protocol.golden import golden_messages

FRAMES = 1_000
FRAME_BYTES_MAX = 10_000
PEAK_BYTES_A_BYTE = 60
PEAK_BYTES_AT_LEAST = 20_000
"""Memory of a decoder's own stack frame, and of the exception with its traceback."""

MALFORMED = "malformed"
GOLDEN_REQUESTS = [
    (cls, version, body)
    for cls, entries in golden_messages().items()
    if cls.__name__.endswith("Request")
    for version, _full, body in entries
]

counts = st.one_of(
    st.integers(-3, 300), st.sampled_from([0x7FFF, 0x8000, 2**28, 2**31 - 1, -(2**31)])
)
lies = st.one_of(
    counts.map(lambda count: struct.pack(">h", (count + 2**15) % 2**16 - 2**15)),
    counts.map(lambda count: struct.pack(">i", count)),
    counts.map(lambda count: uvarint(abs(count) % 2**31)),
    st.sampled_from([b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x00", b"\x80" * 5]),
)
"""A length or a count, as int16, int32 or varint, that matches the following bytes only by chance.
"""


@st.composite
def broken(draw: st.DrawFn, data: bytes) -> bytes:
    """Return `data` with up to three mutations: overwrite, insert, omit, repeat or truncate."""
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 8))
        kind = draw(
            st.sampled_from(["lie", "lie instead", "bytes", "insert", "cut", "out", "again"])
        )
        new = b""
        if kind in ("lie", "lie instead"):
            new = draw(lies)
            size = len(new) if kind == "lie" else size
        elif kind in ("bytes", "insert"):
            new = draw(st.binary(max_size=16))
            size = len(new) if kind == "bytes" else 0
        elif kind == "cut":
            size = len(data) - at
        elif kind == "again":
            new = data[at : at + size] * 2
        data = data[:at] + new + data[at + size :]
    return data


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Return a frame: a size, and a request of some API and version.

    The mutations are behind its API and version, behind its header, or anywhere. One size in five
    is wrong.
    """
    cls, version, body = draw(st.sampled_from(GOLDEN_REQUESTS))
    header = request_header(cls.API_KEY, version, 7, "client")
    kept = draw(st.sampled_from([4, len(header), len(header), 0]))
    behind = (header + body)[kept:]
    is_noise = draw(st.integers(0, 9)) == 9
    request = (header + body)[:kept] + draw(st.binary(max_size=60) if is_noise else broken(behind))
    size = draw(counts) if draw(st.integers(0, 4)) == 4 else len(request)
    return pack_size(size) + request


def outcome(decode: Any) -> Any:
    """Return message and end position as text, because of NaN, or `MALFORMED`."""
    try:
        message, end = decode()
    except MalformedMessage:
        return MALFORMED
    return repr(plain(message)), end


def peak_bytes(decode: Any) -> int:
    """Return the peak of the memory that `decode` and other threads of this process allocate."""
    tracemalloc.start()
    try:
        with suppress(MalformedMessage):
            decode()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def decode_in_slices(cls: type[Message], version: int, view: memoryview, pos: int) -> Any:
    """Run the sliced decoder to completion, without other work between two slices."""
    decode = decoding(cls, version, view, pos)
    try:
        while True:
            next(decode)
    except StopIteration as end:
        return end.value


def read(frame: bytes) -> Any:
    """Read a frame as the broker does: size, header, body.

    Returns:
        The outcome of the body, or `MALFORMED` when it was not reached.
    """
    try:
        size = frame_size(frame, 0, FRAME_BYTES_MAX)
        assert 0 <= size <= FRAME_BYTES_MAX
        view = memoryview(frame)[4 : 4 + size]
        api_key, version, _, _, pos = parse_request_header(view)
    except MalformedMessage:
        return MALFORMED
    assert pos <= len(view)
    try:
        cls = request_class(api_key)
    except (ValueError, ModuleNotFoundError):
        return MALFORMED  # no such API, which the broker checks before it decodes
    if version not in versions(cls):
        return MALFORMED
    return read_body(cls, version, view, pos)


def read_body(cls: type[Message], version: int, view: memoryview, pos: int) -> Any:
    """Decode in each of the three ways, and assert that they agree and allocate little."""
    decode_one = decoder(cls, version)
    got = outcome(lambda: decode_one(view, pos))
    assert got == outcome(lambda: decode_in_slices(cls, version, view, pos))
    oracle = outcome(lambda: interpret.decode(cls, version, view[pos:]))
    assert got == (oracle if oracle == MALFORMED else (oracle[0], oracle[1] + pos))
    allowed = PEAK_BYTES_AT_LEAST + PEAK_BYTES_A_BYTE * len(view)
    assert any(peak_bytes(lambda: decode_one(view, pos)) <= allowed for _ in range(5))
    assert got == MALFORMED or got[1] <= len(view)
    return got


def test_a_broken_frame_is_malformed_or_a_request(seed: int) -> None:
    found = Counter[bool]()

    @hypothesis.seed(seed)
    @settings(max_examples=FRAMES, deadline=None, database=None)
    @given(frames())
    def holds(frame: bytes) -> None:
        found[read(frame) == MALFORMED] += 1

    holds()
    assert min(found[True], found[False]) > FRAMES // 20, found
