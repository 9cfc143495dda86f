"""Renders docs/benchmarks.md from the results that lie in docs/benchmarks/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import compaction_report, coordination_report
from benchmarks.tables import MIB, machine, median, show
from testkit.peer.artifacts import ROOT

DOCS = ROOT / "docs"
RESULTS = "benchmarks"
EQUAL_US = 1000

# Row, metric, the bound on the ratio and whether it is a lower bound.
TARGETS: dict[str, tuple[str, float]] = {
    "batches_of_50.throughput_per_s": (">=", 1.2),
    "batches_of_50.cpu_per_unit_s": ("<=", 0.5),
    "one_a_request.throughput_per_s": (">=", 1.0),
    "one_a_request.cpu_per_unit_s": ("<=", 0.7),
    "large_batches.throughput_per_s": (">=", 0.95),
    "large_batches.cpu_per_unit_s": ("<=", 0.6),
    "fetch_all.throughput_per_s": (">=", 1.0),
    "fetch_all.cpu_per_unit_s": ("<=", 0.7),
    "latency.p50": ("<=", 1.1),
    "latency.p99": ("<=", 1.1),
    "peak_memory": ("<=", 0.15),
    "start": ("<=", 0.12),
}

HEAD = """# Benchmarks

Each figure is taken beside Apache Kafka (or beside a smaller Odradek) in one run on one machine,
by the scripts under `benchmarks/`; `make bench` makes the first table anew. What matters is the
ratio: absolute figures are those of the machine named.

`make bench-commits BASE=COMMIT` compares two commits of Odradek for the same rows, without Kafka
or Java. Its tables are `docs/benchmarks/commits-BASE-HEAD.md`, with all values in the JSON files
beside them.
"""


def verdict(key: str, ratio: float, apart_us: float | None = None) -> str:
    """`met` or `missed` for a row of the table; latencies less than 1 ms apart are equal."""
    if key not in TARGETS:
        return ""
    sign, bound = TARGETS[key]
    holds = ratio >= bound if sign == ">=" else ratio <= bound
    if not holds and apart_us is not None and abs(apart_us) < EQUAL_US:
        return f"{sign} {bound:g}: met (under 1 ms apart)"
    return f"{sign} {bound:g}: {'met' if holds else '**missed**'}"


def render(docs: Path = DOCS) -> str:
    """Write the page; returns its text."""
    parts = [HEAD]
    for name, section in (
        ("first_light", first_light),
        ("scaling", scaling),
        ("startup", startup),
        ("group_loading", group_loading),
        ("coordination", coordination_report.section),
    ):
        path = docs / RESULTS / f"{name}.json"
        if path.exists():
            parts.append(section(json.loads(path.read_text(encoding="utf-8"))))
    by_hand = docs / RESULTS / "compaction.md"
    if by_hand.exists():
        parts.append(by_hand.read_text(encoding="utf-8"))
    beside = docs / RESULTS / "compaction_beside.json"
    if beside.exists():
        parts.append(compaction_report.section(json.loads(beside.read_text(encoding="utf-8"))))
    text = "\n".join(parts)
    (docs / "benchmarks.md").write_text(text, encoding="utf-8")
    return text


def first_light(result: dict[str, Any]) -> str:
    """The table of the comparison, with all values below it."""
    ratios = result.get("ratios", {})
    lines = [
        "## Odradek beside Apache Kafka",
        "",
        machine(result),
        f"{result['pairs']} alternating pairs after a warm-up pair; number of records scaled "
        f"by {result['scale']:g}. The median of the paired ratios decides. Kafka: KRaft, one "
        "node, storage formatted beforehand, `-Xmx1G -Xms1G` and the G1 settings of its start "
        "script. CPU is user + system of the broker's process tree. The rows without a target "
        "are shown for comparison.",
        "",
        "| | metric | Odradek, median | Kafka, median | ratio | target |",
        "|---|---|---|---|---|---|",
    ]
    for key, row in result["rows"].items():
        lines += _load_rows(key, row, ratios)
    memory = result["peak_memory_bytes"]
    lines.append(
        _line(
            "peak memory after the load",
            "MiB",
            {k: v / MIB for k, v in memory.items()},
            "peak_memory",
            ratios,
        )
    )
    starts = {name: 1000 * median(v) for name, v in result["start_s"].items()}
    lines.append(_line("start to first answered request", "ms", starts, "start", ratios))
    lines += [
        "",
        "![every value of every pair](benchmarks/first_light.png)",
        "",
        "All values, in the order of the pairs:",
        "",
    ]
    return "\n".join(lines + _all_values(result)) + "\n"


def _load_rows(key: str, row: dict[str, Any], ratios: dict[str, float]) -> list[str]:
    lines = []
    for metric, unit in (
        ("throughput_per_s", f"{row['unit']}/s"),
        ("cpu_per_unit_s", f"CPU-s a {row['cpu_unit']}"),
    ):
        values = {n: median([m[metric] for m in row[n]]) for n in _brokers(row)}
        lines.append(_line(row["title"], unit, values, f"{key}.{metric}", ratios))
    for quantile in ("p50", "p99", "p999"):
        if any(f"{n}_latency_us" in row for n in _brokers(row)):
            values = {n: row[f"{n}_latency_us"][quantile] for n in _brokers(row)}
            lines.append(
                _line(
                    row["title"],
                    f"{quantile}, µs, pooled",
                    values,
                    f"{key}.{quantile}",
                    ratios,
                    latency=True,
                )
            )
    return lines


def _line(
    title: str,
    unit: str,
    values: dict[str, float],
    key: str,
    ratios: dict[str, float],
    latency: bool = False,
) -> str:
    ratio = ratios.get(key)
    apart = values["odradek"] - values["kafka"] if latency and len(values) == 2 else None
    return (
        f"| {title} | {unit} | {show(values.get('odradek'))} | {show(values.get('kafka'))} "
        f"| {show(ratio)} | {verdict(key, ratio, apart) if ratio is not None else ''} |"
    )


def _brokers(row: dict[str, Any]) -> list[str]:
    return [name for name in ("odradek", "kafka") if name in row]


def _all_values(result: dict[str, Any]) -> list[str]:
    lines = []
    for row in result["rows"].values():
        for name in _brokers(row):
            rates = ", ".join(show(m["throughput_per_s"]) for m in row[name])
            cpus = ", ".join(show(m["cpu_per_unit_s"]) for m in row[name])
            lines.append(
                f"- {row['title']}, {name}: {row['unit']}/s {rates}; "
                f"CPU-s a {row['cpu_unit']} {cpus}"
            )
            for each in [row.get(f"{name}_latency_us_each", [])]:
                if each:
                    lines.append(
                        "  (p50/p99 in µs: "
                        + ", ".join(f"{p['p50']:.0f}/{p['p99']:.0f}" for p in each)
                        + ")"
                    )
    for name, values in result["start_s"].items():
        lines.append(f"- start, {name}: " + ", ".join(f"{v * 1000:.0f}" for v in values) + " ms")
    return lines


def scaling(result: dict[str, Any]) -> str:
    """The table of what grows with the size of the log."""
    small, large = result["small"], result["large"]
    lines = [
        "## 100 times the bytes",
        "",
        machine(result),
        f"{small['bytes'] / 1e6:.0f} MB and {large['bytes'] / 1e9:.1f} GB in one partition, "
        "segments of 16 MB; start after a clean stop, and fetches of 64 KiB at random "
        "offsets, warm. Medians; all starts are shown.",
        "",
        "| | small | large | ratio | target |",
        "|---|---|---|---|---|",
    ]
    for key, title, unit, bound in (
        ("start_ms", "start to first answer", "ms", 1.5),
        ("fetch_cpu_us", "CPU a fetch", "µs", 1.2),
        ("fetch_p50_us", "fetch p50", "µs", 1.2),
    ):
        ratio = large[key] / small[key]
        lines.append(
            f"| {title}, {unit} | {show(small[key])} | {show(large[key])} "
            f"| {show(ratio)} | <= {bound}: {'met' if ratio <= bound else '**missed**'} |"
        )
    for name in ("small", "large"):
        starts = ", ".join(f"{v:.0f}" for v in result[name]["starts_ms"])
        lines.append(f"\n{name}: starts in ms {starts}")
    return "\n".join(lines) + "\n"


def startup(result: dict[str, Any]) -> str:
    """The table of start-up and idle figures."""
    lines = [
        "## Start-up",
        "",
        machine(result),
        "| | median | all values | target |",
        "|---|---|---|---|",
    ]
    for row in result["rows"]:
        middle = median(row["values"])
        shown = ", ".join(show(v) for v in row["values"][:12])
        lines.append(
            f"| {row['title']}, {row['unit']} | {show(middle)} | {shown} | "
            f"<= {row['target']:g}: {'met' if middle <= row['target'] else '**missed**'} |"
        )
    return "\n".join(lines) + "\n"


def group_loading(result: dict[str, Any]) -> str:
    """How soon committed offsets are served after a start: the fastest of each broker's starts."""
    lines = [
        "## Loading the offsets of groups",
        "",
        machine(result),
        "One partition of `__consumer_offsets`, ten commits a batch, the same records in both "
        "brokers; from the start of the process to the first answer at all, and to the first "
        "answer to OffsetFetch with offsets. Not compacted: the commits of 1,000 places; "
        "compacted: each commit is the only one of its place. Seconds, MiB; the fastest of the "
        "starts.",
        "",
        "| commits | log | broker | first answer | offsets served | memory |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        best = {key: min(run[key] for run in row["runs"]) for key in row["runs"][0]}
        lines.append(
            f"| {row['commits']:,} | {row['log']} | {row['broker']} | "
            f"{best['first_answer_s']:.2f} | {best['served_s']:.2f} | {best['memory_mib']:.0f} |"
        )
    return "\n".join([*lines, ""])
