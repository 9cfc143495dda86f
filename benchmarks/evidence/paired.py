"""Rows that two brokers run in pairs, as units `GROUP/PAIR` of a record.

Both brokers of a session run for the whole of it, and one is driven at a time. Each group of rows
has a warm-up pair in each session, which is not recorded. The order of the brokers, and of the
rows of a group, changes from pair to pair. The rows of a group are compared with one another. A JVM
goes on compiling for gigabytes of load. If two rows were measured one after another, the second row
would therefore meet a faster Kafka.

A target that lies between the quartiles of the paired ratios is not decided by their median. The
group then runs as many pairs again, directly after its first pairs, and all values count.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.commits_verdict import pool, quantile, quartiles
from benchmarks.evidence.experiment import Context, Experiment, Measure, first_missing, pairs_at
from benchmarks.evidence.record import Record, Values
from benchmarks.loads import Driven, Running, drop_topic, fresh_topic
from benchmarks.tables import show
from testkit.peer.server import STARTERS

NAMES = ("odradek", "kafka")
PAIRS = 9
HISTOGRAM = "histogram_us"
LATENCIES = "latencies_us"
QUANTILES = {"p50": 0.50, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True, slots=True)
class Row:
    """One load. `metrics` maps each metric that `run` measures to its unit.

    `run` takes a broker, a fresh topic of one partition and the scale. It may return each
    record's microseconds as `latencies_us`.
    """

    key: str
    title: str
    metrics: dict[str, str]
    run: Callable[[Any, str, float], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are measured alternately within each pair, on brokers with these settings."""

    key: str
    rows: tuple[Row, ...]
    settings: Mapping[str, str] | None = None


def alone(*rows: Row, settings: Mapping[str, str] | None = None) -> tuple[Group, ...]:
    """A group for each row."""
    return tuple(Group(row.key, (row,), settings) for row in rows)


Starters = Mapping[str, Callable[[Path, Mapping[str, str] | None], Running]]
"""A function for each side, which starts it in a directory with these settings."""


class PairedRows(Experiment):
    """Groups of rows, each measured `pairs` times on both brokers."""

    has_peer = True
    is_timed = True
    pairs = PAIRS
    warm_up_pairs = 1
    """The first pairs of each group in a session, which are not recorded."""
    groups: tuple[Group, ...] = ()
    starters: Starters = STARTERS

    def settings(self, scale: float) -> Values:
        rows = [row for group in self.groups for row in group.rows]
        described = {row.key: {"title": row.title, "metrics": row.metrics} for row in rows}
        pairs = pairs_at(scale, self.pairs)
        return {"pairs": pairs, "more_pairs": pairs, "rows": described}

    def next_unit(self, record: Record) -> str | None:
        pairs, more = record.settings["pairs"], record.settings["more_pairs"]
        first = of_first_pairs(record)
        for group, rows in self.rows_of_groups().items():
            missing = first_missing(unit_keys(group, 1, pairs), record)
            if missing is None and any(self.is_undecided(first, row) for row in rows):
                missing = first_missing(unit_keys(group, pairs + 1, pairs + more), record)
            if missing is not None:
                return missing
        return None

    def rows_of_groups(self) -> dict[str, tuple[str, ...]]:
        """The keys of the rows that the units of each group have."""
        return {group.key: tuple(row.key for row in group.rows) for group in self.groups}

    def is_undecided(self, record: Record, row: str) -> bool:
        """Return whether a target of the row lies between the quartiles of the paired ratios."""
        return False

    def also(self, brokers: Mapping[str, Driven]) -> Values:
        """More values of the running brokers for the record of a unit, by row."""
        return {}

    def measure_other(self, key: str, context: Context) -> Values:
        """Measure a unit that belongs to no group, while neither broker runs."""
        raise KeyError(key)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        with ExitStack() as stack:
            running = _Brokers(stack, context, self.starters)
            warm: set[str] = set()
            groups = {group.key: group for group in self.groups}

            def measure(key: str) -> Values:
                name, _, pair = key.rpartition("/")
                if name not in groups:
                    running.stop()
                    return self.measure_other(key, context)
                brokers = running.of(groups[name].settings)
                if name not in warm:
                    for number in range(self.warm_up_pairs):
                        measure_pair(groups[name].rows, brokers, number, record.scale)
                    warm.add(name)
                found = measure_pair(groups[name].rows, brokers, int(pair), record.scale)
                return {**found, **self.also(brokers)}

            yield measure


class _Brokers:
    """The two brokers with the settings of the last request."""

    def __init__(self, stack: ExitStack, context: Context, starters: Starters) -> None:
        self._context = context
        self._starters = starters
        self._settings: Mapping[str, str] | None = None
        self._brokers: dict[str, Running] = {}
        self._count = 0
        stack.callback(self.stop)

    def of(self, settings: Mapping[str, str] | None) -> dict[str, Running]:
        if not self._brokers or settings != self._settings:
            self.stop()
            self._count += 1
            work = self._context.work / f"brokers-{self._count}"
            for name in NAMES:
                self._brokers[name] = self._starters[name](work / name, settings)
            self._settings = settings
        return self._brokers

    def stop(self) -> None:
        while self._brokers:
            self._brokers.popitem()[1].stop()


def measure_pair(
    rows: tuple[Row, ...], brokers: Mapping[str, Any], pair: int, scale: float
) -> Values:
    """One run of each row on each broker; the order alternates from pair to pair."""
    found: Values = {row.key: {} for row in rows}
    order = [(row, name) for row in rows for name in brokers]
    for row, name in order if pair % 2 == 0 else order[::-1]:
        found[row.key][name] = counted(run_once(row, brokers[name], scale))
    return found


def run_once(row: Row, broker: Driven, scale: float) -> dict[str, Any]:
    """One load on one broker, with a topic of its own."""
    topic = fresh_topic(broker)
    os.sync()
    found = row.run(broker, topic, scale)
    drop_topic(broker, topic)
    return found


def counted(measured: dict[str, Any]) -> Values:
    """The metrics with a histogram instead of each record's microseconds."""
    counts = Counter(measured.get(LATENCIES, ()))
    found: Values = {key: value for key, value in measured.items() if key != LATENCIES}
    if counts:
        found[HISTOGRAM] = {str(us): counts[us] for us in sorted(counts)}
    return found


# --- units ---


def unit_keys(group: str, first: int, last: int) -> list[str]:
    """The units of the pairs `first` to `last` of a group."""
    return [f"{group}/{pair}" for pair in range(first, last + 1)]


def of_first_pairs(record: Record) -> Record:
    """The record without the pairs that were added. They must not change what is undecided."""
    pairs = record.settings["pairs"]
    return replace(
        record,
        units=[
            unit
            for unit in record.units
            if not unit.failure and int(unit.key.rpartition("/")[2]) <= pairs
        ],
    )


# --- values computed from the raw values ---


def runs(record: Record, row: str) -> dict[str, list[Values]]:
    """The runs of a row by broker, Odradek first, in the order of the pairs."""
    found: dict[str, list[Values]] = {}
    for values in record.values.values():
        for name, run in values.get(row, {}).items():
            found.setdefault(name, []).append(run)
    # The record has the order in which the first pair was run.
    return {name: found[name] for name in sorted(found, key=lambda name: name != NAMES[0])}


def each(record: Record, row: str, name: str, metric: str) -> list[float]:
    """Return a metric's values in the order of the pairs. Each pair has its own quantile."""
    return [
        quantile(run[HISTOGRAM], QUANTILES[metric])
        if metric in QUANTILES and HISTOGRAM in run
        else run[metric]
        for run in runs(record, row)[name]
    ]


def is_pooled(record: Record, row: str, metric: str) -> bool:
    """Whether a metric is a quantile of the records of all pairs together."""
    return metric in QUANTILES and (
        "pooled" in record.settings["rows"][row]
        or all(HISTOGRAM in run for run in runs(record, row)[NAMES[0]])
    )


def middle(record: Record, row: str, name: str, metric: str) -> float:
    """A broker's value: the median of the pairs, or the quantile of the records of all pairs."""
    if not is_pooled(record, row, metric):
        return statistics.median(each(record, row, name, metric))
    # Records from before 2026-11-23 have the quantiles of all pairs, and no histograms.
    if (known := record.settings["rows"][row].get("pooled")) is not None:
        return float(known[name][metric])
    return quantile(pool([run[HISTOGRAM] for run in runs(record, row)[name]]), QUANTILES[metric])


def sides(record: Record, row: str) -> tuple[str, str]:
    """Return the names of Odradek and of the broker or program compared with it."""
    other = next(name for name in runs(record, row) if name != NAMES[0])
    return NAMES[0], other


def paired_ratios(record: Record, row: str, metric: str) -> list[float]:
    """Return Odradek : the other for each pair, or nan if the other's CPU time read zero."""
    ours, theirs = (each(record, row, name, metric) for name in sides(record, row))
    return [quotient(*pair) for pair in zip(ours, theirs, strict=True)]


def ratio(record: Record, row: str, metric: str) -> float:
    """Return the median of the paired ratios. For a pooled quantile, return the single ratio."""
    if is_pooled(record, row, metric):
        ours, theirs = (middle(record, row, name, metric) for name in sides(record, row))
        return quotient(ours, theirs)
    return statistics.median(paired_ratios(record, row, metric))


def is_between_quartiles(bound: float, ratios: list[float]) -> bool:
    """Return whether the quartiles straddle a bound. Ratios that are not a number do not count."""
    numbers = [ratio for ratio in ratios if ratio == ratio]
    if not numbers:
        return False
    low, high = quartiles(numbers)
    return low < bound < high


def show_quartiles(ratios: list[float]) -> str:
    """Format the quartiles of some ratios, for example `1.3 to 1.37`."""
    numbers = [ratio for ratio in ratios if ratio == ratio]
    return " to ".join(map(show, quartiles(numbers))) if numbers else "-"


def quotient(above: float, below: float) -> float:
    return above / below if below else float("nan")
