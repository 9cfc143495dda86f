"""Times in which a process waited for the processor, so that it could not serve its session.

A broker ends its session when its event loop was blocked for a third of the session timeout. On a
machine whose processors are busy with other programs this is no fault of the broker. Linux counts
how long a process was ready to run and did not run (``/proc/PID/schedstat``).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from conformance.faults.sessions import Cause

PROBE_S = 0.25
WAITED_SHARE = 0.5
"""A process that waited for more than this share of the time counts as starved."""
STARVED = "the processor was busy"
SESSION_SHARE = 1 / 3
"""The share of the session timeout after which a broker with a blocked event loop ends it."""


class Starvation:
    """A thread that samples the processes of a run. `causes` belongs to it until `stop`.

    Args:
        processes: Returns the pid of each broker that runs.
    """

    def __init__(self, processes: Callable[[], Mapping[int, int]]) -> None:
        self._processes = processes
        self._before: dict[int, tuple[int, float, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.causes: list[Cause] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[Cause]:
        """Return the times in which a broker was starved."""
        self._ended.set()
        self._thread.join()
        return joined(self.causes)

    def _run(self) -> None:
        while not self._ended.wait(PROBE_S):
            for broker, pid in self._processes().items():
                with contextlib.suppress(OSError):  # it has ended
                    self._sample(broker, pid, time.time(), waited_s(pid))

    def _sample(self, broker: int, pid: int, now: float, waited: float) -> None:
        before_pid, at, before = self._before.get(broker, (pid, now, waited))
        waited_now = waited - before  # counted when it runs again, so perhaps longer than a probe
        if before_pid == pid and waited_now > WAITED_SHARE * (now - at):
            began = min(at, now - waited_now)
            self.causes.append(Cause(STARVED, broker, began, now, share=SESSION_SHARE))
        self._before[broker] = (pid, now, waited)


def waited_s(pid: int) -> float:
    """Return how long the main thread of a process has waited for a processor in all, in seconds.

    Raises:
        OSError: The process has ended, or the kernel does not count this.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[1]) / 1e9


def joined(causes: list[Cause]) -> list[Cause]:
    """Join the causes of a broker that follow each other. Pure."""
    found: dict[int | None, list[Cause]] = {}
    for each in causes:
        known = found.setdefault(each.broker, [])
        if known and each.began <= known[-1].ended:
            began = min(known[-1].began, each.began)
            known[-1] = replace(known[-1], began=began, ended=each.ended)
        else:
            known.append(each)
    return [each for known in found.values() for each in known]
