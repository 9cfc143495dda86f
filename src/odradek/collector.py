"""Tuning of the interpreter's garbage collector for work that creates very many objects.

A full collection visits all objects, and the process stops for that time.

* A long request creates a million objects, none of which is garbage before its end. Full
  collections are postponed until then.
* The imports of a program create objects that stay. No collection runs until they have ended.
* 10,000 partitions have 340,000 objects, which live for days. `Collector` moves them out of the
  generations that a full collection visits.
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

PARTITIONS_FROZEN_TOGETHER = 200
"""New partitions after which the live objects are frozen.

The full collection before that visits the objects since the last one: 7,000 for so many partitions,
which takes one to three milliseconds.
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


def disable_for_imports() -> None:
    """Disable collections while a program imports its modules.

    A process that serves calls this first. Its imports create some 46,000 objects, nearly all of
    which stay, and the collections of that time take a tenth of the time of the start.
    """
    gc.disable()


def enable_after_imports() -> None:
    """Freeze the objects of the imported modules, and enable collections again."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


class Collector:
    """Freezes the objects of a broker's partitions: later full collections do not visit them.

    Only the process of one broker has a `Collector`. In any other process it would freeze the
    objects of the caller and of other brokers, too.

    The reference count of a frozen object frees it as before, but its garbage cycles are never
    freed. A deleted partition and a closed connection are therefore in no reference cycle. Objects
    that are in a cycle, and are alive by chance, may stay. The number of partitions limits how
    often that can happen: partitions that replace deleted ones are not frozen again.
    """

    def __init__(self) -> None:
        self._frozen = 0

    def freeze_loaded(self) -> None:
        """Freeze the objects of a start that has loaded the logs. They include little garbage."""
        gc.freeze()

    def is_due(self, partitions: int) -> bool:
        """Return whether a broker with so many partitions should freeze its objects."""
        self._frozen = min(self._frozen, partitions)
        return partitions - self._frozen >= PARTITIONS_FROZEN_TOGETHER

    def freeze(self, partitions: int) -> None:
        """Free the garbage, and freeze all objects of a broker with so many partitions."""
        gc.collect()
        gc.freeze()
        self._frozen = partitions
