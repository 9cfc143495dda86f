"""The measurements that are not rows of loads in pairs: sizes, starts, loading, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from benchmarks import (
    compaction,
    compaction_beside,
    group_loading,
    many_partitions,
    other_brokers,
    scaling,
    startup,
)
from benchmarks.commits_verdict import pool, quantile
from benchmarks.evidence.compared import EQUAL_US, Targets, head
from benchmarks.evidence.experiment import (
    Context,
    Experiment,
    Measure,
    NotRun,
    first_missing,
    pairs_at,
)
from benchmarks.evidence.paired import NAMES
from benchmarks.evidence.record import Record, Values
from benchmarks.tables import CAPTIONS, MIB, judged, median, show, table
from benchmarks.tuning import Tuning, as_shipped

PAIRS = 9


class Partitions(Experiment):
    """Units `pair/N`: each broker is stopped and started with its partitions."""

    name = "partitions"
    title = "10,000 partitions on one node"
    minutes = 10
    unit_s = 90.0
    has_peer = True
    is_timed = True
    rows = (
        ("start_s", "start after a clean stop to the first response", "s", 1.0),
        ("served_s", "start to the partitions being served", "s", 1.0),
        ("stop_s", "clean stop", "s", 1.0),
        ("memory_bytes", "memory after the start", "MiB", MIB),
        ("open_files", "open files", "", 1.0),
        ("mapped_files", "mapped files", "", 1.0),
    )
    targets: ClassVar[Targets] = {"start_s": ("<=", 1.0), "memory_bytes": ("<=", 0.3)}

    def settings(self, scale: float) -> Values:
        count = max(many_partitions.TOPICS, int(many_partitions.PARTITIONS * scale))
        return {
            "pairs": pairs_at(scale, PAIRS),
            "partitions": count - count % many_partitions.TOPICS,
        }

    def next_unit(self, record: Record) -> str | None:
        return first_missing([f"pair/{n}" for n in range(1, record.settings["pairs"] + 1)], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        count = record.settings["partitions"]
        with many_partitions.running(NAMES, count, context.work) as measure_pair:
            measure_pair(0)
            yield lambda key: measure_pair(int(key.removeprefix("pair/")))

    def snippets(self, record: Record) -> dict[str, str]:
        units = list(record.values.values())
        if not units:
            return {self.name: record.taken}

        def middle(name: str, metric: str) -> float:
            return median([unit[name][metric] for unit in units])

        def idle_cost(name: str, metric: str) -> float:
            """The difference to the same broker before it had topics, for each partition."""
            without = median([unit[name]["empty"][metric] for unit in units])
            return (middle(name, metric) - without) / float(record.settings["partitions"])

        lines = []
        for metric, title, unit, per in self.rows:
            ratio = median([each["odradek"][metric] / each["kafka"][metric] for each in units])
            shown = [show(middle(name, metric) / per) for name in NAMES]
            verdict = judged(ratio, self.targets.get(metric))
            lines.append([title, unit, *shown, show(ratio), verdict])
        for metric, unit in (
            ("memory_bytes", "bytes"),
            ("open_files", "files"),
            ("mapped_files", "maps"),
        ):
            ours, theirs = (idle_cost(name, metric) for name in NAMES)
            ratio_shown = show(ours / theirs) if theirs else "-"
            lines.append(["an idle partition", unit, show(ours), show(theirs), ratio_shown, ""])
        created = [show(median([unit[name]["create_s"] for unit in units])) for name in NAMES]
        lines.append(["creation", "s", *created, "", ""])
        values = [
            [title, unit, CAPTIONS[name], ", ".join(show(each[name][key] / per) for each in units)]
            for key, title, unit, per in self.rows[:4]
            for name in NAMES
        ]
        columns = ["", "unit", "Odradek, median", "Kafka, median", "ratio", "target"]
        text = [*head(record), *table(columns, lines), ""]
        text += table(["all values", "unit", "", ""], values)
        return {self.name: "\n".join(text)}


class FirstPaper(Experiment):
    """Units `round/N`: each broker once, in alternating order."""

    name = "first-paper"
    title = "the table of Kafka's first paper, with RabbitMQ and ActiveMQ"
    minutes = 40
    unit_s = 300.0
    has_peer = True
    is_timed = True
    rows = (
        ("produce_1", "producer, one message a batch"),
        ("produce_50", "producer, batches of 50"),
        ("consume_1", "consumer of the first"),
        ("consume_50", "consumer of the second"),
    )

    def settings(self, scale: float) -> Values:
        return {"pairs": pairs_at(scale, PAIRS)}

    def tuning(self) -> Tuning:
        return {**as_shipped(), **other_brokers.versions()}

    def next_unit(self, record: Record) -> str | None:
        keys = [f"round/{number}" for number in range(1, record.settings["pairs"] + 1)]
        return first_missing(keys, record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        # A record without two of the brokers must not replace a record that has them.
        try:
            with other_brokers.running(NAMES, context.work) as measure_round:
                measure_round(0, record.scale)
                yield lambda key: measure_round(int(key.removeprefix("round/")), record.scale)
        except other_brokers.Missing as error:
            raise NotRun(str(error)) from error

    def snippets(self, record: Record) -> dict[str, str]:
        units = list(record.values.values())
        names = [name for name in CAPTIONS if units and all(name in unit for unit in units)]
        lines = []
        for metric, title in self.rows:
            cells = [
                f"{show(median([unit[name][metric] for unit in units]))} "
                f"({show(median([unit[name][f'{metric}_cpu_s'] for unit in units]))})"
                for name in names
            ]
            lines.append([title, *cells])
        text = [*head(record), *table(["", *(CAPTIONS[name] for name in names)], lines)]
        values = [
            [title, CAPTIONS[name], ", ".join(show(unit[name][metric]) for unit in units)]
            for metric, title in self.rows
            for name in names
        ]
        text += ["", *table(["all values, messages a second", "", ""], values)]
        return {self.name: "\n".join(text)}


class Scaling(Experiment):
    """Units `small` and `large`."""

    name = "scaling"
    title = "100 times the bytes in a partition"
    minutes = 10
    unit_s = 300.0
    is_timed = True
    rows = (
        ("start_ms", "start to the first response", "ms", 1.5),
        ("fetch_cpu_us", "CPU of a fetch", "µs", 1.2),
        ("fetch_p50_us", "fetch p50", "µs", 1.2),
    )

    def settings(self, scale: float) -> Values:
        small = int(scaling.SMALL_BYTES * scale)
        fetches = max(100, int(scaling.FETCHES * scale))
        return {"small": small, "large": small * scaling.FACTOR, "fetches": fetches}

    def next_unit(self, record: Record) -> str | None:
        return first_missing(["small", "large"], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        settings = record.settings
        yield lambda key: scaling.measure("odradek", settings[key], settings["fetches"])

    def snippets(self, record: Record) -> dict[str, str]:
        if record.keys != {"small", "large"}:
            return {self.name: record.taken}
        small, large = (record.values[key] for key in ("small", "large"))
        lines = []
        for key, title, unit, bound in self.rows:
            ratio = large[key] / small[key]
            verdict = judged(ratio, ("<=", bound))
            row = [f"{title}, {unit}", show(small[key]), show(large[key]), show(ratio), verdict]
            lines.append(row)
        sizes = (
            f"{small['bytes'] / 1e6:,.3g} MB and {large['bytes'] / 1e9:,.3g} GB in one partition. "
        )
        text = [sizes + record.taken, ""]
        text += table(["median", "small", "large", "ratio", "target"], lines)
        starts = [
            [key, ", ".join(f"{value:.0f}" for value in record.values[key]["starts_ms"])]
            for key in ("small", "large")
        ]
        text += ["", *table(["all starts, ms", ""], starts)]
        return {self.name: "\n".join(text)}


class Startup(Experiment):
    """Units by what is measured: `idle_memory`, `first`, `next`, `reset`."""

    name = "startup"
    title = "start, idle memory and reset of a broker in tests"
    minutes = 2
    is_timed = True
    rows = (
        ("idle_memory", "idle memory of `odradek serve`, MiB", 80.0),
        ("first", "first `Broker()` of a fresh interpreter, imports included, ms", 500.0),
        ("next", "the next `Broker()`, ms", 100.0),
        ("reset", "`reset()` with ten topics, ms", 10.0),
    )

    def settings(self, scale: float) -> Values:
        return {"repeats": max(2, int(startup.REPEATS * scale))}

    def next_unit(self, record: Record) -> str | None:
        return first_missing([key for key, *_ in self.rows], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        yield lambda key: {"values": startup.measure(key, record.settings["repeats"])}

    def snippets(self, record: Record) -> dict[str, str]:
        lines = []
        for key, title, bound in self.rows:
            if key in record.values:
                values = record.values[key]["values"]
                shown = ", ".join(map(show, values))
                verdict = judged(median(values), ("<=", bound))
                lines.append([title, show(median(values)), shown, verdict])
        text = [record.taken, "", *table(["", "median", "all values", "target"], lines)]
        return {self.name: "\n".join(text)}


class GroupLoading(Experiment):
    """Units `LOG/BROKER`: a filled broker is started several times."""

    name = "group-loading"
    title = "how soon committed offsets are served after a start"
    minutes = 10
    unit_s = 300.0
    has_peer = True
    is_timed = True
    logs = ("not compacted", "compacted")

    def settings(self, scale: float) -> Values:
        return {"commits": max(10_000, int(group_loading.COMMITS * scale)), "repeats": 3}

    def next_unit(self, record: Record) -> str | None:
        return first_missing([f"{log}/{name}" for log in self.logs for name in NAMES], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        commits, repeats = record.settings["commits"], record.settings["repeats"]

        def measure(key: str) -> Values:
            log, name = key.split("/")
            partitions = commits if log == "compacted" else group_loading.GROUP_PARTITIONS
            return {"runs": group_loading.measure(name, commits, partitions, repeats)}

        yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        lines = []
        for key, values in record.values.items():
            log, name = key.split("/")
            runs = values["runs"]
            row = [f"{record.settings['commits']:,}", log, CAPTIONS[name]]
            for metric, form in (
                ("first_answer_s", ".2f"),
                ("served_s", ".2f"),
                ("memory_mib", ",.0f"),
            ):
                least = min(run[metric] for run in runs)
                every = ", ".join(format(run[metric], form) for run in runs)
                row.append(f"{least:{form}} ({every})")
            lines.append(row)
        columns = ["commits", "log", "broker", "first response, s", "offsets served, s",
                   "memory, MiB"]  # fmt: skip
        return {self.name: "\n".join([record.taken, "", *table(columns, lines)])}


class Compaction(Experiment):
    """Units by the number of keys. `KEYS/default buffer` has the broker's default dedupe buffer."""

    name = "compaction"
    title = "speed and memory of the compaction worker"
    minutes = 15
    unit_s = 200.0
    is_timed = True
    default = "/default buffer"
    keys = (500_000, 10_000_000)

    def settings(self, scale: float) -> Values:
        keys = [max(10 * compaction.BATCH_RECORDS, int(keys * scale)) for keys in self.keys]
        # At a small scale the keys of the last unit still have to be too many for the buffer.
        default = max(1 << 20, int(compaction.DEFAULT_BUFFER_BYTES * scale))
        return {"keys": keys, "default_buffer_bytes": default}

    def next_unit(self, record: Record) -> str | None:
        keys = [str(keys) for keys in record.settings["keys"]]
        return first_missing([*keys, f"{keys[-1]}{self.default}"], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        def measure(key: str) -> Values:
            keys = int(key.removesuffix(self.default))
            directory = context.work / key.replace("/", "-")
            directory.mkdir()
            room = compaction.buffer_for(keys)
            default = record.settings["default_buffer_bytes"]
            return compaction.speed(directory, keys, default if "/" in key else room)

        yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        lines = []
        for key, values in record.values.items():
            megabytes = values["log_bytes"] / 1e6
            seconds = values.get("seconds")
            lines.append(
                [
                    f"{int(key.removesuffix(self.default)):,}",
                    show(megabytes),
                    show(values["left_bytes"] / 1e6),
                    show(values["buffer_bytes"] / 1e6),
                    str(values.get("passes", 1)),
                    show(megabytes / values["cpu_s"]),
                    f"{values['records_read'] / values['cpu_s']:,.0f}",
                    show(megabytes / seconds if seconds else None),
                    show(values["worker_peak_bytes"] / 1e6),
                ]
            )
        columns = ["keys", "log, MB", "left, MB", "dedupe buffer, MB", "passes", "MB a CPU-s",
                   "records a CPU-s", "MB/s", "memory, MB"]  # fmt: skip
        return {self.name: "\n".join([record.taken, "", *table(columns, lines)])}


class CompactionBeside(Experiment):
    """Units `BROKER/PAIR`: the same load alone and beside a compaction."""

    name = "compaction-beside"
    title = "produce and fetch beside a compaction"
    minutes = 10
    unit_s = 60.0
    has_peer = True
    is_timed = True
    # On the ratio beside to alone.
    targets: ClassVar[Targets] = {"p50": ("<=", 1.1), "p99": ("<=", 1.1)}
    quantiles: ClassVar[dict[str, float]] = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}

    def settings(self, scale: float) -> Values:
        # A log within its active segment is never compacted.
        least = 3 * compaction_beside.SEGMENT_BYTES // (2 * compaction_beside.RECORD_BYTES)
        keys = max(int(compaction_beside.KEYS * scale), least)
        return {
            "pairs": pairs_at(scale, PAIRS),
            "keys": keys,
            "segment_bytes": compaction_beside.SEGMENT_BYTES,
            "log_bytes": 2 * keys * compaction_beside.RECORD_BYTES,
        }

    def next_unit(self, record: Record) -> str | None:
        pairs = range(1, record.settings["pairs"] + 1)
        return first_missing([f"{name}/{pair}" for name in NAMES for pair in pairs], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        with compaction_beside.Sessions(context.work, record.settings["keys"]) as sessions:

            def measure(key: str) -> Values:
                name, pair = key.split("/")
                return sessions.pair(name, int(pair), record.settings["pairs"])

            yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        lines = list(head(record))
        for name in NAMES:
            units = [v for key, v in record.values.items() if key.startswith(f"{name}/")]
            if units:
                lines += [*self._table(record, name, units), ""]
        return {self.name: "\n".join(lines).rstrip()}

    def _table(self, record: Record, name: str, units: list[Values]) -> list[str]:
        pooled = {phase: self.pooled(units, phase) for phase in compaction_beside.PHASES}
        alone, beside = pooled["alone"], pooled["beside"]
        rows = []
        for metric, values in alone.items():
            ratio = beside[metric] / values
            target = self.targets.get(metric.rpartition(" ")[2]) if name == NAMES[0] else None
            verdict = judged(ratio, target)
            if target and "missed" in verdict and beside[metric] - values < EQUAL_US:
                verdict = f"{target[0]} {target[1]:g}: met (under 1 ms apart)"
            unit = "" if metric == "round trips/s" else ", µs"
            shown = [show(values), show(beside[metric]), show(ratio)]
            rows.append([f"{metric}{unit}", *shown, verdict])
        columns = [CAPTIONS[name], "alone", "beside a compaction", "ratio", "target"]
        seconds = sum(unit["beside"]["seconds"] for unit in units)
        speed = len(units) * record.settings["log_bytes"] / 1e6 / seconds
        sentence = f"{CAPTIONS[name]} compacted {show(speed)} MB of log a second at the same time."
        return [*table(columns, rows), "", sentence]

    def pooled(self, units: list[Values], phase: str) -> dict[str, float]:
        """Round trips a second, and the quantiles of the requests of all pairs together."""
        # Records from before 2026-11-23 have the quantiles of all pairs, and no histograms.
        if known := units[0].get("pooled"):
            figures = {"round trips/s": known[phase]["rate"]}
            for request in compaction_beside.REQUESTS:
                for metric in self.quantiles:
                    figures[f"{request} {metric}"] = known[phase][f"{request}.{metric}"]
            return figures
        phases = [unit[phase] for unit in units]
        trips = sum(sum(each["produce_us"].values()) for each in phases)
        figures = {"round trips/s": trips / sum(each["seconds"] for each in phases)}
        for request in compaction_beside.REQUESTS:
            together = pool([each[f"{request}_us"] for each in phases])
            for metric, share in self.quantiles.items():
                figures[f"{request} {metric}"] = quantile(together, share)
        return figures
