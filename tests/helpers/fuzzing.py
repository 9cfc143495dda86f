"""Time limit of fuzzers. A run is repeated with its seed, with a longer time if necessary."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import count

SECONDS_VARIABLE = "ODRADEK_FUZZ_S"


def rounds(seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2 ... for `seconds`, or for the seconds in ODRADEK_FUZZ_S."""
    end = time.monotonic() + float(os.environ.get(SECONDS_VARIABLE, seconds))
    for number in count():
        yield number
        if time.monotonic() >= end:
            return
