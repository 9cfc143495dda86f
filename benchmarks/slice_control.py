"""The noise of the machine in CPU times of callbacks: callbacks of constant work.

    python -m benchmarks.slice_control SECONDS

Each callback reads objects in random order, and takes about a millisecond. `measured` runs as
many processes as a cluster has brokers, and counts callbacks like `benchmarks.slice_recorder`. If a
callback of constant work takes more than 5 ms, the machine has delayed it: the host, another thread
of the same core, or caches that other processes have filled.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.slice_recorder import LIMIT_MS
from testkit.peer.artifacts import ROOT

OBJECTS = 200_000
CALLBACK_MS = 1.0
CALIBRATIONS = 200
SEED = 1
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


def calibrated(objects: list[list[int]]) -> int:
    """Return the number of objects that the median callback reads in `CALLBACK_MS`."""
    count = OBJECTS // CALIBRATIONS
    times = sorted(_timed(objects, number * count, count) for number in range(CALIBRATIONS))
    return min(OBJECTS // 2, max(1, round(count * CALLBACK_MS / times[CALIBRATIONS // 2])))


def run(seconds: float) -> Noise:
    """Run callbacks of constant work for so long, and count them by milliseconds of CPU time."""
    objects = _objects()
    count = calibrated(objects)
    by_ms: Counter[int] = Counter()
    above, longest_ms, first = 0, 0.0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        taken_ms = _timed(objects, first, count)
        first = (first + count) % (OBJECTS - count)
        by_ms[int(taken_ms)] += 1
        above += taken_ms > LIMIT_MS
        longest_ms = max(longest_ms, taken_ms)
    return {
        "callbacks": by_ms.total(),
        "above": above,
        "longest_ms": round(longest_ms, 2),
        "by_ms": {str(ms): number for ms, number in sorted(by_ms.items())},
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
        "above": sum(each["above"] for each in runs),
        "longest_ms": max(each["longest_ms"] for each in runs),
        "by_ms": dict(sorted(by_ms.items(), key=lambda item: int(item[0]))),
    }


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]))))
