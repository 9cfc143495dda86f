"""Work of `odradek.offloading` in a test without an event loop."""

from __future__ import annotations

from typing import TypeVar

from odradek.offloading import Work

R = TypeVar("R")


def run_here(work: Work[R]) -> R:
    """Run the work to its end in this thread and return its value."""
    while True:
        try:
            step = next(work)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        if step is not None:
            step()
