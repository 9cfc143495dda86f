"""The analysis of a history: a report with its anomalies, and the report's text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance.histories.checks import CHECKS, Anomaly
from conformance.histories.facts import Facts, gather
from conformance.histories.graphs import cycles
from conformance.histories.history import FINAL_PROCESS, OK, READ_COMMITTED, History, Op

EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Report:
    history: History
    anomalies: list[Anomaly]
    lag_ms_max: float

    @property
    def forbidden(self) -> list[Anomaly]:
        """The anomalies that Kafka does not allow."""
        return [anomaly for anomaly in self.anomalies if not anomaly.allowed]

    @property
    def kinds(self) -> set[str]:
        """The kinds of anomalies that Kafka does not allow."""
        return {anomaly.kind for anomaly in self.forbidden}


def idle(history: History) -> list[str]:
    """Return the kinds of operations that were tried and never succeeded.

    A history that consists of failures has no anomaly and shows nothing.
    """
    tried = {_kind(op) for op in history.ops if op.process < FINAL_PROCESS}
    return sorted(tried & {"txn", "txn-v2", "send", "poll"} - achieved(history))


def achieved(history: History) -> set[str]:
    """Return the kinds of operations of which at least one succeeded with a send or a read."""
    ops = [op for op in history.ops if op.process < FINAL_PROCESS]
    return {_kind(op) for op in ops if op.status == OK and (op.sends or op.reads)}


def _kind(op: Op) -> str:
    kind = "txn" if op.f == "open" else op.f
    return "txn-v2" if kind == "txn" and op.protocol == 2 else kind


def analyse(history: History) -> Report:
    """Analyse a history. The function is pure: the same history gives the same report."""
    facts = gather(history)
    anomalies = [anomaly for check in CHECKS for anomaly in check(facts)]
    anomalies += cycles(facts)
    return Report(history, anomalies, _lag_ms(facts))


def _lag_ms(facts: Facts) -> float:
    """Return the longest time in ms from an acknowledgement to the end of the first read."""
    longest = 0
    for written, readers in facts.readers.items():
        writer = facts.writer.get(written)
        if writer is not None and writer[0].status == "ok":
            first = min(reader.ended for reader in readers)
            longest = max(longest, first - writer[0].ended)
    return longest / 1e6


def counts(history: History) -> dict[str, int]:
    """Count operations by function and status, and the records sent and read."""
    found: Counter[str] = Counter(f"{op.f} {op.status}" for op in history.ops)
    found["operations"] = len(history.ops)
    found["processes"] = len({op.process for op in history.ops})
    found["records sent"] = sum(len(op.sends) for op in history.ops)
    found["records read"] = sum(
        len(op.reads) for op in history.ops if op.isolation == READ_COMMITTED
    )
    return dict(found)


def acknowledged(history: History) -> dict[str, int]:
    """Return the number of acknowledged sends of each client outside of transactions, by role."""
    found: Counter[str] = Counter()
    for op in history.ops:
        if op.f == "send":
            found[op.client] += sum(send.status == OK for send in op.sends)
    return dict(sorted(found.items()))


def figures(report: Report) -> dict[str, Any]:
    """Return the figures of a run for its record. Anomalies that Kafka allows are only counted."""
    history = report.history
    ops = [op for op in history.ops if op.process < FINAL_PROCESS]
    transactions = [op for op in ops if op.f == "txn"]
    ends = {
        str(protocol): dict(Counter(op.status for op in transactions if op.protocol == protocol))
        for protocol in (1, 2)
    }
    numbers = counts(history)
    shown = {k: v for k, v in history.test.items() if k not in ("type", "time")}
    return {
        **shown,
        "operations": numbers["operations"],
        "transactions": {protocol: ended for protocol, ended in ends.items() if ended},
        "records_sent": numbers["records sent"],
        "acknowledged": acknowledged(history),
        "records_read": numbers["records read"],
        "faults": dict(sorted(Counter(fault["f"] for fault in history.faults).items())),
        "anomalies": dict(Counter(anomaly.kind for anomaly in report.forbidden)),
        "allowed": sum(1 for anomaly in report.anomalies if anomaly.allowed),
        "examples": [anomaly.detail for anomaly in report.forbidden[:EXAMPLES]],
        "idle": idle(history),
        "complete": history.complete,
        "lag_ms_max": round(report.lag_ms_max),
    }


def render(report: Report) -> str:
    """Return the report as text."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    test = {k: v for k, v in report.history.test.items() if k not in ("type", "time")}
    yield "test: " + ", ".join(f"{key}={value}" for key, value in test.items())
    numbers = counts(report.history)
    listed = ", ".join(f"{name} {number:,}" for name, number in sorted(numbers.items()))
    yield f"operations: {listed}"
    faults = Counter(fault["f"] for fault in report.history.faults)
    listed = ", ".join(f"{name} {number}" for name, number in sorted(faults.items()))
    yield f"faults: {sum(faults.values())} ({listed or 'none'})"
    yield f"longest from acknowledged to read: {report.lag_ms_max:,.0f} ms"
    if not report.history.complete:
        yield "the final reads did not end: what was never read is not counted"
    for allowed in (False, True):
        yield from _listed([a for a in report.anomalies if bool(a.allowed) == allowed], allowed)


def _listed(anomalies: list[Anomaly], allowed: bool) -> Iterator[str]:
    by_kind = Counter(anomaly.kind for anomaly in anomalies)
    title = "anomalies that Kafka allows by design" if allowed else "anomalies"
    yield f"{title}: {sum(by_kind.values())}"
    for kind, number in sorted(by_kind.items()):
        of_kind = [anomaly for anomaly in anomalies if anomaly.kind == kind]
        why = f" ({of_kind[0].allowed})" if allowed else ""
        yield f"  {kind}: {number}{why}"
        for anomaly in of_kind[: 0 if allowed else EXAMPLES]:
            yield f"    {anomaly.detail}"
