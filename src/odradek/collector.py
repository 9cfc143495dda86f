"""Tuning of the interpreter's garbage collector for work that makes very many objects.

A full collection looks at all objects and stops everything in the process for as long. A long
request makes a million objects, none of which is garbage before its end.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COLLECTIONS_POSTPONED = 2_000
"""Collections of the middle generation without a full one while long work is done: some ten million
new objects, ten times as many as the longest request makes.
"""

_lock = threading.Lock()
"""The collector belongs to the process, in which several brokers may run on threads of their own.
"""
_usual_thresholds = (0, 0, 0)
_postponing = 0


@contextmanager
def postponed_full_collections() -> Iterator[None]:
    """Postpone full collections in the block.

    Only for work that waits for nothing but its next time slice. Work that waits for other things
    may be in flight at all times.
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
