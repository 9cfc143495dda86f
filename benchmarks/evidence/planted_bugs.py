"""Bugs planted in a simulated cluster, and the runs that found them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.evidence.experiment import CommandExperiment, Context, Measure, first_missing
from benchmarks.evidence.kills import failed_lines
from benchmarks.evidence.record import Record, Values
from benchmarks.evidence.simulations import refuse_changed_simulator
from benchmarks.tables import table
from testkit.source_state import git

ATTEMPTS = 5
RUNS_MAX = 200
MEDIAN_MAX = 40
BUGS = {
    "truncation-to-high-watermark": "truncation to the high watermark (before KIP-101)",
    "one-step-truncation": "one-step truncation (KIP-279)",
    "no-epochs-in-fetches": "no epochs in fetches (KIP-320)",
    "shrink-not-awaited": "the leader does not wait for the shrink of the ISR",
    "no-maximal-isr": "no maximal ISR",
    "expansion-below-epoch-start": "expansion of the ISR below the epoch's start offset",
    "no-broker-epochs": "no broker epochs (KIP-903)",
    "writes-without-epoch-check": "writes of the controller without a check of its epoch",
    "lost-write-repeated": "a lost write is repeated blindly",
    "late-response-applied": "a response is applied after its epoch",
    "high-watermark-below-min-isr": "the high watermark advances below the minimum ISR",
    "unclean-replica-in-elr": "an unclean replica stays in the ELR (KIP-966)",
    "sendfile-above-high-watermark": "sendfile above the high watermark",
    "served-before-commit": "a coordinator serves before its load is committed",
    "markers-with-newest-epoch": "markers with the newest epoch instead of the loaded one",
    "no-verification-guard": "no verification guard (KIP-890)",
    "failed-write-ends-shard": "a failed write ends a shard for the life of the process",
}
"""By the names in `cluster_mutants` and `coordinator_mutants` of `tests.simulation`."""
SEEDS_EACH = 1_000
SEEDS_A_RECORD = 1_000_000
FIRST_SEED = 5_000_000


class PlantedBugs(CommandExperiment):
    """Units `NAME/ATTEMPT`: runs of fresh seeds until the planted bug is found.

    A new record draws its seed, so that its attempts repeat no run of an earlier record.
    """

    name = "planted-bugs"
    title = "bugs planted in a simulated cluster, and the runs in which they were found"
    minutes = 60
    unit_s = 60.0
    timeout_s = 6000.0
    draws_seed = True

    def settings(self, scale: float) -> Values:
        return {
            "attempts": max(1, round(ATTEMPTS * scale)),
            "runs_max": max(1, round(RUNS_MAX * min(1.0, scale))),
        }

    def next_unit(self, record: Record) -> str | None:
        attempts = range(1, record.settings["attempts"] + 1)
        return first_missing([f"{name}/{number}" for number in attempts for name in BUGS], record)

    def command(self, record: Record, key: str) -> list[str]:
        name, attempt = key.split("/")
        number = list(BUGS).index(name) * ATTEMPTS + int(attempt) - 1
        seed = FIRST_SEED + (record.seed - 1) * SEEDS_A_RECORD + number * SEEDS_EACH
        return ["-m", "tests.simulation.mutants", "run", name, "--seed", str(seed),
                "--runs", str(record.settings["runs_max"]), "--json"]  # fmt: skip

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        refuse_changed_simulator()
        where = {"commit": git("rev-parse", "HEAD")}
        with super().session(record, context) as measure:
            yield lambda key: {**where, **measure(key)}

    def snippets(self, record: Record) -> dict[str, str]:
        rows = [[f"`{name}`", what, *_found_cells(record, name)] for name, what in BUGS.items()]
        limit = record.settings["runs_max"]
        text = [
            f"{record.taken} Each attempt has at most {limit} runs, with seeds of its own. They "
            f"derive from the seed of the record, {record.seed}.",
            "",
            *table(["planted bug", "broken rule", "found in run", "median", "target"], rows),
            *_violation_lines(record),
            *failed_lines(record),
        ]
        return {self.name: "\n".join(text)}

    def without_record(self) -> str:
        rows = [[f"`{name}`", what] for name, what in BUGS.items()]
        text = [super().without_record(), "", *table(["planted bug", "broken rule"], rows)]
        return "\n".join(text)

    def verdict(self, record: Record) -> str:
        missed = [name for name in BUGS if not is_met(attempts_of(record, name))]
        return f"not found soon enough: {', '.join(missed)}" if missed else ""


def attempts_of(record: Record, name: str) -> list[int | None]:
    """Return for each attempt the number of runs that found the bug, or None."""
    return [
        values["found_in"] for key, values in record.values.items() if key.startswith(f"{name}/")
    ]


def is_met(attempts: list[int | None]) -> bool:
    """Return whether each attempt found the bug, and the median one within `MEDIAN_MAX` runs."""
    found = [runs for runs in attempts if runs is not None]
    return len(found) == len(attempts) > 0 and statistics.median(found) <= MEDIAN_MAX


def _violation_lines(record: Record) -> list[str]:
    """Return a list of the violations: they show that a bug was found by its own effects."""
    lines = [
        f"- `{name}`, seed {values['seed'] + values['found_in'] - 1}: {values['violation']}"
        for name in BUGS
        for key, values in record.values.items()
        if key.startswith(f"{name}/") and values["found_in"] is not None
    ]
    return ["", "The violations that were reported:", "", *lines] if lines else []


def _found_cells(record: Record, name: str) -> list[str]:
    attempts = attempts_of(record, name)
    shown = ", ".join("**not found**" if runs is None else str(runs) for runs in attempts)
    all_found = [RUNS_MAX + 1 if runs is None else runs for runs in attempts]
    if not all_found:
        return ["", "", ""]
    median = statistics.median(all_found)
    middle = f"{median:g}" if median <= RUNS_MAX else "not found"
    verdict = "met" if is_met(attempts) else "**missed**"
    return [shown, middle, f"each within {RUNS_MAX}, median within {MEDIAN_MAX}: {verdict}"]
