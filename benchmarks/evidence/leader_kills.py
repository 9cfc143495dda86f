"""Kills of leaders in a cluster of three processes on a real ZooKeeper."""

from __future__ import annotations

from itertools import count

from benchmarks.evidence.experiment import CommandExperiment
from benchmarks.evidence.kills import failed_lines
from benchmarks.evidence.record import Record, Values
from benchmarks.tables import table

BROKERS = 3
KILLS_ALL = 50
KILLS_A_RUN = 10
SECONDS = 110.0
LEADER_KILL = "leader-kill"
CLIENTS = {
    "producer": "librdkafka, idempotent",
    "plain": "librdkafka, not idempotent",
    "kcat": "kcat",
    "kafka-console": "Kafka's console producer",
    "kafka-verifiable": "Kafka's verifiable producer",
}
HEAD = ["seed", "leaders killed", *(f"acknowledged: {name}" for name in CLIENTS.values()),
        "records read", "anomalies"]  # fmt: skip


class LeaderKills(CommandExperiment):
    """Units `seed N`. Runs go on until enough leaders were killed."""

    name = "leader-kills"
    title = "leaders of a cluster on a real ZooKeeper killed by SIGKILL"
    minutes = 15
    unit_s = 160.0
    timeout_s = 900.0

    def settings(self, scale: float) -> Values:
        return {
            "brokers": BROKERS,
            "seconds_each": SECONDS,
            "kills_each": KILLS_A_RUN,
            "kills_all": max(1, round(KILLS_ALL * scale)),
        }

    def next_unit(self, record: Record) -> str | None:
        if sum(map(leader_kills, record.values.values())) >= record.settings["kills_all"]:
            return None
        keys = record.keys
        return next(key for seed in count(record.seed) if (key := f"seed {seed}") not in keys)

    def command(self, record: Record, key: str) -> list[str]:
        settings = record.settings
        return ["-m", "conformance.histories.run", "--start", "odradek", "--zookeeper",
                "--brokers", str(settings["brokers"]), "--seed", key.removeprefix("seed "),
                "--seconds", str(settings["seconds_each"]),
                "--kills", str(settings["kills_each"]), "--keep", f"build/{self.name}",
                "--json"]  # fmt: skip

    def snippets(self, record: Record) -> dict[str, str]:
        runs = sorted(record.values.values(), key=lambda values: int(values["seed"]))
        text = [record.taken, "", *table(HEAD, list(map(_row, runs))), *failed_lines(record)]
        return {self.name: "\n".join(text), f"{self.name}.summary": summary(record)}

    def verdict(self, record: Record) -> str:
        found = sum(bool(_found(values)) for values in record.values.values())
        return f"runs with anomalies: {found}" if found else super().verdict(record)


def leader_kills(values: Values) -> int:
    return int(values["faults"].get(LEADER_KILL, 0))


def summary(record: Record) -> str:
    """One sentence on all runs."""
    runs = list(record.values.values())
    acknowledged = sum(sum(values["acknowledged"].values()) for values in runs)
    anomalies = sum(sum(values["anomalies"].values()) for values in runs)
    return (
        f"{len(runs)} runs, {sum(map(leader_kills, runs))} leaders killed, {acknowledged:,} "
        f"acknowledged records, {anomalies} anomalies."
    )


def _found(values: Values) -> str:
    """Return the anomalies of a run, and the proofs that it lacks."""
    found = [f"{kind} {number}" for kind, number in values["anomalies"].items()]
    found += [
        f"no {client} succeeded" for client in CLIENTS if not values["acknowledged"].get(client)
    ]
    found += [] if values["complete"] else ["the final reads did not end"]
    return ", ".join(found)


def _row(values: Values) -> list[str]:
    found = _found(values)
    return [
        str(values["seed"]),
        str(leader_kills(values)),
        *(f"{values['acknowledged'].get(client, 0):,}" for client in CLIENTS),
        f"{values['records_read']:,}",
        f"**{found}**" if found else "0",
    ]
