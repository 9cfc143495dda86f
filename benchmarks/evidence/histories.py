"""Histories of concurrent clients during kills, and of brokers with a planted bug."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from benchmarks.evidence.experiment import RUNNING, CommandExperiment
from benchmarks.evidence.kills import failed_lines
from benchmarks.evidence.record import Record, Values
from benchmarks.tables import CAPTIONS, table

SECONDS = 60.0
# Of all runs together.
SECONDS_ALL = 7200.0
KILLS_ALL = 300
KILLS_A_RUN = 4
ATTEMPTS = 5
FIRST_PROTOCOL = "txn=3,producer=1,plain=1,consumer=2"
BOTH_PROTOCOLS = "txn=2,txn-v2=2,producer=1,plain=1,consumer=1"
BROKER_KILL = "broker-kill"
# Kafka may lose markers when it is stopped by SIGTERM (docs/histories.md).
KAFKA_FAULTS = (
    "broker-kill,broker-pause,net-cut,net-mute,net-delay,net-overtake,net-late,"
    "client-kill,client-pause,client-zombie"
)


@dataclass(frozen=True, slots=True)
class Mode:
    """How the consumers of a run get their partitions, and which clients run."""

    mode: str
    assignor: str = "range"
    protocol: str = "classic"
    clients: str = FIRST_PROTOCOL

    @property
    def title(self) -> str:
        how = "KIP-848" if self.protocol == "consumer" else self.assignor
        both = ", both transaction protocols" if self.clients == BOTH_PROTOCOLS else ""
        return f"{self.mode}{both}" if self.mode == "assign" else f"{self.mode}, {how}{both}"

    def arguments(self) -> list[str]:
        return ["--mode", self.mode, "--assignor", self.assignor,
                "--group-protocol", self.protocol, "--clients", self.clients]  # fmt: skip


MODES = (
    Mode("assign"),
    Mode("subscribe", "range"),
    Mode("subscribe", "cooperative-sticky"),
    Mode("subscribe", protocol="consumer"),
    Mode("both", "roundrobin"),
    Mode("both", "range"),
    Mode("both", "cooperative-sticky"),
    Mode("both", protocol="consumer"),
    Mode("subscribe", "cooperative-sticky", clients=BOTH_PROTOCOLS),
    Mode("both", "range", clients=BOTH_PROTOCOLS),
    Mode("subscribe", protocol="consumer", clients=BOTH_PROTOCOLS),
)
HEAD = ["seed", "mode", "operations", "transactions committed/aborted/unknown",
        "of these by the second protocol", "records sent/read",
        "faults: broker (SIGKILL)/network/clients", "anomalies", "allowed"]  # fmt: skip


class Histories(CommandExperiment):
    """Units `seed N`. The seed determines the mode, so that the modes alternate.

    Runs go on until they have enough seconds and enough SIGKILLs together.
    """

    name = "histories"
    title = "histories of concurrent clients, checked for anomalies"
    minutes = 160
    unit_s = 90.0
    timeout_s = 900.0
    broker = "odradek"
    seconds_all = SECONDS_ALL
    kills_all = KILLS_ALL
    extra: tuple[str, ...] = ()

    def settings(self, scale: float) -> Values:
        return {
            "seconds_each": max(5.0, SECONDS * min(1.0, 2 * scale)),
            "kills_each": KILLS_A_RUN,
            "seconds_all": self.seconds_all * scale,
            "kills_all": round(self.kills_all * scale),
        }

    def next_unit(self, record: Record) -> str | None:
        seconds = sum(values["seconds"] for values in record.values.values())
        kills = sum(sigkills(values) for values in record.values.values())
        settings = record.settings
        if seconds >= settings["seconds_all"] and kills >= settings["kills_all"]:
            return None
        keys = record.keys
        return next(key for seed in count(record.seed) if (key := f"seed {seed}") not in keys)

    def command(self, record: Record, key: str) -> list[str]:
        seed = int(key.removeprefix("seed "))
        return ["-m", "conformance.histories.run", "--start", self.broker, "--seed", str(seed),
                "--seconds", str(record.settings["seconds_each"]),
                "--kills", str(record.settings["kills_each"]), "--keep", f"build/{self.name}",
                *MODES[seed % len(MODES)].arguments(), *self.extra, "--json"]  # fmt: skip

    def snippets(self, record: Record) -> dict[str, str]:
        runs = sorted(record.values.values(), key=lambda values: int(values["seed"]))
        rows = [_row(values) for values in runs]
        text = [record.taken, "", *table(HEAD, rows), *failed_lines(record)]
        return {self.name: "\n".join(text), f"{self.name}.summary": summary(record, self.broker)}

    def verdict(self, record: Record) -> str:
        count = sum(bool(values["anomalies"]) for values in record.values.values())
        return f"runs with anomalies: {count}" if count else super().verdict(record)


class KafkaHistories(Histories):
    name = "histories-kafka"
    title = "the same histories of Apache Kafka, for comparison"
    minutes = 20
    has_peer = True
    broker = "kafka"
    seconds_all = 11 * SECONDS
    kills_all = 0
    extra = ("--faults", KAFKA_FAULTS)

    def defect(self, record: Record) -> str:
        return ""


def sigkills(values: Values) -> int:
    return int(values["faults"].get(BROKER_KILL, 0))


def summary(record: Record, broker: str) -> str:
    """One sentence on all runs."""
    runs = list(record.values.values())
    seconds = sum(values["seconds"] for values in runs)
    found = sum(sum(values["anomalies"].values()) for values in runs)
    without = sum(not sigkills(values) for values in runs)
    text = (
        f"{CAPTIONS[broker]}: {len(runs)} runs, {seconds:,.0f} s in all, "
        f"{sum(map(sigkills, runs)):,} SIGKILLs of the broker, {without} runs without any, "
        f"{found} anomalies."
    )
    unread = sum(not values["complete"] for values in runs)
    idle = sum(bool(values["idle"]) for values in runs)
    text += f" In {unread} runs the final reads did not end." if unread else ""
    return text + (f" In {idle} runs no operation of some kind succeeded." if idle else "")


def _row(values: Values) -> list[str]:
    ends = values["transactions"]
    both = {end: sum(each.get(end, 0) for each in ends.values()) for end in ("ok", "fail", "info")}
    faults = values["faults"]
    groups = {
        kind: sum(number for fault, number in faults.items() if fault.startswith(kind))
        for kind in ("broker", "net", "client")
    }
    anomalies = ", ".join(f"**{kind} {n}**" for kind, n in values["anomalies"].items())
    seed = int(values["seed"])
    return [
        str(seed),
        values.get("title") or MODES[seed % len(MODES)].title,
        f"{values['operations']:,}",
        _ends(both),
        _ends(ends["2"]) if "2" in ends else "",
        f"{values['records_sent']:,}/{values['records_read']:,}",
        f"{groups['broker']} ({sigkills(values)})/{groups['net']}/{groups['client']}",
        anomalies or _without(values) or "0",
        f"{values['allowed']:,}",
    ]


def _without(values: Values) -> str:
    """The kinds of operations of which none succeeded: the run shows nothing about them."""
    return f"no {' and no '.join(values['idle'])} succeeded" if values["idle"] else ""


def _ends(counts: dict[str, int]) -> str:
    return "/".join(f"{counts.get(end, 0):,}" for end in ("ok", "fail", "info"))


# --- planted bugs ---

MUTANTS: dict[str, tuple[str, frozenset[str]]] = {
    "no-dedupe": ("a batch that comes again is appended again", frozenset({"duplicate"})),
    "no-verification": (
        "a transactional batch is appended without asking the coordinator (KIP-890)",
        frozenset({"hanging-transaction", "G1a", "unseen"}),
    ),
    "lso-high": (
        "the last stable offset is one too high",
        frozenset({"G1a", "precommitted-read"}),
    ),
    "no-aborted-list": ("fetches do not say what was aborted", frozenset({"G1a"})),
    "offsets-of-aborted": ("offsets of an aborted transaction count", frozenset({"group-skip"})),
    "no-epoch-bump": (
        "a transaction of the second protocol ends without a new epoch (KIP-890)",
        frozenset({"inconsistent-offsets", "lost-write", "torn-transaction"}),
    ),
}
"""By the names in `conformance.histories.mutants`: the rule that is broken, and the anomalies of
which at least one gives it away."""


class Mutants(CommandExperiment):
    """Units `NAME/ATTEMPT`: runs until the planted bug is found, or five of them."""

    name = "mutants"
    title = "planted bugs, and the run in which each was found"
    minutes = 15
    unit_s = 100.0
    timeout_s = 900.0

    def settings(self, scale: float) -> Values:
        return {"seconds_each": max(6.0, SECONDS * scale), "attempts": ATTEMPTS}

    def next_unit(self, record: Record) -> str | None:
        running = {key.split("/")[0] for key, text in record.failures.items() if text == RUNNING}
        for name in MUTANTS:
            tried = [key for key in record.keys if key.startswith(f"{name}/")]
            if name in running:
                continue
            if len(tried) < record.settings["attempts"] and found_in(record, name) is None:
                return f"{name}/{len(tried) + 1}"
        return None

    def command(self, record: Record, key: str) -> list[str]:
        name, attempt = key.split("/")
        seed = record.seed + list(MUTANTS).index(name) * ATTEMPTS + int(attempt) - 1
        return ["-m", "conformance.histories.mutants", "run", name, "--seed", str(seed),
                "--seconds", str(record.settings["seconds_each"]), "--json"]  # fmt: skip

    def without_record(self) -> str:
        rows = [[name, rule, ", ".join(sorted(kinds))] for name, (rule, kinds) in MUTANTS.items()]
        head = ["mutant", "broken rule", "anomalies that show it"]
        return "\n".join([super().without_record(), "", *table(head, rows)])

    def snippets(self, record: Record) -> dict[str, str]:
        rows = []
        for name, (rule, kinds) in MUTANTS.items():
            number = found_in(record, name)
            values = record.values.get(f"{name}/{number}", {})
            shown = sorted(kinds & set(values.get("anomalies", ())))
            tried = len([key for key in record.keys if key.startswith(f"{name}/")])
            where = str(number) if number else f"**not found** in {tried}"
            rows.append([name, rule, ", ".join(sorted(kinds)), where, ", ".join(shown)])
        head = ["mutant", "broken rule", "anomalies that show it", "found in run", "by"]
        seconds = record.settings["seconds_each"]
        each = f"Runs of {seconds:g} s, at most {record.settings['attempts']} for each mutant."
        return {self.name: "\n".join([f"{record.taken} {each}", "", *table(head, rows)])}

    def verdict(self, record: Record) -> str:
        missed = [name for name in MUTANTS if found_in(record, name) is None]
        return f"not found: {', '.join(missed)}" if missed else ""


def found_in(record: Record, name: str) -> int | None:
    """The number of the run that showed a mutant."""
    for key, values in record.values.items():
        if key.startswith(f"{name}/") and MUTANTS[name][1] & set(values["anomalies"]):
            return int(key.split("/")[1])
    return None
