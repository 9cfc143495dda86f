"""`Randomness` that a seed repeats."""

from __future__ import annotations

import random

from odradek.environment.randomness import version_4
from odradek.ids import Uuid


class SeededRandomness:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> Uuid:
        while True:
            candidate = version_4(self._random.randbytes(16))
            if candidate is not None:
                return candidate

    def between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)
