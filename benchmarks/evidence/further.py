"""Further comparisons: more rows, equal sockets, a minimal C program, and a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from benchmarks import further_rows, minimal_broker, profiles
from benchmarks.compaction_beside import SETTINGS
from benchmarks.equal_sockets import EQUAL_SETTINGS, NamespaceUnavailable, observed, own_network
from benchmarks.evidence.compared import NO_DELAY, FirstTable, RatioRows, Targets, load_row
from benchmarks.evidence.experiment import Context, Experiment, Measure, NotRun, first_missing
from benchmarks.evidence.paired import alone
from benchmarks.evidence.record import Record, Values
from benchmarks.loads import LOADS, Driven
from benchmarks.tables import CAPTIONS, judged, show, table
from benchmarks.tuning import Tuning, equal_tuning
from testkit.peer.server import start_odradek

SIDES = {
    minimal_broker.ODRADEK: "Odradek",
    minimal_broker.C_EACH: "C program",
    minimal_broker.C_TOGETHER: "C program, one send a receive",
}


class FurtherRows(RatioRows):
    name = "further-rows"
    title = "12 partitions, 50 committing connections, franz-go, lookups, a compacted topic"
    minutes = 35
    groups = (
        *alone(*further_rows.ROWS, settings=NO_DELAY),
        *alone(*further_rows.COMPACTED_ROWS, settings=SETTINGS),
    )
    targets: ClassVar[Targets] = {
        "many_partitions.rate": (">=", 1.2),
        "many_partitions.cpu_s": ("<=", 0.5),
    }


class EqualSockets(FirstTable):
    """The first table in a network namespace of its own, with equal settings of the sockets."""

    name = "first-table-equal"
    title = "the first table with equal congestion control and send buffers"
    minutes = 40
    groups = alone(
        *(load_row(load, load.key, load.title, load.run) for load in LOADS),
        settings=EQUAL_SETTINGS,
    )

    def tuning(self) -> Tuning:
        return equal_tuning()

    def is_undecided(self, record: Record, row: str) -> bool:
        """Add no pairs: the targets are those of the table as shipped."""
        return False

    def also(self, brokers: Mapping[str, Driven]) -> Values:
        """Return the state of an accepted socket of each broker, in addition to the memory."""
        found = super().also(brokers)
        states = {name: observed(broker.bootstrap) for name, broker in brokers.items()}
        found["socket"] = {name: {"state": str(state)} for name, state in states.items() if state}
        return found

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        try:
            with own_network(), super().session(record, context) as measure:
                yield measure
        except NamespaceUnavailable as error:
            raise NotRun(str(error)) from error

    def snippets(self, record: Record) -> dict[str, str]:
        lines = [f"- {line}" for line in socket_states(record)]
        return {self.name: "\n".join([*lines, "", super().snippets(record)[self.name]])}


def socket_states(record: Record) -> list[str]:
    """Return the kernel's states of each broker's sockets, each state once."""
    seen: dict[str, None] = {}
    for unit in record.values.values():
        for name, found in unit.get("socket", {}).items():
            seen[f"A socket of {CAPTIONS[name]} in the kernel: {found['state']}."] = None
    return list(seen)


class CProgram(Experiment):
    """Units `ROW/RUN`: each side once, in alternating order."""

    name = "c-program"
    title = "CPU per produce request, compared with a minimal C program"
    minutes = 2
    unit_s = 20.0
    is_timed = True
    bounds: ClassVar[dict[str, float]] = {
        "one_record": 1.7,
        "fifty_records": 1.65,
        "large_batch": 1.15,
    }

    def settings(self, scale: float) -> Values:
        return {"runs": minimal_broker.RUNS, "in_flight": minimal_broker.IN_FLIGHT}

    def next_unit(self, record: Record) -> str | None:
        runs = range(1, record.settings["runs"] + 1)
        keys = [f"{size.key}/{run}" for size in minimal_broker.SIZES for run in runs]
        return first_missing(keys, record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        sizes = {size.key: size for size in minimal_broker.SIZES}
        comparison = minimal_broker.Comparison(context.work)

        def measure(key: str) -> Values:
            row, _, run = key.partition("/")
            return dict(comparison.measure(sizes[row], int(run), record.scale))

        yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        lines, values = [], []
        for size in minimal_broker.SIZES:
            runs = [v for key, v in record.values.items() if key.startswith(f"{size.key}/")]
            if not runs:
                continue
            each = {side: [run[side][minimal_broker.METRIC] for run in runs] for side in SIDES}
            ratio = minimal_broker.least_ratio(runs, minimal_broker.C_EACH)
            together = minimal_broker.least_ratio(runs, minimal_broker.C_TOGETHER)
            lines.append(
                [
                    size.title,
                    *(show(min(each[side])) for side in SIDES),
                    show(ratio),
                    judged(ratio, ("<=", self.bounds[size.key])),
                    show(together),
                ]
            )
            values += [[size.title, SIDES[side], ", ".join(map(show, each[side]))]
                       for side in SIDES]  # fmt: skip
        columns = ["CPU-µs a request, least", *SIDES.values(), "ratio", "target",
                   "ratio to the C program with one send a receive"]  # fmt: skip
        text = [record.taken, "", *table(columns, lines), ""]
        text += table(["all values, CPU-µs a request", "", ""], values)
        return {self.name: "\n".join(text)}


class Profile(Experiment):
    """A unit for each load, on one broker."""

    name = "profile"
    title = "where the broker's CPU time goes under the loads of the tables"
    minutes = 5
    unit_s = 60.0
    is_timed = True
    least_share = 0.01
    functions = 6

    def settings(self, scale: float) -> Values:
        loads = {profiled.key: profiled.title for profiled in profiles.PROFILED}
        return {"samples_a_second": profiles.SAMPLES_A_SECOND, "loads": loads}

    def next_unit(self, record: Record) -> str | None:
        return first_missing(list(record.settings["loads"]), record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        loads = {profiled.key: profiled for profiled in profiles.PROFILED}
        with start_odradek(context.work / "odradek", NO_DELAY) as broker:

            def measure(key: str) -> Values:
                try:
                    return profiles.measure(loads[key], broker, context.work, record.scale)
                except profiles.PerfUnavailable as error:
                    raise NotRun(str(error)) from error

            yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        titles: dict[str, str] = record.settings["loads"]
        units = {key: unit for key, unit in record.values.items() if unit["samples"]}
        shares = {key: shares_of(unit["places"]) for key, unit in units.items()}
        kernel = [kernel_share(each) for each in shares.values()]
        rows = [
            ["**kernel**", *map(percent, kernel)],
            ["**Python and libraries**", *(percent(1 - share) for share in kernel)],
        ]
        largest = {
            place: max(each.get(place, 0.0) for each in shares.values())
            for place in {place for each in shares.values() for place in each}
        }
        for place in sorted(largest, key=lambda place: (-largest[place], place)):
            if largest[place] >= self.least_share:
                found = [percent(each.get(place, 0.0)) for each in shares.values()]
                rows.append([place, *found])
        rows.append(["samples", *(f"{unit['samples']:,}" for unit in units.values())])
        columns = ["share of the CPU time", *(titles[key] for key in units)]
        text = [record.taken, "", *table(columns, rows), ""]
        functions = [[titles[key], self._functions(unit)] for key, unit in units.items()]
        text += table(["load", "functions with the most samples"], functions)
        return {self.name: "\n".join(text)}

    def _functions(self, unit: Values) -> str:
        first = list(shares_of(unit["functions"], unit["samples"]).items())[: self.functions]
        return ", ".join(f"`{name}` {percent(share)}" for name, share in first)


KERNEL = "kernel: "


def shares_of(counts: dict[str, int], all_counts: int = 0) -> dict[str, float]:
    return {name: count / (all_counts or sum(counts.values())) for name, count in counts.items()}


def kernel_share(shares: dict[str, float]) -> float:
    return sum(share for place, share in shares.items() if place.startswith(KERNEL))


def percent(share: float) -> str:
    return f"{share:.1%}"
