"""Simulated hours of a cluster, in batches of seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.evidence.experiment import (
    CommandExperiment,
    Context,
    Measure,
    NotRun,
)
from benchmarks.evidence.kills import failed_lines
from benchmarks.evidence.record import Record, Unit, Values
from benchmarks.tables import table
from testkit.source_state import git

SIMULATOR = "tests/simulation"
HOURS_ALL = 400.0
"""200 hours of idempotent producers and consumers, to 1093d69, and 200 more with transactional
producers and members of groups.
"""
HOURS_FINAL = 30.0
RUNS_EACH = 25
REPLICAS = 3
HOUR_S = 3600
COVERAGE = {
    "operations": "operations",
    "leader changes": "leader changes",
    "logs truncated": "truncations",
    "ISR changes": "ISR changes",
    "session expiries": "session expiries",
    "controller changes": "controller changes",
    "unclean stops": "unclean stops",
    "unclean elections": "unclean elections",
    "partitions that may lose records": "partitions without the rules on acknowledged records",
}
"""Counts of a batch that the record keeps, and their columns."""


@dataclass(frozen=True, slots=True)
class Load:
    """Brokers and rates of some batches. Their seeds begin at `first`."""

    name: str
    brokers: int
    first: int

    @property
    def prefix(self) -> str:
        return f"{self.name} {self.brokers}/"

    def arguments(self) -> list[str]:
        rates = ["--nominal"] if self.name == "nominal" else []
        return ["--brokers", str(self.brokers), *rates]


LOADS = (
    Load("nominal", 3, 1_000_000),
    Load("swarm", 3, 2_000_000),
    Load("nominal", 3, 1_000_000),
    Load("swarm", 5, 3_000_000),
)
"""Batches alternate in this order. `nominal`: two operations of clients a second, and a fault every
ten seconds. `swarm`: the seed decides both rates."""


class Simulations(CommandExperiment):
    """Units `LOAD BROKERS/FIRST SEED`. Units of earlier commits of src/ stay in the record.

    Runs go on until they have enough hours in all, and enough hours on this commit of src/ after
    the last violation. The record also has batches that were run by hand (`simulation_import`).
    """

    name = "simulation"
    title = "simulated hours of a cluster with faults, and their coverage"
    minutes = 400
    unit_s = 120.0
    timeout_s = 3000.0
    keeps_earlier = True

    def settings(self, scale: float) -> Values:
        return {
            "hours_all": HOURS_ALL * scale,
            "hours_final": HOURS_FINAL * scale,
            "runs_each": max(1, round(RUNS_EACH * min(1.0, scale))),
        }

    def next_unit(self, record: Record) -> str | None:
        settings = record.settings
        enough = hours(_batches(record)) >= settings["hours_all"]
        if enough and hours(after_last_violation(record)) >= settings["hours_final"]:
            return None
        load = LOADS[sum(_is_planned(unit) for unit in record.units) % len(LOADS)]
        ends = [
            _end_of(unit, settings) for unit in record.units if unit.key.startswith(load.prefix)
        ]
        return f"{load.prefix}{max(ends, default=load.first)}"

    def command(self, record: Record, key: str) -> list[str]:
        load = next(load for load in LOADS if key.startswith(load.prefix))
        first = key.removeprefix(load.prefix)
        return ["-m", "tests.simulation", *load.arguments(), "--seed", first,
                "--runs", str(record.settings["runs_each"]), "--replicas", str(REPLICAS),
                "--keep-going", "--json"]  # fmt: skip

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        where = {
            "commit": git("rev-parse", "HEAD"),
            "src_commit": record.commit,
            "src_tree": record.src_tree,
        }
        refuse_changed_simulator()
        with super().session(record, context) as measure:
            yield lambda key: {**where, **kept(measure(key))}

    def snippets(self, record: Record) -> dict[str, str]:
        groups = grouped(record)
        lines = [self._head(record), "", *table(HEAD, [group.row() for group in groups])]
        covered = [group for group in groups if group.coverage]
        head = ["seeds", *COVERAGE.values()]
        lines += ["", *table(head, [group.coverage_row() for group in covered])]
        lines += [
            "",
            "The coverage of the other batches was not recorded.",
            *violation_lines(record),
            *failed_lines(record),
        ]
        return {self.name: "\n".join(lines), f"{self.name}.summary": self._head(record)}

    def _head(self, record: Record) -> str:
        batches = _batches(record)
        seeds = sum(int(values["runs"]) for values in batches)
        bad = sum(len(values["violations"]) for values in batches)
        of_commit = sum(len(values["violations"]) for values in _present(record))
        clean, commit = hours(after_last_violation(record)), f"commit `{record.commit[:7]}` of src/"
        last = f"The last {clean:.1f} hours are of {commit} and have no violation."
        if of_commit:
            last = (
                f"{of_commit} of these runs are of {commit}. The record has {clean:.1f} hours of "
                "that commit after the batch with the last of them."
            )
        return (
            f"{hours(batches):.1f} simulated hours in all, {seeds:,} runs, {bad} with a violation. "
            f"{last}"
        )

    def verdict(self, record: Record) -> str:
        if record.complete:
            return ""
        whole, clean = hours(_batches(record)), hours(after_last_violation(record))
        text = f"{whole:.1f} hours of all commits, {clean:.1f} of this one after its last violation"
        found = [seed for values in _present(record) for seed in values["violations"]]
        return f"{text}; violations of this commit: {', '.join(found)}" if found else text


HEAD = ["commit", "brokers", "load", "seeds", "runs", "simulated hours",
        "CPU for a simulated second", "runs with a violation"]  # fmt: skip


def kept(values: Values) -> Values:
    """Return the values of a batch with the counts that the record keeps, if it has counts."""
    counts = values["coverage"]
    found = {name: counts.get(name, 0) for name in COVERAGE} if counts else {}
    return {**values, "coverage": found}


def refuse_changed_simulator() -> None:
    """Raise NotRun if the simulator has uncommitted changes: its seeds would mean nothing."""
    if git("status", "--porcelain", "--", SIMULATOR):
        raise NotRun(f"{SIMULATOR} has uncommitted changes. Commit them first.")


def hours(batches: list[Values]) -> float:
    return sum(float(values["simulated_s"]) for values in batches) / HOUR_S


def after_last_violation(record: Record) -> list[Values]:
    """Return the batches of this commit of src/ after its last batch with a violation.

    They are all batches of the commit if none has a violation. Batches of earlier commits may have
    been added in between.
    """
    found: list[Values] = []
    for values in reversed(_present(record)):
        if values["violations"]:
            break
        found.append(values)
    return found[::-1]


def _batches(record: Record) -> list[Values]:
    return list(record.values.values())


def _present(record: Record) -> list[Values]:
    return [values for values in _batches(record) if values["src_tree"] == record.src_tree]


def _is_planned(unit: Unit) -> bool:
    return unit.key.startswith(tuple(load.prefix for load in LOADS))


def _end_of(unit: Unit, settings: Values) -> int:
    """Return the seed after those of a planned unit, which may be running."""
    first = int(unit.key.partition("/")[2])
    return first + int(unit.values.get("runs", settings["runs_each"]))


@dataclass(slots=True)
class Group:
    """Batches of the same commit and load, for one row of a table."""

    commit: str
    brokers: int
    replicas: int
    load: str
    seeds: list[tuple[int, int]] = field(default_factory=list)
    runs: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    measured_s: float = 0.0
    coverage: dict[str, int] = field(default_factory=dict)
    violations: int = 0

    def add(self, values: Values) -> None:
        self.seeds.append((int(values["first"]), int(values["first"]) + int(values["runs"])))
        self.runs += int(values["runs"])
        self.simulated_s += float(values["simulated_s"])
        if values["cpu_s"]:
            self.cpu_s += float(values["cpu_s"])
            self.measured_s += float(values["simulated_s"])
        self.violations += len(values["violations"])
        for name, count in values["coverage"].items():
            self.coverage[name] = self.coverage.get(name, 0) + int(count)

    @property
    def shown_seeds(self) -> str:
        """The ranges of seeds, where adjacent batches are one range."""
        ranges: list[list[int]] = []
        for first, end in sorted(self.seeds):
            if ranges and ranges[-1][1] == first:
                ranges[-1][1] = end
            else:
                ranges.append([first, end])
        return ", ".join(f"{a} to {b - 1}" if b - a > 1 else str(a) for a, b in ranges)

    def row(self) -> list[str]:
        cpu = f"{1000 * self.cpu_s / self.measured_s:.1f} ms" if self.measured_s else ""
        replicas = f", {self.replicas} replica" if self.replicas < REPLICAS else ""
        return [
            f"`{self.commit[:7]}`",
            f"{self.brokers}{replicas}",
            self.load,
            self.shown_seeds,
            f"{self.runs:,}",
            f"{self.simulated_s / HOUR_S:.2f}",
            cpu,
            str(self.violations or "none"),
        ]

    def coverage_row(self) -> list[str]:
        counts = (self.coverage.get(name) for name in COVERAGE)
        return [self.shown_seeds, *("" if count is None else f"{count:,}" for count in counts)]


def grouped(record: Record) -> list[Group]:
    """Return the rows of the table, in the order of the first batches.

    Batches with coverage and batches without it are in different rows.
    """
    found: dict[tuple[object, ...], Group] = {}
    for values in _batches(record):
        kind = (values["commit"], values["brokers"], values["replicas"], values["load"])
        key = (*kind, bool(values["coverage"]))
        found.setdefault(key, Group(*kind)).add(values)
    return list(found.values())


def violation_lines(record: Record) -> list[str]:
    """A list of the violations, for below the tables."""
    lines = [
        f"- `{values['commit'][:7]}`, seed {seed}: {what or 'not recorded'}"
        for values in _batches(record)
        for seed, what in values["violations"].items()
    ]
    return ["", "Violations:", "", *lines] if lines else []
