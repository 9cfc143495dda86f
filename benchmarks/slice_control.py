"""The noise of the machine in CPU times of callbacks: callbacks of constant work.

    python -m benchmarks.slice_control SECONDS

Each callback reads objects in random order, and takes about a millisecond. `measured` runs as
many processes as a cluster has brokers, and counts callbacks like `benchmarks.slice_recorder`. If a
callback of constant work takes more than 5 ms, the machine has delayed it: the host, another thread
of the same core, or caches that other processes have filled. The busy time of a callback is its
wall time less the waits for a processor (`benchmarks.run_queue`).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.run_queue import RunQueue, busy_ms
from benchmarks.slice_recorder import LIMIT_MS
from testkit.peer.artifacts import ROOT

OBJECTS = 200_000
CALLBACK_MS = 1.0
CALIBRATIONS = 200
SEED = 1
COUNTS = ("above", "busy_above", "wall_above")
LONGEST = ("longest_ms", "longest_busy_ms", "longest_wall_ms")
Noise = dict[str, Any]


def _objects() -> list[list[int]]:
    found = [[number] for number in range(OBJECTS)]
    random.Random(SEED).shuffle(found)
    return found


def _work(objects: list[list[int]], first: int, count: int) -> int:
    total = 0
    for each in objects[first : first + count]:
        total += each[0]
    return total


def _timed(objects: list[list[int]], first: int, count: int) -> float:
    began = time.thread_time()
    _work(objects, first, count)
    return (time.thread_time() - began) * 1000


class _Callbacks:
    """The times of callbacks of constant work."""

    def __init__(self, queue: RunQueue) -> None:
        self._queue = queue
        self.by_ms: Counter[int] = Counter()
        self.above = {"cpu": 0, "busy": 0, "wall": 0}
        self.longest_ms = {"cpu": 0.0, "busy": 0.0, "wall": 0.0}

    def measure(self, objects: list[list[int]], first: int, count: int) -> None:
        at = time.monotonic()
        before = self._queue.read()
        cpu_ms = _timed(objects, first, count)
        after = self._queue.read()
        wall_ms = (time.monotonic() - at) * 1000
        waited_ms = (after.waited_ns - before.waited_ns) / 1e6
        self.by_ms[int(cpu_ms)] += 1
        times = {"cpu": cpu_ms, "busy": busy_ms(cpu_ms, wall_ms, waited_ms), "wall": wall_ms}
        for name, taken_ms in times.items():
            self.above[name] += taken_ms > LIMIT_MS
            self.longest_ms[name] = max(self.longest_ms[name], taken_ms)


def calibrated(objects: list[list[int]]) -> int:
    """Return the number of objects that the median callback reads in `CALLBACK_MS`."""
    count = OBJECTS // CALIBRATIONS
    times = sorted(_timed(objects, number * count, count) for number in range(CALIBRATIONS))
    return min(OBJECTS // 2, max(1, round(count * CALLBACK_MS / times[CALIBRATIONS // 2])))


def run(seconds: float) -> Noise:
    """Run callbacks of constant work for so long, and count them by milliseconds of CPU time."""
    objects = _objects()
    count = calibrated(objects)
    callbacks = _Callbacks(RunQueue())
    first = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        callbacks.measure(objects, first, count)
        first = (first + count) % (OBJECTS - count)
    above, longest_ms = callbacks.above, callbacks.longest_ms
    return {
        "callbacks": callbacks.by_ms.total(),
        "above": above["cpu"],
        "longest_ms": round(longest_ms["cpu"], 2),
        "by_ms": {str(ms): number for ms, number in sorted(callbacks.by_ms.items())},
        "busy_above": above["busy"],
        "longest_busy_ms": round(longest_ms["busy"], 2),
        "wall_above": above["wall"],
        "longest_wall_ms": round(longest_ms["wall"], 2),
    }


def measured(processes: int, seconds: float) -> Noise:
    """Return the sum over `processes` that run `run` at the same time."""
    command = [sys.executable, "-m", "benchmarks.slice_control", str(seconds)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(processes)
    ]
    return summed([json.loads(each.communicate()[0]) for each in started])


def summed(runs: list[Noise]) -> Noise:
    """Return the counts of all runs, and the longest callback of any."""
    by_ms: Counter[str] = Counter()
    for each in runs:
        by_ms.update(each["by_ms"])
    return {
        "callbacks": sum(each["callbacks"] for each in runs),
        "by_ms": dict(sorted(by_ms.items(), key=lambda item: int(item[0]))),
        **{name: sum(each[name] for each in runs) for name in COUNTS},
        **{name: max(each[name] for each in runs) for name in LONGEST},
    }


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]))))
