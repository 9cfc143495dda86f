"""Odradek beside Apache Kafka: `python -m benchmarks.first_light` (`make bench`).

Both brokers run for the whole of the loads, and only one is driven at a time; one warm-up pair
is thrown away (Java compiles its hot code meanwhile), then five pairs count, in alternating
order. Each load gets a topic of its own, which is deleted after it, and the disk is synced
before each measurement. The median of the paired ratios decides. Start times are taken
afterwards, by as many pairs of fresh brokers on empty, formatted directories. Meanwhile free
memory is not lent to the host where that can be had (`benchmarks.memory`).

Writes docs/benchmarks/first_light.json and .png, and renders docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.loads import LOADS, Load, Measure, drop_topic, fresh_topic
from benchmarks.machine import description
from benchmarks.memory import steady_memory
from benchmarks.plot import plot_first_light
from benchmarks.processes import peak_memory_bytes
from benchmarks.report import DOCS, RESULTS, render
from testkit.peer.server import STARTERS, BrokerProcess

NAMES = ("odradek", "kafka")
PAIRS = 5
QUICK_PAIRS = 1
QUICK_SCALE = 0.05


def order(pair: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """Who goes first alternates."""
    return names if pair % 2 == 0 else names[::-1]


def run_load(load: Load, brokers: dict[str, BrokerProcess], pairs: int, scale: float) -> Any:
    """The measures of one row: {"odradek": [...], "kafka": [...]}; the warm-up pair is left out."""
    values: dict[str, list[Measure]] = {name: [] for name in brokers}
    for pair in range(pairs + 1):
        for name in order(pair, tuple(brokers)):
            topic = fresh_topic(brokers[name])
            os.sync()
            measure = load.run(brokers[name], topic, scale)
            drop_topic(brokers[name], topic)
            warm_up = pair == 0
            _tell(
                f"{'warm-up' if warm_up else f'pair {pair}'} {name:8} {load.key:22} "
                f"{measure.throughput_per_s:12,.1f} {load.unit}/s  "
                f"{measure.cpu_per_unit_s:8.3f} CPU-s a {load.cpu_unit}"
            )
            if not warm_up:
                values[name].append(measure)
    return values


def pooled(measures: list[Measure]) -> dict[str, float]:
    """Percentiles over all the pairs' records, in microseconds."""
    every = sorted(us for measure in measures for us in measure.latencies_us)
    if not every:
        return {}
    at = {"p50": 0.50, "p99": 0.99, "p999": 0.999}
    return {key: float(every[min(len(every) - 1, int(len(every) * q))]) for key, q in at.items()}


def run_loads(names: tuple[str, ...], pairs: int, scale: float, only: list[str]) -> dict[str, Any]:
    """All rows on one pair of brokers, and their peak memory at the end."""
    rows: dict[str, Any] = {}
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    brokers: dict[str, BrokerProcess] = {}
    try:
        for name in names:
            brokers[name] = STARTERS[name](work / name)
        for load in LOADS:
            if only and load.key not in only:
                continue
            values = run_load(load, brokers, pairs, scale)
            rows[load.key] = _row(load, values)
        memory = {name: peak_memory_bytes(broker.pid) for name, broker in brokers.items()}
    finally:
        for broker in brokers.values():
            broker.stop()
        shutil.rmtree(work, ignore_errors=True)
    return {"rows": rows, "peak_memory_bytes": memory}


def _row(load: Load, values: dict[str, list[Measure]]) -> dict[str, Any]:
    row: dict[str, Any] = {"title": load.title, "unit": load.unit, "cpu_unit": load.cpu_unit}
    for name, measures in values.items():
        row[name] = [{k: v for k, v in asdict(m).items() if k != "latencies_us"} for m in measures]
        if percentiles := pooled(measures):
            row[f"{name}_latency_us"] = percentiles
            row[f"{name}_latency_us_each"] = [pooled([m]) for m in measures]
    return row


def run_starts(names: tuple[str, ...], pairs: int) -> dict[str, list[float]]:
    """Seconds from the start of the process to the first answer, on empty directories."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for pair in range(pairs + 1):
        for name in order(pair, names):
            with (
                tempfile.TemporaryDirectory(prefix="bench-") as work,
                STARTERS[name](Path(work)) as broker,
            ):
                _tell(f"start {name:8} {broker.started_s * 1000:8.0f} ms")
                if pair > 0:
                    seconds[name].append(broker.started_s)
    return seconds


def medians(result: dict[str, Any]) -> dict[str, float]:
    """The median of the paired ratios, Odradek : Kafka, by metric."""
    ratios: dict[str, float] = {}

    def median_ratio(ours: list[float], theirs: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))

    for key, row in result["rows"].items():
        for metric in ("throughput_per_s", "cpu_per_unit_s"):
            ratios[f"{key}.{metric}"] = median_ratio(
                *([m[metric] for m in row[name]] for name in NAMES)
            )
        if "odradek_latency_us" in row:
            for quantile, value in row["odradek_latency_us"].items():
                ratios[f"{key}.{quantile}"] = value / row["kafka_latency_us"][quantile]
    memory = result["peak_memory_bytes"]
    ratios["peak_memory"] = memory["odradek"] / memory["kafka"]
    ratios["start"] = median_ratio(*(result["start_s"][name] for name in NAMES))
    return ratios


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_light")
    parser.add_argument("--quick", action="store_true", help="one pair, small loads; no verdict")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--scale", type=float, help="of the number of records")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="LOAD",
        help=", ".join(load.key for load in LOADS),
    )
    parser.add_argument("--broker", choices=NAMES, help="one of the two alone, for development")
    parser.add_argument("--out", type=Path, help="directory instead of docs/")
    given = parser.parse_args()
    pairs = given.pairs or (QUICK_PAIRS if given.quick else PAIRS)
    scale = given.scale or (QUICK_SCALE if given.quick else 1.0)
    names = (given.broker,) if given.broker else NAMES
    with steady_memory(_tell) as steady:
        result = {
            "machine": description(steady_memory=steady),
            "pairs": pairs,
            "scale": scale,
            **run_loads(names, pairs, scale, given.only),
            "start_s": run_starts(names, pairs),
        }
    if len(names) == 2:
        result["ratios"] = medians(result)
    # A quick or partial run must not replace the published figures.
    published = not (given.quick or given.only or given.broker)
    docs = given.out or (DOCS if published else Path(tempfile.mkdtemp(prefix="bench-result-")))
    (docs / RESULTS).mkdir(parents=True, exist_ok=True)
    out = docs / RESULTS / "first_light.json"
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if len(names) == 2:
        plot_first_light(result, docs / RESULTS / "first_light.png")
    print(render(docs))
    _tell(f"written to {out.parent}")


if __name__ == "__main__":
    main()
