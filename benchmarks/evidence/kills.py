"""Experiments that kill processes and then compare the data with the acknowledged data."""

from __future__ import annotations

from typing import Any

from benchmarks.evidence.experiment import CommandExperiment, first_missing
from benchmarks.evidence.record import Record, Values
from benchmarks.tables import CAPTIONS, table

PROGRAMS = ("at_most_once", "at_least_once", "exactly_once")
# The guarantee of each program: these counts are zero.
PROMISES = {
    "at_most_once": ("doubled",),
    "at_least_once": ("lost",),
    "exactly_once": ("lost", "doubled"),
}
GAPS = {
    "before table": "proven before the table's commit",
    "staged -> table": "proven staged -> table",
    "table -> quarantine": "proven table -> quarantine",
    "staged -> quarantine": "proven staged -> quarantine",
    "quarantine -> checkpoint": "proven quarantine -> checkpoint",
}
STAGED_GAPS = ("staged -> table", "staged -> quarantine")
"""Gaps of Iceberg only, where a batch is staged on a branch of the table before its commit."""


def failed_lines(record: Record) -> list[str]:
    """A list of the units that failed, for below a table."""
    if not record.failures:
        return []
    return ["", *(f"- **failed**: {key}: {text}" for key, text in record.failures.items())]


class SeededKills(CommandExperiment):
    """Units `seed N` of some kills each, from consecutive seeds."""

    module: str
    kills: int
    runs: int

    def settings(self, scale: float) -> Values:
        return {
            "kills_each": max(2, round(self.kills * scale)),
            "runs": max(2, round(self.runs * scale)),
        }

    def next_unit(self, record: Record) -> str | None:
        seeds = range(record.seed, record.seed + record.settings["runs"])
        return first_missing([f"seed {seed}" for seed in seeds], record)

    def command(self, record: Record, key: str) -> list[str]:
        kills = str(record.settings["kills_each"])
        return ["-m", self.module, "--kills", kills, "--seed", key.removeprefix("seed ")]

    def shown(self, record: Record, columns: dict[str, str], zeros: dict[str, str]) -> str:
        """Return a line for each seed and their sum. `zeros`: columns of a unit without failure."""
        rows = [
            [str(values["seed"]), *(f"{values[name]:,}" for name in columns), *("0" for _ in zeros)]
            for values in record.values.values()
        ]
        if len(rows) > 1:
            sums = [sum(each[name] for each in record.values.values()) for name in columns]
            rows.append(["all", *(f"{number:,}" for number in sums), *("0" for _ in zeros)])
        head = ["seed", *columns.values(), *zeros.values()]
        return "\n".join([record.taken, "", *table(head, rows), *failed_lines(record)])


class SigKills(SeededKills):
    name = "sigkills"
    title = "SIGKILL of a broker during produce"
    module = "tests.durability.kills"
    minutes = 10
    kills = 20
    runs = 10

    def snippets(self, record: Record) -> dict[str, str]:
        columns = {"kills": "kills", "messages": "messages", "torn_tails": "torn tails cut"}
        zeros = {"lost": "lost", "twice": "twice", "order": "out of order"}
        return {self.name: self.shown(record, columns, zeros)}


class CompactionKills(SeededKills):
    name = "compaction-kills"
    title = "SIGKILL of a broker during compaction"
    module = "tests.durability.compaction_kills"
    minutes = 10
    kills = 10
    runs = 10

    def snippets(self, record: Record) -> dict[str, str]:
        columns = {
            "kills": "kills",
            "writes": "writes",
            "killed_in_cleaning_or_swap": "killed in a cleaning or swap",
            "swaps_finished_at_start": "swaps finished by the next start",
        }
        return {self.name: self.shown(record, columns, {"lost": "lost"})}


class Delivery(CommandExperiment):
    """Units `BROKER/PROGRAM`."""

    name = "delivery"
    title = "at most, at least and exactly once, with programs and broker killed"
    minutes = 25
    unit_s = 240.0
    has_peer = True
    kills = 20

    def settings(self, scale: float) -> Values:
        return {"program_kills": max(2, round(self.kills * scale))}

    def next_unit(self, record: Record) -> str | None:
        names = ("odradek", "kafka")
        return first_missing([f"{name}/{each}" for name in names for each in PROGRAMS], record)

    def command(self, record: Record, key: str) -> list[str]:
        broker, program = key.split("/")
        kills = str(record.settings["program_kills"])
        return ["-m", "examples.delivery.harness", "--broker", broker, "--only", program,
                "--kills", kills, "--seed", str(record.seed), "--json"]  # fmt: skip

    def snippets(self, record: Record) -> dict[str, str]:
        rows = []
        for unit in record.units:
            broker, program = unit.key.split("/")[:2]
            named = [CAPTIONS[broker], program.replace("_", " ")]
            if unit.failure:
                rows.append([*named, f"**not finished**: {unit.failure}", "", "", "", ""])
                continue
            values = unit.values[program]
            numbers = [values[name] for name in ("records", "program_kills", "broker_kills")]
            rows.append(
                [
                    *named,
                    *(f"{number:,}" for number in numbers),
                    *(_judged(values[name], name in PROMISES[program]) for name in LOSSES),
                ]
            )
        head = ["broker", "program", "records", "program killed", "broker killed", *LOSSES]
        return {self.name: "\n".join([record.taken, "", *table(head, rows)])}

    def defect(self, record: Record) -> str:
        failed = [key for key in record.failures if key.startswith("odradek/")]
        return f"failed: {', '.join(failed)}" if failed else ""


LOSSES = ("lost", "doubled")


def _judged(number: int, is_promised: bool) -> str:
    return f"**{number:,}**" if number and is_promised else f"{number:,}"


class PipelineKills(CommandExperiment):
    """Units `FORMAT/N`: campaigns of kills, each with a topic and tables of its own."""

    name = "pipeline-kills"
    title = "SIGKILL of an ingest, between its commits and at random"
    minutes = 50
    unit_s = 300.0
    not_run = ("demo", "registry")
    formats = ("delta", "iceberg", "parquet")
    campaigns = 5
    kills = 2

    def settings(self, scale: float) -> Values:
        return {
            "campaigns": max(1, round(self.campaigns * scale)),
            "kills_in_each_gap": max(1, round(self.kills * scale)),
            "kills_at_random": max(1, round(self.kills * scale)),
        }

    def next_unit(self, record: Record) -> str | None:
        numbers = range(record.settings["campaigns"])
        keys = [f"{name}/{record.seed + each}" for each in numbers for name in self.formats]
        return first_missing(keys, record)

    def command(self, record: Record, key: str) -> list[str]:
        table_format, seed = key.split("/")
        settings = record.settings
        return ["-m", "tests.pipeline.killer", "--format", table_format, "--seed", seed,
                "--each", str(settings["kills_in_each_gap"]),
                "--random", str(settings["kills_at_random"])]  # fmt: skip

    def snippets(self, record: Record) -> dict[str, str]:
        units = list(record.values.values())
        rows = [self._row(values["format"], str(values["seed"]), [values]) for values in units]
        for name in self.formats:
            found = [values for values in units if values["format"] == name]
            if len(found) > 1:
                rows.append(self._row(name, "all", found))
        head = ["table format", "seed", "kills", "at random", *GAPS.values(), "records",
                "in the quarantine", "differences"]  # fmt: skip
        text = "\n".join([record.taken, "", *table(head, rows), *failed_lines(record)])
        return {self.name: text}

    def _row(self, name: str, seed: str, campaigns: list[Values]) -> list[str]:
        kills: list[dict[str, Any]] = [kill for each in campaigns for kill in each["kills"]]
        proven = [kill["gap"] for kill in kills if kill["proven"]]
        numbers = [
            len(kills),
            sum(kill["aim"] == "random" for kill in kills),
            *(None if self._lacks(name, gap) else proven.count(gap) for gap in GAPS),
            *(sum(each[key] for each in campaigns) for key in ("topic", "quarantine")),
            sum(each["differences"] for each in campaigns),
        ]
        texts = ("-" if number is None else f"{number:,}" for number in numbers)
        return [name.capitalize(), seed, *texts]

    def _lacks(self, name: str, gap: str) -> bool:
        return gap in STAGED_GAPS and name != "iceberg"
