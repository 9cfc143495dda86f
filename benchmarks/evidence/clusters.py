"""Clusters of three brokers, compared with three combined nodes of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from benchmarks import cluster_failures, cluster_rows
from benchmarks.cluster_failures import SAMPLED, SESSION_MS
from benchmarks.cluster_rows import BROKERS, MEASURED, first_response_s
from benchmarks.commits_verdict import pool, quantile
from benchmarks.evidence.compared import (
    RatioRows,
    Targets,
    all_values,
    more_pairs,
    ratio_table,
    tuned,
)
from benchmarks.evidence.experiment import Context, Experiment, Measure, first_missing
from benchmarks.evidence.paired import NAMES, alone
from benchmarks.evidence.record import Record, Values
from benchmarks.loads import MILLION
from benchmarks.many_partitions import allow_open_files, fill
from benchmarks.tables import judged, median, show, table
from benchmarks.tuning import Tuning, cluster_tuning
from testkit.peer.cluster import ClusterProcesses

START = "start"
WARM_UP_PAIRS = 3


class ClusterRows(RatioRows):
    """Rows of `benchmarks.cluster_rows`, then starts of new clusters."""

    name = "cluster"
    title = "a cluster of three brokers: produce, latency, memory, start, idle CPU, transactions"
    minutes = 60
    unit_s = 60.0
    warm_up_pairs = WARM_UP_PAIRS
    starters = MEASURED
    groups = alone(*cluster_rows.ROWS)
    targets: ClassVar[Targets] = {
        "produce_12.rate": (">=", 1.5),
        "produce_12.cpu_s": ("<=", 0.45),
        "produce_12.memory_mib": ("<=", 0.15),
        "produce_1.rate": (">=", 1.3),
        "produce_1.cpu_s": ("<=", 0.4),
        "latency.p50": ("<=", 1.1),
        "latency.p99": ("<=", 0.5),
        "idle_12.cpu_ms": ("<=", 0.5),
        "transactions_1.rate": (">=", 1.0),
        "transactions_10.rate": (">=", 1.0),
        "start.s": ("<=", 0.3),
    }

    def settings(self, scale: float) -> Values:
        found = super().settings(scale)
        found["warm_up_pairs"] = self.warm_up_pairs
        found["rows"][START] = {
            "title": "start of all processes to the first acks=all response",
            "metrics": {"s": "s"},
        }
        return found

    def rows_of_groups(self) -> dict[str, tuple[str, ...]]:
        return {**super().rows_of_groups(), START: (START,)}

    def measure_other(self, key: str, context: Context) -> Values:
        pair = int(key.removeprefix(f"{START}/"))
        found = {}
        # The warm-up pair reads the programs into the page cache.
        for number in (0, pair) if pair == 1 else (pair,):
            for name in NAMES if number % 2 == 0 else NAMES[::-1]:
                place = context.work / f"start-{number}-{name}"
                start = MEASURED[name]
                found[name] = {"s": first_response_s(lambda s=start, p=place: s(p, wait=False))}  # type: ignore[misc]
        return {START: found}

    def tuning(self) -> Tuning:
        return cluster_tuning()

    def snippets(self, record: Record) -> dict[str, str]:
        return {self.name: "\n".join(paired_table(record, self.targets))}


def paired_table(record: Record, targets: Targets) -> list[str]:
    """Return the text of a record of paired rows."""
    pairs, warm_up = record.settings["pairs"], record.settings["warm_up_pairs"]
    text = [f"{pairs} alternating pairs after {warm_up} warm-up pairs. {record.taken}", ""]
    lines = [*text, *more_pairs(record), *tuned(record)]
    return [*lines, *ratio_table(record, targets), *all_values(record)]


class ClusterPartitions(RatioRows):
    """Restarts of both clusters with 10,000 partitions."""

    name = "cluster-partitions"
    title = "a cluster of three brokers with 10,000 partitions: start, memory, idle CPU"
    minutes = 45
    unit_s = 150.0
    warm_up_pairs = WARM_UP_PAIRS
    starters = MEASURED
    groups = alone(*cluster_failures.MANY_ROWS)
    targets: ClassVar[Targets] = {
        "many.start_s": ("<=", 0.5),
        "many.memory_mib": ("<=", 0.2),
        "many.cpu_ms": ("<=", 0.3),
    }

    def settings(self, scale: float) -> Values:
        return {**super().settings(scale), "warm_up_pairs": self.warm_up_pairs}

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        allow_open_files()
        with super().session(record, context) as measure:
            yield measure

    def tuning(self) -> Tuning:
        return cluster_tuning()

    def snippets(self, record: Record) -> dict[str, str]:
        return {self.name: "\n".join(paired_table(record, self.targets))}


class ClusterFailover(Experiment):
    """Units `PARTITIONS/VICTIM`: both clusters, one after the other, lose the same broker."""

    name = "cluster-failover"
    title = "time after a SIGKILL of a broker until 100 sampled partitions acknowledge again"
    minutes = 40
    unit_s = 180.0
    has_peer = True
    is_timed = True
    sizes: ClassVar[dict[int, float]] = {1_000: 1.5, 10_000: 5.0}
    """Number of partitions, and the seconds after the session timeout that are permitted."""
    later_than_kafka_s = 1.0

    def settings(self, scale: float) -> Values:
        sizes = [max(100, round(size * scale)) for size in self.sizes]
        return {"partitions": sizes, "session_ms": SESSION_MS, "sampled": SAMPLED}

    def next_unit(self, record: Record) -> str | None:
        sizes = record.settings["partitions"]
        victims = range(1, BROKERS + 1)
        keys = [f"{size}/{victim}" for size in sizes for victim in victims]
        return first_missing(keys, record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        allow_open_files()
        running: dict[str, ClusterProcesses] = {}
        size_now = 0

        def stop() -> None:
            while running:
                running.popitem()[1].stop()

        def measure(key: str) -> Values:
            nonlocal size_now
            size, victim = map(int, key.split("/"))
            if size != size_now:
                stop()
                for name in NAMES:
                    place = context.work / f"{name}-{size}"
                    running[name] = MEASURED[name](place, cluster_failures.SETTINGS[name])
                    fill(running[name], size)
                    cluster_failures.await_in_sync(running[name])
                size_now = size
            order = NAMES if victim % 2 else NAMES[::-1]
            return {name: cluster_failures.killed(running[name], victim, size) for name in order}

        try:
            yield measure
        finally:
            stop()

    def tuning(self) -> Tuning:
        return cluster_tuning()

    def snippets(self, record: Record) -> dict[str, str]:
        rows = []
        limits = dict(zip(record.settings["partitions"], self.sizes.values(), strict=True))
        for key, unit in record.values.items():
            size, victim = map(int, key.split("/"))
            ours, theirs = (unit[name]["seconds"] for name in NAMES)
            limit = record.settings["session_ms"] / 1000 + limits[size]
            limit = min(limit, max(theirs) + self.later_than_kafka_s)
            shown = [
                f"{show(median(each))} ({show(min(each))} to {show(max(each))})"
                for each in (ours, theirs)
            ]
            verdict = judged(max(ours), ("<=", round(limit, 2)))
            rows.append([f"{size:,}", str(victim), *shown, verdict])
        columns = ["partitions", "killed broker", "Odradek: s, median (all)",
                   "Apache Kafka: s, median (all)", "latest, target"]  # fmt: skip
        text = [record.taken, "", *tuned(record), *table(columns, rows)]
        return {self.name: "\n".join(text)}


class ClusterDrain(Experiment):
    """Units `PARTITIONS/BROKER`: a drain of each broker of an Odradek cluster."""

    name = "cluster-drain"
    title = "gaps between acknowledgements while a broker is drained"
    minutes = 6
    unit_s = 30.0
    is_timed = True
    sizes: ClassVar[tuple[int, ...]] = (1_000, 10_000)
    gap_s = 0.5

    def settings(self, scale: float) -> Values:
        return {"partitions": [max(100, round(size * scale)) for size in self.sizes]}

    def next_unit(self, record: Record) -> str | None:
        keys = [
            f"{size}/{broker}"
            for size in record.settings["partitions"]
            for broker in range(1, BROKERS + 1)
        ]
        return first_missing(keys, record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        allow_open_files()
        running: dict[int, ClusterProcesses] = {}

        def measure(key: str) -> Values:
            size, broker = map(int, key.split("/"))
            if size not in running:
                while running:
                    running.popitem()[1].stop()
                running[size] = MEASURED["odradek"](context.work / f"drain-{size}")
                fill(running[size], size)
                cluster_failures.await_in_sync(running[size])
            return cluster_failures.drained(running[size], broker, size)

        try:
            yield measure
        finally:
            for cluster in running.values():
                cluster.stop()

    def snippets(self, record: Record) -> dict[str, str]:
        rows = []
        for key, unit in record.values.items():
            size, broker = map(int, key.split("/"))
            gap = unit["gap_s"]
            rows.append([f"{size:,}", str(broker), show(unit["drain_s"]),
                         show(unit["resting_gap_s"]), show(gap), judged(gap, ("<", self.gap_s)),
                         str(unit["errors"])])  # fmt: skip
        columns = ["partitions", "drained broker", "duration, s", "largest gap before, s",
                   "largest gap, s", "target", "failed records"]  # fmt: skip
        return {self.name: "\n".join([record.taken, "", *table(columns, rows)])}


class ClusterCatchUp(Experiment):
    """Units `return/N`: a broker returns to an Odradek cluster and lacks a gigabyte."""

    name = "cluster-catch-up"
    title = "speed of a returning replica, and latency at 2,000 records/s in the meantime"
    minutes = 10
    unit_s = 60.0
    is_timed = True
    returns = 5
    mb_s = 100.0
    times_resting = 2.0

    def settings(self, scale: float) -> Values:
        return {"returns": self.returns}

    def next_unit(self, record: Record) -> str | None:
        numbers = range(1, record.settings["returns"] + 1)
        return first_missing([f"return/{number}" for number in numbers], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        with MEASURED["odradek"](context.work / "catch-up") as cluster:
            yield lambda key: cluster_failures.returned(
                cluster, 1 + int(key.removeprefix("return/")) % BROKERS, record.scale
            )

    def snippets(self, record: Record) -> dict[str, str]:
        units = list(record.values.values())
        rates = [unit["bytes"] / MILLION / unit["in_sync_s"] for unit in units]
        pooled = {key: pool([unit[key] for unit in units]) for key in ("resting_us", "during_us")}
        p99 = {key: quantile(counts, 0.99) for key, counts in pooled.items()}
        ratio = p99["during_us"] / p99["resting_us"]
        rows = [
            ["catch-up, MB/s, median", show(median(rates)),
             judged(median(rates), (">=", self.mb_s))],
            ["p99 at rest, µs, all returns together", show(p99["resting_us"]), ""],
            ["p99 during the catch-up, µs, all returns together", show(p99["during_us"]), ""],
            ["ratio of the two", show(ratio), judged(ratio, ("<", self.times_resting))],
            ["catch-up, MB/s, all returns", ", ".join(map(show, rates)), ""],
        ]  # fmt: skip
        return {self.name: "\n".join([record.taken, "", *table(["", "value", "target"], rows)])}
