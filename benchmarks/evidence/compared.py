"""Odradek and Apache Kafka, driven by the same clients in pairs, and the tables of the ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from benchmarks import coordination
from benchmarks.evidence import paired
from benchmarks.evidence.experiment import Context
from benchmarks.evidence.paired import NAMES, Group, PairedRows, Row, alone
from benchmarks.evidence.record import Record, Values
from benchmarks.loads import IDEMPOTENT, LOADS, Driven, Load, Measure
from benchmarks.processes import peak_memory_bytes
from benchmarks.tables import CAPTIONS, MIB, judged, show, table
from testkit.peer.server import STARTERS, BrokerProcess

EQUAL_US = 1000
Targets = Mapping[str, tuple[str, float]]
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
DELAY = {"group.initial.rebalance.delay.ms": "3000"}


# --- tables ---


def ratio_table(
    record: Record,
    targets: Targets,
    verdict: Callable[[str, str], str] | None = None,
) -> list[str]:
    """Return a line for each metric of each row. `targets` has bounds on ratios by `row.metric`."""
    described = record.settings["rows"]
    measured = [row for row in described if paired.runs(record, row)]
    lines = []
    for row in measured:
        for metric, unit in described[row]["metrics"].items():
            names = paired.sides(record, row)
            middles = [paired.middle(record, row, name, metric) for name in names]
            found = paired.ratio(record, row, metric)
            pooled = ", all pairs together" if paired.is_pooled(record, row, metric) else ""
            bound = targets.get(f"{row}.{metric}")
            is_latency = metric in paired.QUANTILES
            lines.append(
                [
                    described[row]["title"],
                    f"{unit}{pooled}",
                    *map(show, middles),
                    show(found),
                    paired.show_quartiles(paired.paired_ratios(record, row, metric)),
                    verdict(row, metric)
                    if verdict
                    else judged_latency(found, bound, middles)
                    if is_latency
                    else judged(found, bound),
                ]
            )
    _, other = paired.sides(record, measured[0]) if measured else NAMES
    other = CAPTIONS.get(other, other)
    columns = ["", "metric", "Odradek, median", f"{other}, median", "ratio",
               "quartiles of the pairs", "target"]  # fmt: skip
    return table(columns, lines)


def judged_latency(ratio: float, target: tuple[str, float] | None, middles: list[float]) -> str:
    """Judge a ratio of latencies. Latencies less than 1 ms apart count as equal."""
    text = judged(ratio, target)
    if target and "missed" in text and abs(middles[0] - middles[1]) < EQUAL_US:
        return f"{target[0]} {target[1]:g}: met (under 1 ms apart)"
    return text


def is_undecided(record: Record, row: str, metric: str, target: tuple[str, float] | None) -> bool:
    """Return whether the target lies between the quartiles of the paired ratios."""
    if target is None:
        return False
    ratios = paired.paired_ratios(record, row, metric)
    if metric in paired.QUANTILES:
        names = paired.sides(record, row)
        ours, theirs = (paired.middle(record, row, name, metric) for name in names)
        if abs(ours - theirs) < EQUAL_US:
            return False
    return paired.is_between_quartiles(target[1], ratios)


def all_values(record: Record) -> list[str]:
    """Return the values of every pair, to be shown below a table."""
    rows = [
        [
            described["title"],
            unit,
            CAPTIONS.get(name, name),
            ", ".join(map(show, paired.each(record, row, name, metric))),
        ]
        for row, described in record.settings["rows"].items()
        for metric, unit in described["metrics"].items()
        for name in paired.runs(record, row)
    ]
    return ["", *table(["all values, in the order of the pairs", "metric", "", ""], rows)]


def head(record: Record) -> list[str]:
    """The text above a table: date, machine, number of pairs, and how both sides are set up."""
    pairs = record.settings["pairs"]
    text = [f"{pairs} alternating pairs after a warm-up pair. {record.taken}", ""]
    return [*text, *more_pairs(record), *tuned(record)]


def more_pairs(record: Record) -> list[str]:
    """A list of the rows with more pairs than planned, and the reason."""
    first = record.settings["pairs"]
    found = {
        described["title"]: max(map(len, paired.runs(record, row).values()), default=0)
        for row, described in record.settings.get("rows", {}).items()
    }
    lines = [f"- {title}: {pairs} pairs." for title, pairs in found.items() if pairs > first]
    if not lines:
        return []
    reason = f"A target lay between the quartiles of the first {first} pairs, so the runner added"
    return [f"{reason} pairs. All values count.", "", *lines, ""]


def tuned(record: Record) -> list[str]:
    """Return a table of each side's settings. Records from before 2026-11-23 have none."""
    if not record.tuning:
        return []
    what = {key: None for side in record.tuning.values() for key in side}
    rows = [[key, *(side.get(key, "") for side in record.tuning.values())] for key in what]
    return [*table(["setting", *(CAPTIONS[name] for name in record.tuning)], rows), ""]


class RatioRows(PairedRows):
    """Paired rows with a bound on some ratios, by `row.metric`."""

    targets: ClassVar[Targets] = {}

    def is_undecided(self, record: Record, row: str) -> bool:
        return any(
            is_undecided(record, row, metric, self.targets.get(f"{row}.{metric}"))
            for metric in record.settings["rows"][row]["metrics"]
        )

    def snippets(self, record: Record) -> dict[str, str]:
        lines = [*head(record), *ratio_table(record, self.targets), *all_values(record)]
        return {self.name: "\n".join(lines)}


# --- loads of the first table ---


def load_row(load: Load, key: str, title: str, run: Callable[..., Measure]) -> Row:
    """Return a load as a row. The time of each record is kept if the load measures it."""

    def measured(broker: BrokerProcess, topic: str, scale: float) -> dict[str, Any]:
        measure = run(broker, topic, scale)
        found = {"rate": measure.throughput_per_s, "cpu_s": measure.cpu_per_unit_s}
        return {**found, paired.LATENCIES: measure.latencies_us}

    metrics = {"rate": f"{load.unit}/s", "cpu_s": f"CPU-s per {load.cpu_unit}"}
    if load.key == "latency":
        metrics |= {quantile: f"{quantile}, µs" for quantile in paired.QUANTILES}
    return Row(key, title, metrics, measured)


class FirstTable(RatioRows):
    """The first table, with both brokers' peak memory after the loads and the start times."""

    name = "first-table"
    title = "produce and fetch, latency, memory and start"
    minutes = 45
    unit_s = 60.0
    groups = alone(*(load_row(load, load.key, load.title, load.run) for load in LOADS))
    targets: ClassVar[Targets] = {
        "batches_of_50.rate": (">=", 1.3),
        "batches_of_50.cpu_s": ("<=", 0.4),
        "one_a_request.rate": (">=", 1.8),
        "one_a_request.cpu_s": ("<=", 0.3),
        "large_batches.rate": (">=", 1.1),
        "large_batches.cpu_s": ("<=", 0.55),
        "fetch_all.rate": (">=", 1.2),
        "fetch_all.cpu_s": ("<=", 0.45),
        "latency.p50": ("<=", 1.1),
        "latency.p99": ("<=", 1.1),
        "start.ms": ("<=", 0.1),
        "memory": ("<=", 0.15),
    }

    def settings(self, scale: float) -> Values:
        found = super().settings(scale)
        found["rows"]["start"] = {
            "title": "start to the first response",
            "metrics": {"ms": "ms"},
        }
        return found

    def rows_of_groups(self) -> dict[str, tuple[str, ...]]:
        # Memory belongs to the loads. The starts come when the brokers have ended.
        return {**super().rows_of_groups(), "start": ("start",)}

    def also(self, brokers: Mapping[str, Driven]) -> Values:
        peaks = {name: sum(map(peak_memory_bytes, broker.pids)) for name, broker in brokers.items()}
        return {"memory": {name: {"peak_bytes": peak} for name, peak in peaks.items()}}

    def measure_other(self, key: str, context: Context) -> Values:
        pair = int(key.removeprefix("start/"))
        found = {}
        # The warm-up pair reads the programs into the page cache.
        for number in (0, pair) if pair == 1 else (pair,):
            for name in NAMES if number % 2 == 0 else NAMES[::-1]:
                with STARTERS[name](context.work / f"start-{number}-{name}") as broker:
                    found[name] = {"ms": broker.started_s * 1000}
        return {"start": found}

    def snippets(self, record: Record) -> dict[str, str]:
        lines = [*head(record), *ratio_table(record, self.targets)]
        if memory := peak_memory(record):
            ratio = memory["odradek"] / memory["kafka"]
            lines.append(
                f"| peak memory after the loads | MiB | {show(memory['odradek'] / MIB)} "
                f"| {show(memory['kafka'] / MIB)} | {show(ratio)} | "
                f"| {judged(ratio, self.targets['memory'])} |"
            )
        return {self.name: "\n".join([*lines, *all_values(record)])}


def peak_memory(record: Record) -> dict[str, float]:
    """The largest peak of each broker over all units, in bytes."""
    found = paired.runs(record, "memory")
    return {name: max(run["peak_bytes"] for run in runs) for name, runs in found.items()}


# --- idempotent producers ---

# On the ratio of a row with idempotent producers, divided by its ratio without.
OF_PLAIN: Targets = {
    "rate": (">=", 0.9),
    "cpu_s": ("<=", 1.1),
    "p50": ("<=", 1.1),
    "p99": ("<=", 1.1),
}
JAVA_LOADS = ("batches_of_50", "one_a_request", "large_batches")
RDKAFKA_LOADS = ("rdkafka_batches_of_50", "latency")
PLAIN, IDEMPOTENT_ROW = KINDS = ("plain.", "idempotent.")


def _java_idempotent(
    run: Callable[..., Measure], broker: BrokerProcess, topic: str, scale: float
) -> Measure:
    return run(broker, topic, scale, *IDEMPOTENT)


def _rdkafka_idempotent(
    run: Callable[..., Measure], broker: BrokerProcess, topic: str, scale: float
) -> Measure:
    return run(broker, topic, scale, idempotent=1)


def _idempotent_groups() -> tuple[Group, ...]:
    """Each produce load of the first table, without and with an idempotent producer."""
    groups = []
    for load in LOADS:
        if load.key not in (*JAVA_LOADS, *RDKAFKA_LOADS):
            continue
        how = _java_idempotent if load.key in JAVA_LOADS else _rdkafka_idempotent
        title = f"{load.title.replace(', acks=1', '')}, idempotent"
        rows = (
            load_row(load, f"{PLAIN}{load.key}", load.title, load.run),
            load_row(load, f"{IDEMPOTENT_ROW}{load.key}", title, partial(how, load.run)),
        )
        groups.append(Group(load.key, rows, NO_DELAY))
    return tuple(groups)


class IdempotentRows(PairedRows):
    name = "idempotent"
    title = "the produce loads of the first table with idempotent producers"
    minutes = 55
    unit_s = 90.0
    groups = _idempotent_groups()

    def is_undecided(self, record: Record, row: str) -> bool:
        """Judge the quotients of the two ratios of each pair."""
        if not row.startswith(IDEMPOTENT_ROW):
            return False
        load = row.removeprefix(IDEMPOTENT_ROW)
        return any(
            paired.is_between_quartiles(OF_PLAIN[metric][1], quotients(record, load, metric))
            for metric in record.settings["rows"][row]["metrics"]
            if metric in OF_PLAIN and not paired.is_pooled(record, row, metric)
        )

    def snippets(self, record: Record) -> dict[str, str]:
        verdict = partial(of_plain_verdict, record)
        lines = [*head(record), *ratio_table(record, {}, verdict), *all_values(record)]
        return {self.name: "\n".join(lines)}


def of_plain(record: Record, load: str, metric: str) -> float:
    """Return the ratio to Kafka with idempotent producers, divided by the ratio without.

    Both ratios are those of the table: the medians of the paired ratios.
    """
    rows = f"{IDEMPOTENT_ROW}{load}", f"{PLAIN}{load}"
    return paired.quotient(*(paired.ratio(record, row, metric) for row in rows))


def quotients(record: Record, load: str, metric: str) -> list[float]:
    """Return for each pair the ratio with idempotent producers divided by the ratio without."""
    rows = f"{IDEMPOTENT_ROW}{load}", f"{PLAIN}{load}"
    ratios = [paired.paired_ratios(record, row, metric) for row in rows]
    return [paired.quotient(*pair) for pair in zip(*ratios, strict=True)]


def of_plain_verdict(record: Record, row: str, metric: str) -> str:
    """The last cell of a row. Every row with idempotent producers is judged.

    The quotients of the pairs are shown beside the judged quotient. The two can differ.
    """
    if not row.startswith(IDEMPOTENT_ROW):
        return ""
    load = row.removeprefix(IDEMPOTENT_ROW)
    found = of_plain(record, load, metric)
    text = f"{show(found)} of the plain one"
    if not paired.is_pooled(record, row, metric):
        of_pairs = quotients(record, load, metric)
        middle = show(statistics.median(of_pairs))
        text += f" (by pair: {middle}, quartiles {paired.show_quartiles(of_pairs)})"
    if metric not in OF_PLAIN:
        return text
    # A quantile is compared with the plain one of Odradek, in which Kafka's does not occur.
    ours = [paired.middle(record, f"{kind}{load}", NAMES[0], metric) for kind in KINDS]
    is_latency = metric in paired.QUANTILES
    judge = partial(judged_latency, middles=ours) if is_latency else judged
    return f"{text}; {judge(found, OF_PLAIN[metric])}"


# --- coordination ---


def at_least_kafka(*rows: str) -> Targets:
    """The bounds of rows in which Odradek is not slower than Kafka and takes less CPU."""
    bounds: Targets = {"rate": (">=", 1.0), "cpu_ms": ("<", 1.0)}
    return {f"{row}.{metric}": bound for row in rows for metric, bound in bounds.items()}


class Commits(RatioRows):
    name = "commits"
    title = "OffsetCommit"
    minutes = 6
    groups = alone(*coordination.COMMIT_ROWS, settings=NO_DELAY)
    targets: ClassVar[Targets] = at_least_kafka("commits_1", "commits_4")


class Transactions(RatioRows):
    name = "transactions"
    title = "transactions over two partitions"
    minutes = 4
    groups = alone(*coordination.TRANSACTION_ROWS, settings=NO_DELAY)
    targets: ClassVar[Targets] = at_least_kafka("transactions_1", "transactions_10")


class GroupJoin(RatioRows):
    name = "group-join"
    title = "fifty members to a stable group"
    minutes = 5
    groups = (
        *alone(*coordination.GROUP_ROWS, settings=NO_DELAY),
        *alone(*coordination.DELAYED_ROWS, settings=DELAY),
    )
    targets: ClassVar[Targets] = {f"group_{delay}.seconds": ("<=", 1.0) for delay in (0, 3000)}
