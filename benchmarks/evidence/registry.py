"""Experiments on the schema registry: speed, starts, verdicts, and kills of its writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import registry_reads, registry_start
from benchmarks.evidence.experiment import (
    CommandExperiment,
    Context,
    Experiment,
    Measure,
    first_missing,
    pairs_at,
)
from benchmarks.evidence.kills import SeededKills, failed_lines
from benchmarks.evidence.record import Record, Values
from benchmarks.tables import MIB, judged, median, show, table

NOT_RUN = ("demo", "pipeline")


class RegistryReads(Experiment):
    """Units `pair/N`: the registry and a bare Starlette route with the same bytes."""

    name = "registry-reads"
    title = "schemas by id, against a bare Starlette route with the same bytes"
    not_run = NOT_RUN
    minutes = 3
    unit_s = 12.0
    is_timed = True
    target = (">=", 0.8)
    metrics = (
        ("requests_s", "requests a second"),
        ("requests_cpu_s", "requests a second of the server's CPU time"),
    )

    def settings(self, scale: float) -> Values:
        return {
            "pairs": pairs_at(scale, registry_reads.PAIRS),
            "requests": max(1_000, int(registry_reads.REQUESTS * scale)),
            "schemas": registry_reads.SCHEMAS,
        }

    def next_unit(self, record: Record) -> str | None:
        return first_missing([f"pair/{n}" for n in range(1, record.settings["pairs"] + 1)], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        requests = record.settings["requests"]
        with registry_reads.Servers() as servers:
            servers.pair(0, requests)
            yield lambda key: dict(servers.pair(int(key.removeprefix("pair/")), requests))

    def snippets(self, record: Record) -> dict[str, str]:
        pairs = list(record.values.values())
        if not pairs:
            return {self.name: record.taken}
        lines, every = [], []
        for metric, title in self.metrics:
            ratio = median(registry_reads.ratios(pairs, metric))
            values = {kind: [pair[kind][metric] for pair in pairs] for kind in registry_reads.KINDS}
            middle = [show(median(values[kind])) for kind in ("registry", "bare")]
            lines.append([title, *middle, show(ratio), judged(ratio, self.target)])
            every += [[title, kind, ", ".join(map(show, values[kind]))] for kind in values]
        head = ["", "registry, median", "bare route, median", "median of the ratios", "target"]
        text = [record.taken, "", *table(head, lines), ""]
        return {self.name: "\n".join([*text, *table(["all values", "", ""], every)])}


class RegistryStart(Experiment):
    """Units `full/N`, with all schemas in the topic, and `second`."""

    name = "registry-start"
    title = "start and memory of a registry with 10,000 schemas, and of a second one in a process"
    not_run = NOT_RUN
    minutes = 2
    unit_s = 5.0
    is_timed = True
    rows = (
        ("ready_s", "start of the process to the first response, s", 1.0, 2.0),
        ("memory_bytes", "memory after that, MiB", MIB, 150.0),
    )
    second_ms_max = 200.0

    def settings(self, scale: float) -> Values:
        return {
            "repeats": max(2, int(registry_start.REPEATS * scale)),
            "schemas": max(100, int(registry_start.SCHEMAS * scale)),
        }

    def next_unit(self, record: Record) -> str | None:
        repeats = range(1, record.settings["repeats"] + 1)
        return first_missing([*(f"full/{n}" for n in repeats), "second"], record)

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        schemas = record.settings["schemas"]
        with registry_start.filled_broker(context.work / "registry-start", schemas) as address:
            # The first start warms the page cache.
            registry_start.start(address, schemas)

            def measure(key: str) -> Values:
                if key == "second":
                    return {"ready_ms": registry_start.second()}
                return dict(registry_start.start(address, schemas))

            yield measure

    def snippets(self, record: Record) -> dict[str, str]:
        full = [values for key, values in record.values.items() if key.startswith("full/")]
        lines = []
        for metric, title, per, bound in self.rows if full else ():
            values = [each[metric] / per for each in full]
            lines.append(
                self._line(f"{record.settings['schemas']:,} schemas: {title}", values, bound)
            )
        if "second" in record.values:
            values = record.values["second"]["ready_ms"]
            title = "`Registry(broker)` in a process that had one before, ms"
            lines.append(self._line(title, values, self.second_ms_max))
        text = [record.taken, "", *table(["", "median", "all values", "target"], lines)]
        return {self.name: "\n".join(text)}

    def _line(self, title: str, values: list[float], bound: float) -> list[str]:
        middle = median(values)
        return [title, show(middle), ", ".join(map(show, values)), judged(middle, ("<=", bound))]


class RegistryVerdicts(CommandExperiment):
    """Units `KIND`: verdicts on generated pairs of schemas."""

    name = "registry-verdicts"
    title = "verdicts on generated pairs: Avro against Java, JSON Schema and Protobuf against data"
    not_run = NOT_RUN
    minutes = 15
    unit_s = 240.0
    draws_seed = True
    pairs = 10_000
    kinds = ("avro", "json", "protobuf")
    shown = ("compatible", "incompatible", "invalid")

    def settings(self, scale: float) -> Values:
        return {"pairs": max(200, int(self.pairs * scale))}

    def next_unit(self, record: Record) -> str | None:
        return first_missing(list(self.kinds), record)

    def command(self, record: Record, key: str) -> list[str]:
        pairs = str(record.settings["pairs"])
        return ["-m", "tests.registry.verdicts", key, "--pairs", pairs,
                "--seed", str(record.seed)]  # fmt: skip

    def snippets(self, record: Record) -> dict[str, str]:
        rows = [
            [
                key,
                *(f"{values.get(name, 0):,}" for name in self.shown),
                f"{values.get('values', values.get('records', 0)):,}",
                "0",
            ]
            for key, values in record.values.items()
        ]
        head = ["kind", *(f"pairs: {name}" for name in self.shown), "values read", "wrong verdicts"]
        seed = f"Seed {record.seed}."
        lines = [f"{record.taken} {seed}", "", *table(head, rows), *failed_lines(record)]
        return {self.name: "\n".join(lines)}


class RegistryKills(SeededKills):
    """Units `seed N`: the writer of two instances is killed under load."""

    name = "registry-kills"
    title = "SIGKILL of the writer of two instances of the registry under load"
    not_run = NOT_RUN
    module = "tests.registry.writer_kills"
    minutes = 10
    unit_s = 400.0
    draws_seed = True
    kills = 50
    runs = 1

    def settings(self, scale: float) -> Values:
        return {"kills_each": max(1, round(self.kills * scale)), "runs": self.runs}

    def snippets(self, record: Record) -> dict[str, str]:
        columns = {"kills": "kills", "schemas": "acknowledged schemas"}
        zeros = {"twice": "ids given twice", "lost": "lost"}
        return {self.name: self.shown(record, columns, zeros)}
