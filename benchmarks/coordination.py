"""Groups, transactions, many partitions beside Kafka: `python -m benchmarks.coordination`.

Measured as in `benchmarks.first_light`: both brokers run, one is driven at a time, a warm-up pair
is thrown away, the pairs that count alternate, and the median of the paired ratios decides.
Percentiles are those of all the pairs' records together, as there. `--only PART` takes one part
(the others' results stay in the file), `--scale` shrinks all of them.

Writes docs/benchmarks/coordination.json and renders docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import loads, many_partitions, other_brokers
from benchmarks.first_light import NAMES, order, pooled
from benchmarks.loads import IDEMPOTENT, Measure, drop_topic, fresh_topic, measured
from benchmarks.machine import description
from benchmarks.memory import steady_memory
from benchmarks.report import DOCS, RESULTS, render
from testkit.peer.server import STARTERS, BrokerProcess

PAIRS = 5
TRIAL_SCALE = 0.15
COMMITS = 100_000
TRANSACTIONS = 500
MEMBERS = 50
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
DELAY = {"group.initial.rebalance.delay.ms": "3000"}

Run = Callable[[BrokerProcess, str, float], dict[str, Any]]
"""What was measured, by metric; under `LATENCIES` each record's microseconds, where kept."""
LATENCIES = "latencies_us"
PERCENTILES = ("p50", "p99")

Values = dict[str, list[dict[str, float]]]
"""By broker what was measured, in the order of the pairs."""


@dataclass(frozen=True, slots=True)
class Row:
    """One load. `metrics`: what `run` measures, with its unit."""

    key: str
    title: str
    metrics: dict[str, str]
    run: Run


Turns = tuple[Row, ...]
"""Rows that are compared with one another, and therefore measured in turns within each pair: a JVM
goes on compiling for gigabytes, so that of two rows measured one after the other the later one
shows a better Kafka.
"""


def client(broker: BrokerProcess, module: str, topic: str, **options: int) -> dict[str, float]:
    """A load of one of the client programs: what it printed, and the broker's CPU-seconds."""
    command = [sys.executable, "-m", f"benchmarks.{module}", broker.bootstrap, topic]
    for key, value in options.items():
        command += [f"--{key.replace('_', '-')}", str(value)]
    output, cpu = measured(broker, command)
    return {**json.loads(output), "cpu_s": cpu}


def commits(
    broker: BrokerProcess, topic: str, scale: float, connections: int = 4, in_flight: int = 50
) -> dict[str, float]:
    count = max(int(COMMITS * scale), connections)
    seen = client(
        broker, "commits", topic, commits=count, connections=connections, in_flight=in_flight
    )
    return _rate(seen, "commits", 1000)


def transactions(
    broker: BrokerProcess, topic: str, scale: float, producers: int = 1
) -> dict[str, float]:
    count = max(int(TRANSACTIONS * scale), 2) * producers
    two = fresh_topic(broker, 2)
    seen = client(broker, "transactions", two, transactions=count, producers=producers)
    drop_topic(broker, two)
    return _rate(seen, "transactions", 1)


def _rate(seen: dict[str, float], unit: str, per: int) -> dict[str, float]:
    """Units a second, and CPU-milliseconds per so many of them; the client's CPU beside it."""
    return {
        "rate": seen[unit] / seen["seconds"],
        "cpu_ms": seen["cpu_s"] * 1000 * per / seen[unit],
        "client_cpu_ms": seen["client_cpu_s"] * 1000 * per / seen[unit],
    }


def group(broker: BrokerProcess, topic: str, _: float) -> dict[str, float]:
    seen = client(broker, "group_join", topic, members=MEMBERS)
    return {"seconds": seen["seconds"], "cpu_ms": seen["cpu_s"] * 1000}


def load(
    run: Callable[[BrokerProcess, str, float], Measure],
) -> Run:
    """A load of first_light as a row of this table."""

    def row(broker: BrokerProcess, topic: str, scale: float) -> dict[str, Any]:
        measure = run(broker, topic, scale)
        found = {"rate": measure.throughput_per_s, "cpu_s": measure.cpu_per_unit_s}
        return {**found, **percentiles([measure.latencies_us]), LATENCIES: measure.latencies_us}

    return row


def percentiles(rounds: list[list[int]]) -> dict[str, float]:
    """Over the records of all rounds together, in microseconds; empty when none were kept."""
    found = pooled([Measure(latencies_us=each) for each in rounds])
    return {key: found[key] for key in PERCENTILES if found}


COMMIT_METRICS = {"rate": "commits/s", "cpu_ms": "CPU-ms a 1,000", "client_cpu_ms": "client's"}
TRANSACTION_METRICS = {
    "rate": "transactions/s",
    "cpu_ms": "CPU-ms each",
    "client_cpu_ms": "client's",
}
GROUP_METRICS = {"seconds": "s", "cpu_ms": "CPU-ms"}

COMMIT_ROWS = (
    (Row("commits_1", "OffsetCommit, one connection, 50 in flight", COMMIT_METRICS,
         partial(commits, connections=1)),),
    (Row("commits_4", "OffsetCommit, four connections, 50 in flight each", COMMIT_METRICS,
         partial(commits, connections=4)),),
)  # fmt: skip
TRANSACTION_ROWS = (
    (Row("transactions_1", "transactions, one producer", TRANSACTION_METRICS,
         partial(transactions, producers=1)),),
    (Row("transactions_10", "transactions, ten producers at once", TRANSACTION_METRICS,
         partial(transactions, producers=10)),),
)  # fmt: skip
GROUP_ROWS = (
    (Row("group_0", "50 members to a stable group, no initial delay", GROUP_METRICS, group),),
)
DELAYED_ROWS = (
    (Row("group_3000", "50 members to a stable group, initial delay 3 s", GROUP_METRICS, group),),
)


def _produce_rows() -> tuple[Turns, ...]:
    """Each produce load of first_light, plain and with an idempotent producer, in turns."""
    java = {"batches_of_50", "one_a_request", "large_batches"}
    rows = []
    for each in loads.LOADS:
        if each.key in java:
            idempotent: Any = partial(_java_idempotent, each.run)
        elif each.key in {"rdkafka_batches_of_50", "latency"}:
            idempotent = partial(_rdkafka_idempotent, each.run)
        else:
            continue
        metrics = {"rate": f"{each.unit}/s", "cpu_s": f"CPU-s a {each.cpu_unit}"}
        if each.key == "latency":
            metrics |= {"p50": "p50, µs", "p99": "p99, µs"}
        title = f"{each.title.replace(', acks=1', '')}, idempotent"
        rows.append(
            (
                Row(f"plain.{each.key}", each.title, metrics, load(each.run)),
                Row(f"idempotent.{each.key}", title, metrics, load(idempotent)),
            )
        )
    return tuple(rows)


def _java_idempotent(
    run: Callable[..., Measure], broker: BrokerProcess, topic: str, scale: float
) -> Measure:
    return run(broker, topic, scale, *IDEMPOTENT)


def _rdkafka_idempotent(
    run: Callable[..., Measure], broker: BrokerProcess, topic: str, scale: float
) -> Measure:
    return run(broker, topic, scale, idempotent=1)


SESSIONS: dict[str, tuple[tuple[dict[str, str], tuple[Turns, ...]], ...]] = {
    "commits": ((NO_DELAY, COMMIT_ROWS),),
    "transactions": ((NO_DELAY, TRANSACTION_ROWS),),
    "group": ((NO_DELAY, GROUP_ROWS), (DELAY, DELAYED_ROWS)),
    "idempotent": ((NO_DELAY, _produce_rows()),),
}
"""Part: the settings of a pair of brokers, and what is measured with it."""

PARTS = (*SESSIONS, "partitions", "others")


def run_turns(
    rows: Turns, brokers: dict[str, BrokerProcess], pairs: int, scale: float
) -> dict[str, Any]:
    """The values of each row by broker; the warm-up pair is left out."""
    values: dict[str, Values] = {row.key: {name: [] for name in brokers} for row in rows}
    kept: dict[str, dict[str, list[list[int]]]] = {
        row.key: {name: [] for name in brokers} for row in rows
    }
    for pair in range(pairs + 1):
        for row in rows if pair % 2 == 0 else rows[::-1]:
            for name in order(pair, tuple(brokers)):
                found = run_once(row, brokers[name], scale)
                latencies = found.pop(LATENCIES, [])
                shown = "  ".join(f"{found[key]:,.4g} {unit}" for key, unit in row.metrics.items())
                _tell(f"{f'pair {pair}' if pair else 'warm-up'} {name:8} {row.key:24} {shown}")
                if pair:
                    values[row.key][name].append(found)
                    kept[row.key][name].append(latencies)
    return {row.key: _result(row, values[row.key], kept[row.key]) for row in rows}


def _result(row: Row, values: Values, kept: dict[str, list[list[int]]]) -> dict[str, Any]:
    """What the result file holds of a row; `pooled` where each record's time was kept."""
    found: dict[str, Any] = {"title": row.title, "metrics": row.metrics, "values": values}
    together = {name: percentiles(rounds) for name, rounds in kept.items()}
    return {**found, "pooled": together} if all(together.values()) else found


def run_once(row: Row, broker: BrokerProcess, scale: float) -> dict[str, Any]:
    """One load on one broker, with a topic of its own."""
    topic = fresh_topic(broker)
    os.sync()
    found = row.run(broker, topic, scale)
    drop_topic(broker, topic)
    return found


def run_session(
    settings: dict[str, str],
    every: tuple[Turns, ...],
    names: tuple[str, ...],
    pairs: int,
    scale: float,
) -> dict[str, Any]:
    """The rows on one pair of brokers."""
    found: dict[str, Any] = {}
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    brokers: dict[str, BrokerProcess] = {}
    try:
        for name in names:
            brokers[name] = STARTERS[name](work / name, settings)
        for rows in every:
            found |= run_turns(rows, brokers, pairs, scale)
        return found
    finally:
        for broker in brokers.values():
            broker.stop()
        shutil.rmtree(work, ignore_errors=True)


def run_part(part: str, names: tuple[str, ...], pairs: int, scale: float) -> dict[str, Any]:
    """What the result file holds of a part."""
    work = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        if part == "partitions":
            count = int(many_partitions.PARTITIONS * scale)
            return many_partitions.run(names, pairs, count, work, _tell)
        if part == "others":
            return other_brokers.run(names, pairs, scale, work, _tell)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    rows: dict[str, Any] = {}
    for settings, session in SESSIONS[part]:
        rows |= run_session(settings, session, names, pairs, scale)
    return {"rows": rows}


def paired_ratios(values: Values, metric: str) -> list[float]:
    """Odradek : Kafka, pair by pair; nan where Kafka's tick read zero."""
    pairs = zip(values["odradek"], values["kafka"], strict=True)
    return [quotient(ours[metric], theirs[metric]) for ours, theirs in pairs]


def quotient(above: float, below: float) -> float:
    return above / below if below else float("nan")


def median_ratio(values: Values, metric: str) -> float:
    return statistics.median(paired_ratios(values, metric))


def row_ratio(row: dict[str, Any], metric: str) -> float:
    """The median of the paired ratios; of a percentile the ratio of those of all pairs together."""
    if (both := row.get("pooled")) and metric in both["odradek"]:
        return quotient(both["odradek"][metric], both["kafka"][metric])
    return median_ratio(row["values"], metric)


def ratio_of_plain(idempotent: dict[str, Any], plain: dict[str, Any], metric: str) -> float:
    """How the table's ratio changes with idempotent producers."""
    return quotient(row_ratio(idempotent, metric), row_ratio(plain, metric))


def ratios(part: str, result: dict[str, Any]) -> dict[str, float]:
    """All ratios of a part; idempotent rows also as a ratio to the same row without it."""
    if part == "others":
        return {}
    if part == "partitions":
        metrics = result["values"]["odradek"][0]
        return {f"partitions.{m}": median_ratio(result["values"], m) for m in metrics}
    found: dict[str, float] = {}
    for key, row in result["rows"].items():
        for metric in row["metrics"]:
            found[f"{key}.{metric}"] = row_ratio(row, metric)
            if key.startswith("idempotent."):
                plain = result["rows"][key.replace("idempotent.", "plain.", 1)]
                found[f"{key}.{metric}.of_plain"] = ratio_of_plain(row, plain, metric)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coordination")
    parser.add_argument("--only", action="append", default=[], choices=PARTS, metavar="PART",
                        help=", ".join(PARTS))  # fmt: skip
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--broker", choices=NAMES, help="one of the two alone, for development")
    parser.add_argument("--out", type=Path, help="directory instead of docs/")
    given = parser.parse_args()
    names = (given.broker,) if given.broker else NAMES
    # A small run or one of a single broker must not replace the published figures.
    published = given.scale == 1.0 and not given.broker
    docs = given.out or (DOCS if published else Path(tempfile.mkdtemp(prefix="bench-result-")))
    (docs / RESULTS).mkdir(parents=True, exist_ok=True)
    out = docs / RESULTS / "coordination.json"
    every = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    # A trial does not count, and need not take all the memory first.
    with nullcontext(False) if given.scale < TRIAL_SCALE else steady_memory(_tell) as steady:
        for part in given.only or PARTS:
            result = run_part(part, names, given.pairs, given.scale)
            if len(names) == 2:
                result["ratios"] = ratios(part, result)
            result |= {"pairs": given.pairs, "scale": given.scale}
            every[part] = {"machine": description(steady_memory=steady), **result}
            # After each part: what was measured is not lost by what fails later.
            out.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    if len(names) == 2:
        print(render(docs))
    _tell(f"written to {out}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
