"""Random ids from the operating system.

The modules `uuid` and `secrets` offer the same functions. Importing them loads `platform`, `hmac`
and `hashlib`, which takes three milliseconds of a broker's start.
"""

from __future__ import annotations

import os
import random

from odradek.ids import Uuid, uuid_to_string

_system = random.SystemRandom()


def random_uuid() -> Uuid:
    """Return a random UUID, version 4 (RFC 9562).

    As in Kafka, its text never begins with a dash, because it may be an argument of a command.
    """
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        candidate = Uuid(bytes(raw))
        if not uuid_to_string(candidate).startswith("-"):
            return candidate


def random_between(low: int, high: int) -> int:
    """Return a random number from `low` to `high`, both included."""
    return _system.randint(low, high)
