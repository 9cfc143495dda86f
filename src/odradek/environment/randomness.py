"""Randomness as a protocol, and random numbers from the operating system.

A broker draws ids and jitter from one `Randomness` only, so a simulator can repeat a run.

The modules `uuid` and `secrets` offer the same functions. Importing them loads `platform`, `hmac`
and `hashlib`, which takes three milliseconds of a broker's start.
"""

from __future__ import annotations

import os
import random
from typing import Protocol

from odradek.ids import Uuid, uuid_to_string

_system = random.SystemRandom()


class Randomness(Protocol):
    """A source of random ids and numbers. Used from any thread."""

    def uuid(self) -> Uuid:
        """Return a random UUID whose text does not begin with a dash: see `version_4`."""

    def between(self, low: int, high: int) -> int:
        """Return a random number from `low` to `high`, both included."""


class SystemRandomness:
    """Random numbers from the operating system."""

    __slots__ = ()

    def uuid(self) -> Uuid:
        while True:
            candidate = version_4(os.urandom(16))
            if candidate is not None:
                return candidate

    def between(self, low: int, high: int) -> int:
        return _system.randint(low, high)


def version_4(random_bytes: bytes) -> Uuid | None:
    """Return the UUID of version 4 (RFC 9562) with these 16 random bytes.

    As in Kafka, the text of an id never begins with a dash, because it may be an argument of a
    command. Return None if it would. The caller then draws again.
    """
    raw = bytearray(random_bytes)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    candidate = Uuid(bytes(raw))
    return None if uuid_to_string(candidate).startswith("-") else candidate


def uuid_to_hex(uuid: Uuid) -> str:
    """Return the text of RFC 9562, as ``java.util.UUID`` prints it: five groups of hex digits."""
    text = uuid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
