"""The part of docs/benchmarks.md on what produce and fetch feel of a compaction."""

from __future__ import annotations

from typing import Any

from benchmarks.compaction_beside import PHASES, REQUESTS
from benchmarks.tables import judged, machine, show

EQUAL_US = 1000
# Of the ratio beside to alone; percentiles of all pairs together.
TARGETS: dict[str, tuple[str, float]] = {"p50": ("<=", 1.1), "p99": ("<=", 1.1)}
NAMES = {"odradek": "Odradek", "kafka": "Apache Kafka"}
METRICS = ("p50", "p99", "p999", "max")
HEAD = """### Produce and fetch beside a compaction

`python -m benchmarks.compaction_beside` (`--pairs`, `--scale`, `--brokers odradek,kafka`). One
client's round trips, a produce of 100 records of 100 bytes and a fetch of them each, as fast as
they go. A phase beside a compaction begins when the cleaner is at work and ends when the log's
cleaned offset is on the disk; a phase alone lasts as long; which comes first changes from pair to
pair. The percentiles are those of all requests of all pairs together; those less than 1 ms apart
count as equal.
"""


def section(result: dict[str, Any]) -> str:
    """A table for each broker, with all values below it."""
    lines = [HEAD, _taken(result)]
    for name, measured in result["brokers"].items():
        lines += _table(NAMES[name], measured, with_target=name == "odradek")
    lines += ["All values, in the order of the pairs:", ""]
    for name, measured in result["brokers"].items():
        for phase in PHASES:
            lines.append(f"- {NAMES[name]}, {phase}: {_values(measured['values'][phase])}")
    return "\n".join(lines) + "\n"


def _taken(result: dict[str, Any]) -> str:
    return (
        f"{result['pairs']} pairs after a warm-up pair; each compaction is of a log of its own of "
        f"{result['keys']:,} keys, each written twice, in segments of "
        f"{result['segment_bytes'] / (1 << 20):g} MiB. {machine(result)}"
    )


def _table(name: str, measured: dict[str, Any], *, with_target: bool) -> list[str]:
    alone, beside = (measured["pooled"][phase] for phase in PHASES)
    length = measured["pooled"]["beside"]["seconds"]
    lines = [
        f"| {name} | alone | beside a compaction | ratio | target |",
        "|---|---|---|---|---|",
        f"| round trips/s | {show(alone['rate'])} | {show(beside['rate'])} "
        f"| {show(measured['ratios']['rate'])} |  |",
    ]
    for request in REQUESTS:
        for metric in METRICS:
            key = f"{request}.{metric}"
            target = verdict(measured, key) if with_target else ""
            lines.append(
                f"| {request} {metric}, µs | {show(alone[key])} | {show(beside[key])} "
                f"| {show(measured['ratios'][key])} | {target} |"
            )
    speed = len(measured["values"]["beside"]) * measured["mb"] / length
    return [*lines, "", f"{name} compacted {show(speed)} MB of log a second meanwhile.", ""]


def verdict(measured: dict[str, Any], key: str) -> str:
    """Against the bound; what is less than a millisecond apart counts as equal."""
    text = judged(measured["ratios"][key], TARGETS.get(key.partition(".")[2]))
    alone, beside = (measured["pooled"][phase][key] for phase in PHASES)
    if "missed" in text and beside - alone < EQUAL_US:
        return "met (under 1 ms apart)"
    return text


def _values(values: list[dict[str, float]]) -> str:
    keys = ["seconds", "rate", *(f"{r}.{m}" for r in REQUESTS for m in METRICS)]
    return "; ".join(f"{key} " + ", ".join(show(each[key]) for each in values) for key in keys)
