"""Run `odradek serve` with a recorder around each callback of its event loop.

    python -m benchmarks.slice_recorder FILE [--no-stacks] [--above=MS] -- OPTIONS OF SERVE

The recorder replaces `asyncio.Handle._run`, so the broker runs on asyncio's event loop. uvloop's
callbacks are not Python objects and cannot be wrapped. `benchmarks.time_slices` starts the broker.

CPU times are those of the loop's thread. Each line of FILE is one of these JSON
objects. `at` is a time of the system's monotonic clock in seconds.

    {"at": 12.5, "callbacks": 80, "cpu_ms": 0.9, "wall_ms": 1.1, "by_ms": {"0": 79, "1": 1},
     "busy_above": 0, "longest_busy_ms": [0.9, 1.1], "wall_above": 0, "longest_wall_ms": 1.3}
    {"at": 12.6, "cpu_ms": 7.1, "wall_ms": 7.5, "busy_ms": 7.2, "waited_ms": 0.3, "scheduled": 1,
     "callback": "task Connection.run",
     "stack": ["odradek.log.manager.LogManager.create:90", ...], "samples": [2, 3],
     "collections": [[2, 1.5, 0, 9000]], "modules": 0}

The first kind counts the callbacks that began in a tenth of a second, and has the longest callback
of at most `LIMIT_MS` of CPU time, and its wall time. `by_ms` counts them by whole milliseconds of
CPU time. `busy` is the wall time less the time in which the thread was ready and waited for a
processor (`benchmarks.run_queue`), so it includes blocking calls. `busy_above` and `wall_above`
count the callbacks above `LIMIT_MS` in these two times.

The second kind is one callback above `LIMIT_MS` of CPU time or busy time, or above another limit
with `--above`. `scheduled` is the number of times that a processor was given to the thread. Its
`stack` begins with the innermost function, which 2 of 3 samples have in common. `collections` are
garbage collections on the loop's thread: generation, CPU time, number of objects that were freed,
and number of objects in the young generation before. `modules` is the number of modules that were
imported in the same time, by any thread.

A timer samples the stack. It starts when a callback has run for `SAMPLED_AFTER_S`, so that shorter
callbacks are not interrupted. A sample takes some 10 us.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import gc
import json
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from benchmarks.run_queue import RunQueue, busy_ms

LIMIT_MS = 5.0
BUCKET_S = 0.1
SAMPLED_AFTER_S = 0.004
SAMPLED_SHARE = 0.8
"""Share of the limit of `--above` after which the samples begin."""
SAMPLE_EACH_S = 0.001
STACK_DEPTH = 10
COROUTINES_DEPTH = 6

Frame = tuple[str, str, int]
"""Module, qualified name of the function, line."""


class Bucket:
    """The callbacks that began in a tenth of a second."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.callbacks = 0
        self.by_ms: Counter[int] = Counter()
        self.longest_ms = (0.0, 0.0)
        self.busy_above = 0
        self.longest_busy_ms = (0.0, 0.0)
        self.wall_above = 0
        self.longest_wall_ms = 0.0

    def add(self, cpu_ms: float, wall_ms: float, busy_ms: float) -> None:
        self.callbacks += 1
        self.by_ms[int(cpu_ms)] += 1
        if self.longest_ms[0] < cpu_ms <= LIMIT_MS:
            self.longest_ms = (cpu_ms, wall_ms)
        self.busy_above += busy_ms > LIMIT_MS
        if busy_ms > self.longest_busy_ms[0]:
            self.longest_busy_ms = (busy_ms, wall_ms)
        self.wall_above += wall_ms > LIMIT_MS
        self.longest_wall_ms = max(self.longest_wall_ms, wall_ms)

    def line(self) -> dict[str, Any]:
        cpu_ms, wall_ms = self.longest_ms
        return {
            "at": round(self.at, 3),
            "callbacks": self.callbacks,
            "cpu_ms": round(cpu_ms, 2),
            "wall_ms": round(wall_ms, 2),
            "by_ms": {str(ms): count for ms, count in sorted(self.by_ms.items())},
            "busy_above": self.busy_above,
            "longest_busy_ms": [round(ms, 2) for ms in self.longest_busy_ms],
            "wall_above": self.wall_above,
            "longest_wall_ms": round(self.longest_wall_ms, 2),
        }


class Recorder:
    """Measures callbacks on the thread that creates it, which becomes the loop's thread."""

    def __init__(
        self,
        output: TextIO,
        *,
        stacks: bool,
        above_ms: float = LIMIT_MS,
        queue: RunQueue | None = None,
    ) -> None:
        self._output = output
        self._stacks = stacks
        self._above_ms = above_ms
        self._sampled_after_s = min(SAMPLED_AFTER_S, SAMPLED_SHARE * above_ms / 1000)
        self._queue = queue or RunQueue()
        self._thread = threading.get_ident()
        self._bucket = Bucket(time.monotonic())
        self._is_running = False
        self._samples: list[tuple[Frame, ...]] = []
        self._collections: list[tuple[int, float, int, int]] = []
        self._collection_began = 0.0
        self._young = 0

    def install(self) -> None:
        """Wrap the callbacks of all event loops of this process."""
        original, recorder = asyncio.events.Handle._run, self

        def run(handle: asyncio.events.Handle) -> None:
            if threading.get_ident() == recorder._thread:
                recorder.measure(handle, original)
            else:
                original(handle)

        asyncio.events.Handle._run = run  # type: ignore[assignment,method-assign]
        gc.callbacks.append(self._collected)
        if self._stacks:
            signal.signal(signal.SIGALRM, self._sample)

    def measure(self, handle: Any, original: Any) -> None:
        callback, modules = handle._callback, len(sys.modules)
        self._samples.clear()
        self._collections.clear()
        if self._stacks:
            signal.setitimer(signal.ITIMER_REAL, self._sampled_after_s, SAMPLE_EACH_S)
        self._is_running = True
        # The waits are read within the wall time, so it includes each of them.
        at = time.monotonic()
        before = self._queue.read()
        began = time.thread_time()
        try:
            original(handle)
        finally:
            cpu_ms = (time.thread_time() - began) * 1000
            self._is_running = False
            after = self._queue.read()
            wall_ms = (time.monotonic() - at) * 1000
            if self._stacks:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            if at - self._bucket.at >= BUCKET_S:
                if self._bucket.callbacks:
                    self._write(self._bucket.line())
                self._bucket = Bucket(at)
            waited_ms = (after.waited_ns - before.waited_ns) / 1e6
            busy = busy_ms(cpu_ms, wall_ms, waited_ms)
            self._bucket.add(cpu_ms, wall_ms, busy)
            if busy > self._above_ms:
                times = {
                    "at": round(at, 3),
                    "cpu_ms": round(cpu_ms, 2),
                    "wall_ms": round(wall_ms, 2),
                    "busy_ms": round(busy, 2),
                    "waited_ms": round(waited_ms, 2),
                    "scheduled": after.scheduled - before.scheduled,
                }
                self._write_long(times, callback, len(sys.modules) - modules)

    def _write_long(self, times: dict[str, float], callback: Any, modules: int) -> None:
        stack, found = common_stack(self._samples)
        self._write(
            {
                **times,
                "callback": callback_name(callback),
                "stack": [f"{module}.{name}:{line}" for module, name, line in stack],
                "samples": [found, len(self._samples)],
                "collections": list(self._collections),
                "modules": modules,
            }
        )

    def _write(self, line: dict[str, Any]) -> None:
        self._output.write(f"{json.dumps(line)}\n")

    def _sample(self, _: int, frame: FrameType | None) -> None:
        if self._is_running:
            self._samples.append(stack_of(frame))

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._young = len(gc.get_objects(generation=0))
            self._collection_began = time.thread_time()
        else:
            took_ms = (time.thread_time() - self._collection_began) * 1000
            self._collections.append(
                (info["generation"], round(took_ms, 2), info["collected"], self._young)
            )


def stack_of(frame: FrameType | None) -> tuple[Frame, ...]:
    """Return the functions of a callback, the innermost one first.

    There are none at the end of a callback, while objects are freed.
    """
    found: list[Frame] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "?"))
        if module in ("asyncio.events", __name__):
            break
        found.append((module, frame.f_code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def common_stack(samples: list[tuple[Frame, ...]]) -> tuple[tuple[Frame, ...], int]:
    """Return the innermost function that half of the samples have in common, with its callers.

    The number counts the samples with this stack. The lines are from the first sample.
    """
    found: tuple[Frame, ...] = ()
    sharing = [sample[::-1] for sample in samples]
    least = len(samples) / 2
    while True:
        depth = len(found)
        deeper = Counter(sample[depth][:2] for sample in sharing if len(sample) > depth)
        top, count = deeper.most_common(1)[0] if deeper else (None, 0)
        if not count or count < least:
            return found[: -STACK_DEPTH - 1 : -1], len(sharing)
        sharing = [each for each in sharing if len(each) > depth and each[depth][:2] == top]
        found = sharing[0][: depth + 1]


def callback_name(callback: Any) -> str:
    """Return the name of a callback: for a task those of its coroutines, the outermost first."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        names: list[str] = []
        coroutine: Any = owner.get_coro()
        while coroutine is not None and len(names) < COROUTINES_DEPTH:
            names.append(getattr(coroutine, "__qualname__", type(coroutine).__name__))
            coroutine = getattr(coroutine, "cr_await", None)
        return f"task {' > '.join(names)}"
    inner = getattr(callback, "func", callback)
    return str(getattr(inner, "__qualname__", type(inner).__name__))


def main(arguments: list[str]) -> None:
    own, options = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    # As in `odradek.cli.main`, before the imports below.
    from odradek.collector import disable_for_imports

    disable_for_imports()
    import odradek.broker.main
    from odradek.cli.main import main as run_command

    odradek.broker.main.loop_factory = lambda: None
    output = Path(own[0]).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 (until the end)
    limits = [float(each.partition("=")[2]) for each in own if each.startswith("--above=")]
    above_ms = limits[0] if limits else LIMIT_MS
    Recorder(output, stacks="--no-stacks" not in own, above_ms=above_ms).install()
    sys.argv = ["odradek", "serve", *options]
    run_command()


if __name__ == "__main__":
    main(sys.argv[1:])
