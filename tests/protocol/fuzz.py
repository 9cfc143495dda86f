"""A fuzzer for framing and decoding. It mutates golden bytes of Kafka's message classes.

    python -m tests.protocol.fuzz [--seed N] [--seconds S]

The property of each input: the compiled decoder and the slow one give the same message, or both
raise `MalformedMessage`, and no other error is raised. A failure prints the seed, the message and
the bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Any

from odradek.protocol import interpret
from odradek.protocol.codec import Message, decoder
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import frame_size
from odradek.protocol.headers import parse_request_header
from tests.protocol.building import plain
from tests.protocol.golden import golden_messages

WORDS = [
    b"\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x00",
    b"\xc3\x28",
    b"\xff",
    b"\x00",
    b"\x01",
]


@dataclass(frozen=True, slots=True)
class Case:
    """One input: the class and version that it is decoded as, and its bytes."""

    cls: type[Message]
    version: int
    data: bytes


def mutate(data: bytes, random: Random) -> bytes:
    """Break `data` in one to three places: flip a bit, overwrite, insert, cut or repeat."""
    broken = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(broken))
        word = random.choice(WORDS)
        match random.randrange(6):
            case 0 if at < len(broken):
                broken[at] ^= 1 << random.randrange(8)
            case 1:
                broken[at : at + len(word)] = word
            case 2:
                broken[at:at] = word
            case 3:
                del broken[at:]
            case 4:
                del broken[at : at + random.randint(1, 4)]
            case _:
                broken[at:at] = broken[at : at + random.randint(1, 20)]
    return bytes(broken)


def cases(random: Random) -> Iterator[Case]:
    """Yield an endless stream of inputs."""
    seeds = [
        Case(cls, version, data)
        for cls, entries in golden_messages().items()
        for version, _full, data in entries
    ]
    while True:
        case = random.choice(seeds)
        yield Case(case.cls, case.version, mutate(case.data, random))


def outcome(decode: Any) -> Any:
    """Return the message and position that `decode` returns, or that the input is malformed."""
    try:
        message, end = decode()
    except MalformedMessage:
        return "malformed"
    # Compared as text, because a float may be NaN, which is not equal to itself.
    return repr(plain(message)), end


def check(case: Case) -> bool:
    """Decode one input both ways. Return whether it was a message.

    Raises:
        AssertionError: The decoders differ.
    """
    view = memoryview(case.data)
    compiled = outcome(lambda: decoder(case.cls, case.version)(view, 0))
    oracle = outcome(lambda: interpret.decode(case.cls, case.version, view))
    assert compiled == oracle, f"{case.cls.SPEC} v{case.version} {case.data.hex()}"
    check_frame(case.data)
    return compiled != "malformed"


def check_frame(data: bytes) -> None:
    """Read the bytes as a frame and as a request header. No error but `MalformedMessage`."""
    try:
        if len(data) >= 4:
            assert 0 <= frame_size(data, 0, 1000) <= 1000
    except MalformedMessage:
        pass
    try:
        *_, pos = parse_request_header(memoryview(data))
        assert pos <= len(data)
    except MalformedMessage:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz framing and decoding.")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    print(f"fuzz: seed {options.seed}, {options.seconds} s", flush=True)
    end = time.monotonic() + options.seconds
    tried = accepted = 0
    for case in cases(Random(options.seed)):
        accepted += check(case)
        tried += 1
        if time.monotonic() >= end:
            break
    print(f"fuzz: {tried} inputs, {accepted} of them messages, no difference")


if __name__ == "__main__":
    main()
