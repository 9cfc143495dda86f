"""The figures of each phase of a run, from the lines of `benchmarks.slice_recorder`.

    {"phases": [{"name": "start", "seconds": 3.1, "callbacks": 912, "by_ms": {"0": 910, "1": 2},
                 "longest_ms": [1.9, 2.2], "slices": [{"broker": 1, "cpu_ms": 7.1, ...}]}, ...],
     "before_clients": [{"name": "start of broker 1", ...}, ...]}

`phases` has the callbacks of brokers that serve. Callbacks of a process before its first response
to a client are in `before_clients`, an entry for each start of a process. A broker of a cluster
executes only ApiVersions and requests of other brokers in that time.
`longest_ms` is the CPU time and the wall time of the longest callback within the limit. `slices`
are the longer ones, in the format of the recorder, with the number of their broker. Records since
the recorder measures the waits for a processor also have `busy_above`, `longest_busy_ms`,
`wall_above` and `longest_wall_ms`.
"""

from __future__ import annotations

import json
import statistics
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.slice_recorder import LIMIT_MS

Line = dict[str, Any]
Phase = dict[str, Any]

COLLECTION_SHARE = 0.5
"""Share of a slice's CPU time from which garbage collections are its cause."""

OWN = "odradek."
UNKNOWN = "not in a function"
"""Cause of a slice whose samples have no function in common, or were taken at its end."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The time at which a phase begins, on the system's monotonic clock."""

    at: float
    name: str


@dataclass(slots=True)
class Process:
    """One start of a broker, and the lines of its recorder."""

    broker: int
    started_at: float
    served_at: float
    """Time of the first response to a client, ApiVersions excluded."""
    lines: list[Line] = field(default_factory=list)


def figures(marks: Sequence[Mark], end: float, processes: Iterable[Process]) -> dict[str, Any]:
    """Return the figures of each phase. Phases of the same name stay separate."""
    ends = [*(mark.at for mark in marks[1:]), end]
    phases = [_empty(mark.name, until - mark.at) for mark, until in zip(marks, ends, strict=True)]
    times = [mark.at for mark in marks]
    before_clients = []
    for process in processes:
        name = f"start of broker {process.broker}"
        start = _empty(name, process.served_at - process.started_at)
        before_clients.append(start)
        for line in process.lines:
            if line["at"] < process.served_at:
                _add(start, process.broker, line)
            elif line["at"] < end:
                _add(phases[max(0, bisect(times, line["at"]) - 1)], process.broker, line)
    return {"phases": phases, "before_clients": before_clients}


def parse(text: str) -> list[Line]:
    """Return the lines of a recorder. The last one of a killed process may be incomplete."""
    complete = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in complete.splitlines()]


def _empty(name: str, seconds: float) -> Phase:
    return {"name": name, "seconds": round(seconds, 1), "callbacks": 0, "by_ms": {},
            "longest_ms": [0.0, 0.0], "slices": []}  # fmt: skip


def _add(phase: Phase, broker: int, line: Line) -> None:
    if "callback" in line:
        phase["slices"].append({"broker": broker, **line})
        return
    phase["callbacks"] += line["callbacks"]
    for ms, count in line["by_ms"].items():
        phase["by_ms"][ms] = phase["by_ms"].get(ms, 0) + count
    phase["longest_ms"] = max(phase["longest_ms"], [line["cpu_ms"], line["wall_ms"]])
    if has_waits(line):
        for name in ("busy_above", "wall_above"):
            phase[name] = phase.get(name, 0) + line[name]
        for name in ("longest_busy_ms", "longest_wall_ms"):
            phase[name] = max(phase[name], line[name]) if name in phase else line[name]


def has_waits(phase: Phase) -> bool:
    """Return whether the waits for a processor were measured in the phase."""
    return "busy_above" in phase


def above(phase: Phase) -> list[Line]:
    """Return the slices that take more than the limit of CPU time."""
    return [each for each in phase["slices"] if each["cpu_ms"] > LIMIT_MS]


def longest(phase: Phase) -> tuple[float, float]:
    """Return the CPU time and the wall time of the longest callback, in milliseconds."""
    slices = [(each["cpu_ms"], each["wall_ms"]) for each in phase["slices"]]
    return max([*slices, tuple(phase["longest_ms"])])


def cause(slice_: Line) -> str:
    """Return the cause of a long slice, as far as its samples show it."""
    collected = sum(ms for _, ms, *_ in slice_["collections"])
    if collected >= COLLECTION_SHARE * slice_["cpu_ms"]:
        oldest = max(generation for generation, *_ in slice_["collections"])
        return f"garbage collection of generation {oldest}"
    own = [frame for frame in slice_["stack"] if frame.startswith(OWN)]
    if not own:
        return _function(slice_["stack"][0]) if slice_["stack"] else UNKNOWN
    if any(frame.startswith("importlib.") for frame in slice_["stack"]):
        return f"import in {_function(own[0])}"
    return _function(own[0])


def _function(frame: str) -> str:
    """`log.manager.LogManager.create` of `odradek.log.manager.LogManager.create:90`."""
    return frame.rpartition(":")[0].removeprefix(OWN)


@dataclass(frozen=True, slots=True)
class Cause:
    """The long slices of one phase that have the same cause."""

    phase: str
    cause: str
    slices: int
    median_ms: float
    longest_ms: float
    longest_wall_ms: float
    collections_ms: float
    """In the longest slice."""
    callback: str
    """That of the longest slice."""
    stack: tuple[str, ...]
    """That of the longest slice."""


def causes(phases: Iterable[Phase]) -> list[Cause]:
    """Return the causes of all slices above the limit, in the order of the phases."""
    found = []
    for phase in phases:
        groups: dict[str, list[Line]] = {}
        for each in phase["slices"]:
            groups.setdefault(cause(each), []).append(each)
        for name, slices in groups.items():
            top = max(slices, key=lambda each: float(each["cpu_ms"]))
            found.append(
                Cause(
                    phase["name"],
                    name,
                    len(slices),
                    statistics.median(each["cpu_ms"] for each in slices),
                    top["cpu_ms"],
                    top["wall_ms"],
                    sum(ms for _, ms, *_ in top["collections"]),
                    top["callback"],
                    tuple(top["stack"]),
                )
            )
    return found
