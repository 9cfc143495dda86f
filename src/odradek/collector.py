"""Tuning of the interpreter's garbage collector for work that creates very many objects.

A full collection visits all objects, and the process stops for that time.

* A long request creates a million objects, none of which is garbage before its end. Full
  collections are postponed until then.
* The imports of a program create objects that stay. No collection runs until they have ended.
* A broker with 10,000 partitions has 380,000 objects, which live for days. `Collector` moves them
  out of the generations that a full collection visits.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COLLECTIONS_POSTPONED = 2_000
"""Collections of the middle generation without a full collection, while long work is done.

They correspond to some ten million new objects, ten times as many as the longest request creates.
"""

YOUNG_OBJECTS = 200
"""New objects, less freed ones, before a collection of the young generation, with a `Collector`.

Where as many old objects are freed as new ones are created, the difference is rarely large. With
the interpreter's 700, a collection then visited up to 13,000 young objects. Long work does both, so
each of its time slices ends with a collection, too (`slice_ended`).
"""

YOUNG_COLLECTIONS = 5
"""Collections of the young generation before a `Collector` runs one of the middle generation.

A collection of the middle generation then visits some 1,200 objects, and the objects that they
refer to. It takes one to two milliseconds.
"""

YOUNG_COLLECTIONS_MAX = 50
"""Collections of the young generation before the interpreter runs one of the middle generation,
with a `Collector`. This happens in a time slice that is far too long.
"""

OBJECTS_KEPT_MAX = 2_000
"""Objects in the oldest generation, above which a `Collector` runs a full collection."""

OBJECTS_COLLECTED_MAX = 4_000
"""Largest number of objects that a longer collection of a `Collector` visits.

A collection takes 0.1 us for each object, 0.3 us with cold caches, and 0.7 us on a machine with
very much other work.
"""

OBJECTS_LISTED_MAX = 20_000
"""Largest number of objects that a `Collector` counts. It takes 0.04 us for each object.

Where more objects may be in a generation, they are frozen without a count.
"""

OBJECTS_FROZEN_MIN = OBJECTS_KEPT_MAX // 2
"""Objects that have to survive a full collection before a `Collector` freezes them."""

_lock = threading.Lock()
"""Guards the thresholds: the process has one collector, but may run several brokers on threads."""
_usual_thresholds = (0, 0, 0)
_postponing = 0
_running: Collector | None = None
"""The collector of the process, between its start and its stop."""


def _change_usual_thresholds(thresholds: tuple[int, int, int]) -> tuple[int, int, int]:
    """Set the thresholds of the three generations, and return the previous ones.

    While full collections are postponed, the third one applies afterwards.
    """
    global _usual_thresholds
    with _lock:
        previous = _usual_thresholds if _postponing else gc.get_threshold()
        _usual_thresholds = thresholds
        if _postponing:
            thresholds = (*thresholds[:2], COLLECTIONS_POSTPONED)
        gc.set_threshold(*thresholds)
    return previous


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


def slice_ended() -> None:
    """Collect the young generation at the end of a time slice, with a `Collector`.

    The young generation then has at most the objects that one slice of the work creates. An empty
    one takes 3 us.
    """
    if _running is not None:
        _running.collect_young()


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


def break_cycle(transport: object) -> None:
    """Break the reference cycle of asyncio's transport of a socket, whose connection was lost.

    The transport holds its own method that reads, and never uses it again. A transport of uvloop
    has no such cycle.
    """
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None


def middle_objects() -> int:
    """Return the number of objects in the middle generation."""
    return len(gc.get_objects(generation=1))


def old_objects() -> int:
    """Return the number of objects in the oldest generation. Frozen objects are in none."""
    return len(gc.get_objects(generation=2))


class Collector:
    """Runs the longer collections of a broker's process, and freezes the objects that survive.

    Collections of the middle generation and full ones run in time slices of their own, because they
    would make other slices too long. A full collection follows when one of the middle generation
    has left more than `OBJECTS_KEPT_MAX` objects. It does not visit a frozen object. So each one
    visits few objects, however many partitions, images and fetch sessions the broker has.

    Only the process of one broker has a `Collector`. In any other process it would freeze the
    objects of the caller and of other brokers, too.

    The interpreter has no counters of the objects in its generations, and lists them instead. So
    the collector keeps upper bounds: the sizes of the young generations that were promoted. Objects
    that have been freed in the meantime are included.

    The reference count of a frozen object frees it as before, but its garbage cycles are never
    freed. A deleted partition and a closed connection are therefore in no reference cycle. Objects
    that are in a cycle, and are alive by chance, may stay.
    """

    def __init__(self) -> None:
        self._call_soon: Callable[[Callable[[], None]], object] | None = None
        self._is_scheduled = False
        self._young_collections = 0
        self._is_slice_end = False
        # Objects that collections at the end of slices have visited, and that are not counted yet.
        self._slice_objects = 0
        # Upper bounds of the numbers of objects in the middle and in the oldest generation.
        self._middle_max = 0
        self._old_max = 0
        self._previous = (0, 0, 0)

    def start(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Run the longer collections from now on.

        Args:
            call_soon: Schedules a call on the event loop, from any thread.
        """
        global _running
        self._call_soon = call_soon
        _running = self
        self._middle_max, self._old_max = middle_objects(), old_objects()
        self._previous = _change_usual_thresholds(
            (YOUNG_OBJECTS, YOUNG_COLLECTIONS_MAX, COLLECTIONS_POSTPONED)
        )
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Leave all collections to the interpreter again."""
        global _running
        if self._call_soon is not None:
            self._call_soon = None
            _running = None
            gc.callbacks.remove(self._collected)
            _change_usual_thresholds(self._previous)

    def freeze_loaded(self) -> None:
        """Freeze the objects of a start that has loaded the logs. They include little garbage."""
        self._freeze()

    def collect_young(self) -> None:
        """Collect the young generation. See `slice_ended`."""
        self._is_slice_end = True
        gc.collect(0)
        self._is_slice_end = False

    def _freeze(self) -> None:
        gc.freeze()
        self._middle_max = self._old_max = 0

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Called by the interpreter before and after each collection, on the thread that caused it.

        It has to be short, and must not run a collection.
        """
        generation = info["generation"]
        if phase == "start":
            young = len(gc.get_objects(generation=0))
            self._middle_max += young
            if self._is_slice_end:
                self._slice_objects += young
            if generation > 0:
                self._old_max += self._middle_max
                self._middle_max = 0
        elif generation == 1:
            self._young_collections = 0
            self._schedule(self.check)
        elif generation == 0:
            if self._is_slice_end:
                if self._slice_objects < YOUNG_OBJECTS:
                    return
                self._slice_objects = 0
            self._young_collections += 1
            if self._young_collections >= YOUNG_COLLECTIONS:
                self._schedule(self._collect_middle)

    def _schedule(self, call: Callable[[], None]) -> None:
        if not self._is_scheduled:
            assert self._call_soon is not None, "the callback is removed when this is None"
            self._is_scheduled = True
            self._call_soon(call)

    def _collect_middle(self) -> None:
        self._is_scheduled = False
        if self._call_soon is None:
            return
        self._young_collections = 0
        if self._middle_max > OBJECTS_COLLECTED_MAX:
            if self._middle_max <= OBJECTS_LISTED_MAX:
                self._middle_max = middle_objects()
            if self._middle_max > OBJECTS_COLLECTED_MAX:
                self._freeze()
                return
        gc.collect(1)  # schedules a check

    def check(self) -> None:
        """Collect the garbage and freeze the objects that survive, if they are many."""
        self._is_scheduled = False
        if self._call_soon is None or _postponing:
            return  # the next collection of the middle generation schedules another check
        if OBJECTS_KEPT_MAX < self._old_max <= OBJECTS_LISTED_MAX:
            self._old_max = old_objects()
        if self._old_max <= OBJECTS_KEPT_MAX:
            return
        if self._old_max <= OBJECTS_COLLECTED_MAX:
            gc.collect()
            self._old_max = old_objects()
            if self._old_max < OBJECTS_FROZEN_MIN:
                return
        self._freeze()
