"""Tuning of the interpreter's garbage collector for work that creates very many objects.

A full collection visits all objects, and the process stops for that time. A long request creates a
million objects, none of which is garbage before its end.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COLLECTIONS_POSTPONED = 2_000
"""Collections of the middle generation without a full collection, while long work is done.

They correspond to some ten million new objects, ten times as many as the longest request creates.
"""

_lock = threading.Lock()
"""Guards the thresholds: the process has one collector, but may run several brokers on threads."""
_usual_thresholds = (0, 0, 0)
_postponing = 0


@contextmanager
def postponed_full_collections() -> Iterator[None]:
    """Postpone full collections in the block.

    Use it only for work that waits for nothing but its next time slice. Work that waits for other
    events may be in flight at all times, and would postpone full collections for ever.
    """
    global _postponing, _usual_thresholds
    with _lock:
        if not _postponing:
            _usual_thresholds = gc.get_threshold()
            gc.set_threshold(*_usual_thresholds[:2], COLLECTIONS_POSTPONED)
        _postponing += 1
    try:
        yield
    finally:
        with _lock:
            _postponing -= 1
            if not _postponing:
                gc.set_threshold(*_usual_thresholds)
