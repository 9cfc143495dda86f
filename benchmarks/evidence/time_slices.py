"""Time slices of the event loop of three brokers, from `benchmarks.time_slices`."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks import slice_figures, time_slices
from benchmarks.evidence.experiment import CommandExperiment, first_missing
from benchmarks.evidence.record import Record, Values
from benchmarks.slice_control import Noise
from benchmarks.slice_figures import Cause, Phase
from benchmarks.slice_recorder import LIMIT_MS
from benchmarks.tables import judged, show, table

HEAD = ["phase", "callbacks", "above 5 ms", "longest, ms of CPU", "its wall time, ms", "target"]
CONTROL_HEAD = ["constant work, measured", "callbacks", "above 5 ms", "longest, ms of CPU"]
WAITS_HEAD = [
    "phase",
    "wall time: above 5 ms",
    "longest, ms",
    "less waits for a processor: above 5 ms",
    "longest, ms",
    "its wall time, ms",
    "target",
]
CONTROL_WAITS_HEAD = ["constant work, measured", *WAITS_HEAD[1:5]]
CAUSES_HEAD = ["phase", "cause", "slices", "median, ms", "longest, ms", "collections in it, ms"]


class TimeSlices(CommandExperiment):
    """Units `run/N`: all phases, in a cluster of its own."""

    name = "time-slices"
    title = "time slices of the event loop in a cluster with 10,000 partitions"
    minutes = 10
    unit_s = 540.0
    timeout_s = 1500.0
    jobs_max = 1
    is_timed = True

    def settings(self, scale: float) -> Values:
        return {
            "runs": 1,
            "brokers": len(time_slices.BROKERS),
            "topics": max(2, round(time_slices.TOPICS * scale)),
            "partitions_each": time_slices.PARTITIONS_EACH,
            "replication_factor": time_slices.REPLICATION_FACTOR,
            "limit_ms": LIMIT_MS,
            "event_loop": "asyncio",
            "control_s": time_slices.CONTROL_S,
        }

    def next_unit(self, record: Record) -> str | None:
        runs = range(1, record.settings["runs"] + 1)
        return first_missing([f"run/{run}" for run in runs], record)

    def command(self, record: Record, key: str) -> list[str]:
        seed = record.seed + int(key.removeprefix("run/")) - 1
        return ["-m", "benchmarks.time_slices", "--seed", str(seed), "--scale", str(record.scale)]

    def snippets(self, record: Record) -> dict[str, str]:
        text = [record.taken]
        for values in record.values.values():
            text += ["", *phase_table(values["phases"]), "", *start_table(values["before_clients"])]
            if waits := waits_table(values["phases"]):
                text += ["", *waits]
        return {
            self.name: "\n".join(text),
            f"{self.name}.causes": "\n\n".join(
                "\n".join(cause_table(values["phases"])) for values in record.values.values()
            ),
            f"{self.name}.control": "\n".join(
                control_table(values.get("control", {}) for values in record.values.values())
            ),
            f"{self.name}.summary": summary(record),
        }


def verdict(phase: Phase) -> str:
    """Return whether no slice of the phase exceeds the limit."""
    return judged(slice_figures.longest(phase)[0], ("<=", LIMIT_MS))


def phase_table(phases: list[Phase]) -> list[str]:
    return table(HEAD, [[*_figures(phase), verdict(phase)] for phase in phases])


def waits_table(phases: list[Phase]) -> list[str]:
    """Return the table of wall times, and of wall times less the waits for a processor.

    It is empty for a record without these times.
    """
    rows = []
    for phase in filter(slice_figures.has_waits, phases):
        busy_ms, wall_ms = phase["longest_busy_ms"]
        rows.append(
            [
                f"{phase['name']}, less waits",
                f"{phase['wall_above']:,}",
                show(phase["longest_wall_ms"]),
                f"{phase['busy_above']:,}",
                show(busy_ms),
                show(wall_ms),
                judged(busy_ms, ("<=", LIMIT_MS)),
            ]
        )
    return table(WAITS_HEAD, rows) if rows else []


def start_table(starts: list[Phase]) -> list[str]:
    """Return the table of slices before the first response, which have no target."""
    return table(["before the first client", *HEAD[1:-1]], [_figures(start) for start in starts])


def _figures(phase: Phase) -> list[str]:
    cpu_ms, wall_ms = slice_figures.longest(phase)
    counts = [f"{phase['callbacks']:,}", f"{len(slice_figures.above(phase)):,}"]
    return [phase["name"], *counts, show(cpu_ms), show(wall_ms)]


def cause_table(phases: list[Phase]) -> list[str]:
    found = slice_figures.causes(phases)
    if not found:
        return ["No time slice exceeds 5 ms."]
    return table(CAUSES_HEAD, [_cause(each) for each in found])


def _cause(cause: Cause) -> list[str]:
    figures = [cause.median_ms, cause.longest_ms, cause.collections_ms]
    return [cause.phase, f"`{cause.cause}`", str(cause.slices), *map(show, figures)]


def control_table(runs: Iterable[dict[str, Noise]]) -> list[str]:
    """Return the table of the callbacks of constant work."""
    measured = [(name, noise) for run in runs for name, noise in run.items()]
    if not measured:
        return ["The record has no such callbacks."]
    rows = [
        [name, f"{noise['callbacks']:,}", f"{noise['above']:,}", show(noise["longest_ms"])]
        for name, noise in measured
    ]
    waits = [
        [
            name,
            f"{noise['wall_above']:,}",
            show(noise["longest_wall_ms"]),
            f"{noise['busy_above']:,}",
            show(noise["longest_busy_ms"]),
        ]
        for name, noise in measured
        if slice_figures.has_waits(noise)
    ]
    return [
        *table(CONTROL_HEAD, rows),
        *(["", *table(CONTROL_WAITS_HEAD, waits)] if waits else []),
    ]


def summary(record: Record) -> str:
    """One sentence on all runs."""
    phases = [phase for values in record.values.values() for phase in values["phases"]]
    if not phases:
        return "No run was completed."
    callbacks = sum(phase["callbacks"] for phase in phases)
    slices = sum(len(slice_figures.above(phase)) for phase in phases)
    missed = sum(bool(slice_figures.above(phase)) for phase in phases)
    longest_ms = max(slice_figures.longest(phase)[0] for phase in phases)
    return (
        f"{callbacks:,} callbacks in {len(phases)} phases. {slices:,} of them, in {missed} phases, "
        f"took more than 5 ms of CPU time. The longest one took {show(longest_ms)} ms."
        f"{_waits(phases)}"
    )


def _waits(phases: list[Phase]) -> str:
    """Two sentences on the wall times. Empty for a record without the waits for a processor."""
    measured = [phase for phase in phases if slice_figures.has_waits(phase)]
    if not measured:
        return ""
    wall = sum(phase["wall_above"] for phase in measured)
    busy = sum(phase["busy_above"] for phase in measured)
    longest_wall_ms = max(phase["longest_wall_ms"] for phase in measured)
    longest_busy_ms = max(phase["longest_busy_ms"][0] for phase in measured)
    return (
        f" By wall time {wall:,} took more than 5 ms, at most {show(longest_wall_ms)} ms. Less the "
        f"waits for a processor, {busy:,} did, at most {show(longest_busy_ms)} ms."
    )
