"""The work for a record by the number of brokers: simulated, and on processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.cluster_rows import MEASURED, produced
from benchmarks.evidence.experiment import (
    CommandExperiment,
    Context,
    Experiment,
    Measure,
    first_missing,
)
from benchmarks.evidence.record import Record, Values
from benchmarks.further_rows import PARTITIONS
from benchmarks.tables import show, table

BROKERS_MAX = 8
RUNS = 3
HEAD = [
    "brokers",
    "replicas",
    "messages of clients for 1,000 records",
    "messages between brokers for 1,000 records",
    "bytes between brokers for a record",
    "CPU of all brokers, us for a record",
    "records/s, one broker = 1",
]


class ClusterGrowth(CommandExperiment):
    """Units `N/RUN`: one simulated cluster of N brokers, with the same load for each broker.

    All runs of N brokers have the same seed, so only their CPU time differs.
    """

    name = "cluster-growth"
    title = "CPU time and messages for a record by the number of brokers, simulated"
    minutes = 5
    unit_s = 10.0
    jobs_max = 1
    is_timed = True

    def settings(self, scale: float) -> Values:
        return {"brokers_max": BROKERS_MAX, "runs": RUNS if scale >= 1.0 else 1}

    def next_unit(self, record: Record) -> str | None:
        settings = record.settings
        sizes = range(1, settings["brokers_max"] + 1)
        runs = range(1, settings["runs"] + 1)
        return first_missing([f"{brokers}/{run}" for run in runs for brokers in sizes], record)

    def command(self, record: Record, key: str) -> list[str]:
        brokers = key.partition("/")[0]
        seed = str(record.seed)
        return ["-m", "tests.simulation.growth", "--brokers", brokers, "--seed", seed]

    def snippets(self, record: Record) -> dict[str, str]:
        return {
            self.name: "\n".join([record.taken, "", *growth_table(list(record.values.values()))])
        }


def growth_table(runs: list[Values]) -> list[str]:
    """Return the table. The rate is that of brokers which each use one processor completely."""
    by_size: dict[int, list[Values]] = {}
    for values in runs:
        by_size.setdefault(values["brokers"], []).append(values)
    rows: list[list[str]] = []
    alone_us = None
    for brokers, found in sorted(by_size.items()):
        first = found[0]
        cpu_us = median(each["cpu_s"] / each["records"] for each in found) * 1e6
        alone_us = cpu_us if brokers == 1 else alone_us
        rate = "-" if alone_us is None else show(brokers * alone_us / cpu_us)
        thousands = first["records"] / 1000
        rows.append([
            str(brokers),
            str(first["replicas"]),
            show(first["client_messages"] / thousands),
            show(first["broker_messages"] / thousands),
            show(first["broker_bytes"] / first["records"]),
            show(cpu_us),
            rate,
        ])  # fmt: skip
    return table(HEAD, rows)


MEASURED_BROKERS = (1, 2, 3)
WARM_UP = 0.2
"""Scale of the load before the measured one."""
MEASURED_HEAD = [
    "brokers",
    "replicas",
    "records/s, median (all)",
    "CPU of all processes, us for a record, median (all)",
]


class ClusterGrowthMeasured(Experiment):
    """Units `N/RUN`: one cluster of N broker processes. Each leads 12 partitions."""

    name = "cluster-growth-measured"
    title = "rate and CPU time for a record with one, two and three broker processes"
    minutes = 8
    unit_s = 50.0
    is_timed = True

    def settings(self, scale: float) -> Values:
        return {"brokers": list(MEASURED_BROKERS), "runs": RUNS if scale >= 1.0 else 1}

    def next_unit(self, record: Record) -> str | None:
        runs = range(1, record.settings["runs"] + 1)
        sizes = record.settings["brokers"]
        return first_missing([f"{size}/{run}" for run in runs for size in sizes], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        def measure(key: str) -> Values:
            size = int(key.partition("/")[0])
            place = context.work / key.replace("/", "-")
            with MEASURED["odradek"](place, brokers=size) as cluster:
                for scale in (WARM_UP * record.scale, record.scale):
                    found = produced(cluster, "", scale, PARTITIONS * size, size)
                return {"brokers": size, "replicas": cluster.replication_factor, **found}

        yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        by_size: dict[int, list[Values]] = {}
        for values in record.values.values():
            by_size.setdefault(values["brokers"], []).append(values)
        rows = []
        for size, found in sorted(by_size.items()):
            rates = [each["rate"] for each in found]
            # CPU-seconds for a million records are microseconds for a record.
            shown = [
                f"{show(median(values))} ({', '.join(map(show, values))})"
                for values in (rates, [each["cpu_s"] for each in found])
            ]
            rows.append([str(size), str(found[0]["replicas"]), *shown])
        return {self.name: "\n".join([record.taken, "", *table(MEASURED_HEAD, rows)])}
