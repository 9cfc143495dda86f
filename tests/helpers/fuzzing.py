"""Fuzzers are bounded by time; a run is repeated, for as long as it takes, with its seed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count

SECONDS_VARIABLE = "ODRADEK_FUZZ_S"


def rounds(seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2 ... until the time is over; ODRADEK_FUZZ_S replaces it for a longer run."""
    end = time.monotonic() + float(os.environ.get(SECONDS_VARIABLE, seconds))
    for number in count():
        yield number
        if time.monotonic() >= end:
            return
