"""The results in docs/conformance.json and docs/conformance.md: passed, failed and skipped."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from conformance.harness import Result
from conformance.known import KNOWN
from testkit.peer.artifacts import KAFKA_VERSION, ROOT

DOCS = ROOT / "docs"
REASON_MAX = 120
PACKAGES = ("confluent-kafka", "kafka-python", "aiokafka", "pyspark")

HEAD = Path(__file__).with_name("head.md")


def read_results() -> dict[str, list[Result]]:
    """Return the results of the last complete run by broker, or an empty dict before the first."""
    path = DOCS / "conformance.json"
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: [Result(**row) for row in rows] for name, rows in stored.items()}


def write_report(
    results: dict[str, list[Result]], suites: Sequence[str], in_ci: set[tuple[str, str]]
) -> None:
    """Write both files. `in_ci`: suite and name of each case that CI runs."""
    stored = {
        name: [asdict(row) for row in sorted(rows, key=lambda r: suites.index(r.suite))]
        for name, rows in results.items()
    }
    for rows in stored.values():
        for row in rows:
            row["seconds"] = round(row["seconds"], 1)
            row["reason"] = _short(row["reason"])
    (DOCS / "conformance.json").write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    text = HEAD.read_text(encoding="utf-8").format(kafka=KAFKA_VERSION, versions=_versions())
    text += _totals(results, suites) + "".join(
        _suite_table(results, suite, in_ci) for suite in suites
    )
    (DOCS / "conformance.md").write_text(text, encoding="utf-8")


def _totals(results: dict[str, list[Result]], suites: Sequence[str]) -> str:
    lines = [
        "",
        "| suite | Kafka: passed / failed / skipped | Odradek: passed / failed / skipped |",
        "|---|---|---|",
    ]
    for suite in (*suites, "all"):
        cells = []
        for name in ("kafka", "odradek"):
            of = [r for r in results[name] if suite in (r.suite, "all")]
            count = Counter(result.outcome for result in of)
            counts = f"{count['passed']} / {count['failed']} / {count['skipped']}"
            cells.append(counts if of else "not run for this table")
        lines.append(f"| {suite} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def _suite_table(results: dict[str, list[Result]], suite: str, in_ci: set[tuple[str, str]]) -> str:
    kafka = {r.name: r for r in results["kafka"] if r.suite == suite}
    odradek = {r.name: r for r in results["odradek"] if r.suite == suite}
    names = list(kafka) + [name for name in odradek if name not in kafka]
    if not names:
        return ""
    lines = [f"\n## {suite}\n", "| case | CI | Kafka | Odradek | |", "|---|---|---|---|---|"]
    for name in names:
        ours, theirs = odradek.get(name), kafka.get(name)
        note = KNOWN.get((suite, name), "") if ours and ours.outcome == "failed" else ""
        note = note or _short((ours.reason if ours else "") or (theirs.reason if theirs else ""))
        ci = "yes" if (suite, name) in in_ci else ""
        lines.append(
            f"| {name} | {ci} | {theirs.outcome if theirs else '-'} "
            f"| {ours.outcome if ours else '-'} | {note.replace('|', ' ')} |"
        )
    return "\n".join(lines) + "\n"


def _short(reason: str) -> str:
    """Return the first line of a reason without paths of the machine where the case ran."""
    line = reason.strip().splitlines()[0] if reason.strip() else ""
    line = line.replace(str(ROOT), ".").replace(str(Path.home()), "~")
    return line[:REASON_MAX]


def _versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    try:
        output = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
        found += [
            line.split(" (")[0].replace("Version", "kcat")
            for line in output.splitlines()
            if line.startswith("Version")
        ]
    except OSError:
        pass
    return ", ".join(found)
