"""Faults on the processes of a cluster: kills, pauses, links, ZooKeeper, disks, restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from benchmarks.evidence.experiment import CommandExperiment, Context, Measure, run_command
from benchmarks.evidence.record import Record, Values
from benchmarks.tables import table
from testkit.source_state import git

FAULTS_ALL = 500
SIGKILLS_ALL = 300
FAULTS_A_RUN = 25
HEAD = ["seed", "commit", "faults", "SIGKILLs", "processes killed", "kills after prepare",
        "SIGKILLs during another fault", "acknowledged", "transactions", "records read",
        "sessions expired", "network", "anomalies"]  # fmt: skip


class ProcessFaults(CommandExperiment):
    """Units `seed N`, from consecutive seeds. Units of earlier commits of src/ stay.

    Runs go on until they have enough faults and enough SIGKILLs in all.
    """

    name = "process-faults"
    title = "faults on three brokers and a ZooKeeper: SIGKILL, SIGSTOP, links, disks, restarts"
    minutes = 100
    unit_s = 300.0
    timeout_s = 1500.0
    keeps_earlier = True

    def settings(self, scale: float) -> Values:
        faults_all = max(5, round(FAULTS_ALL * scale))
        return {
            "faults_each": min(FAULTS_A_RUN, faults_all),
            "faults_all": faults_all,
            "sigkills_all": max(1, round(SIGKILLS_ALL * scale)),
        }

    def next_unit(self, record: Record) -> str | None:
        runs = list(record.values.values())
        if (
            _sum(runs, "faults_all") >= record.settings["faults_all"]
            and _sum(runs, "sigkills") >= record.settings["sigkills_all"]
        ):
            return None
        keys = record.keys
        return next(key for seed in count(record.seed) if (key := f"seed {seed}") not in keys)

    def command(self, record: Record, key: str) -> list[str]:
        return ["-m", "conformance.faults", "--seed", key.removeprefix("seed "),
                "--faults", str(record.settings["faults_each"]),
                "--keep", f"build/{self.name}", "--json"]  # fmt: skip

    @contextmanager
    def session(self, record: Record, context: Context) -> Iterator[Measure]:
        commits = {"commit": git("rev-parse", "HEAD"), "src_commit": record.commit}
        yield lambda key: {
            **commits,
            **run_command(self.command(record, key), self.timeout_s, context),
        }

    def snippets(self, record: Record) -> dict[str, str]:
        runs = sorted(record.values.values(), key=lambda values: int(values["seed"]))
        text = [record.taken, "", *table(HEAD, list(map(_row, runs)))]
        return {self.name: "\n".join(text), f"{self.name}.summary": summary(record)}

    def verdict(self, record: Record) -> str:
        runs = [each for each in record.values.values() if each["src_commit"] == record.commit]
        found = sum(bool(_found(values)) for values in runs)
        return f"runs of this commit with anomalies: {found}" if found else ""


def summary(record: Record) -> str:
    """Return sentences on all runs."""
    runs = list(record.values.values())
    faults = sum((Counter(values["faults"]) for values in runs), Counter[str]())
    sessions = sum((Counter(values["sessions"]) for values in runs), Counter[str]())
    acknowledged = sum(sum(values["acknowledged"].values()) for values in runs)
    anomalies = sum(sum(values["anomalies"].values()) for values in runs)
    failed = sum(bool(values["broken"]) for values in runs)
    clients = sorted({values["clients"].replace("=", " ").replace(",", ", ") for values in runs})
    return (
        f"{len(runs)} runs, {_sum(runs, 'faults_all')} faults, of which "
        f"{_sum(runs, 'sigkills')} are SIGKILLs of {_sum(runs, 'processes_killed')} processes. "
        f"{acknowledged:,} acknowledged records outside of transactions, {anomalies} anomalies, "
        f"{failed} failed runs. Faults: {_listed(faults)}. Expired sessions by cause: "
        f"{_listed(sessions)}. Clients: {'; '.join(clients)}."
    )


def _listed(numbers: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(numbers.items())) or "none"


def _sum(runs: list[Values], name: str) -> int:
    return sum(int(values[name]) for values in runs)


def _found(values: Values) -> str:
    """Return the anomalies of a run, and the proofs that it lacks."""
    found = [f"{kind} {number}" for kind, number in values["anomalies"].items()]
    found += [values["broken"]] if values["broken"] else []
    found += [] if values["complete"] or found else ["the final reads did not end"]
    return ", ".join(found)


def _row(values: Values) -> list[str]:
    found = _found(values)
    ended = sum((Counter(each) for each in values["transactions"].values()), Counter[str]())
    return [
        str(values["seed"]),
        f"`{values['src_commit'][:7]}`",
        str(values["faults_all"]),
        str(values["sigkills"]),
        str(values["processes_killed"]),
        str(values["prepared_kills"]),
        str(values["during"]),
        f"{sum(values['acknowledged'].values()):,}",
        f"{ended['ok']:,}",
        f"{values['records_read']:,}",
        str(sum(values["sessions"].values())),
        values["network"],
        f"**{found}**" if found else "0",
    ]
