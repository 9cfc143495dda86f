"""The report of a run in docs/conformance.json, and the page docs/conformance.md made from it."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from conformance.harness import Result
from conformance.known import KNOWN
from conformance.targets import BROKER
from testkit import source_state
from testkit.peer.artifacts import KAFKA_VERSION, ROOT

DOCS = ROOT / "docs"
RESULTS = DOCS / "conformance.json"
REASON_MAX = 120
PACKAGES = ("confluent-kafka", "kafka-python", "aiokafka", "pyspark")
NOT_RECORDED = "not recorded"


def paths(target: str) -> tuple[Path, Path]:
    """Return the recorded results and the page of a target."""
    if target == BROKER:
        return RESULTS, RESULTS.with_suffix(".md")
    recorded = DOCS / f"conformance-{target}.json"
    return recorded, recorded.with_suffix(".md")


def _head(target: str) -> str:
    name = "head.md" if target == BROKER else f"head-{target}.md"
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Run:
    """The code that a suite was run against, and the day.

    `commit` is the last commit that changed src/. `modified`: src/ had uncommitted changes, or it
    changed during the run.
    """

    commit: str
    date: str
    modified: bool = False

    def until(self, end: Run) -> Run:
        """Return the run of which `self` is the state at the start and `end` at the end."""
        changed = self.modified or end.modified or self.commit != end.commit
        return Run(self.commit, self.date, changed)


@dataclass(slots=True)
class Report:
    """The contents of docs/conformance.json.

    Attributes:
        runs: By suite. A suite whose results are older than this field has none.
        versions: The programs of the last run.
        in_ci: Suite and name of each case that CI runs.
        results: By broker.
        kills: By broker and suite, the number of brokers that were killed during it.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    versions: str = ""
    in_ci: set[tuple[str, str]] = field(default_factory=set)
    results: dict[str, list[Result]] = field(default_factory=dict)
    kills: dict[str, dict[str, int]] = field(default_factory=dict)


def state_of_source() -> Run:
    """Return today's date and the commit of src/. Outside of git the commit is unknown."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    try:
        source = source_state.source()
    except LookupError:
        return Run("unknown", today)
    return Run(source.commit, today, source.modified)


def load(path: Path = RESULTS) -> Report:
    """Return the recorded report, or an empty one before the first complete run."""
    if not path.exists():
        return Report()
    stored = json.loads(path.read_text(encoding="utf-8"))
    return Report(
        runs={suite: Run(**run) for suite, run in stored["runs"].items()},
        versions=stored["versions"],
        in_ci={(suite, name) for suite, name in stored["in_ci"]},
        results={name: [Result(**row) for row in rows] for name, rows in stored["results"].items()},
        kills=stored.get("kills", {}),
    )


def save(report: Report, suites: Sequence[str], path: Path = RESULTS) -> None:
    """Write the report, with the results in the order of the suites, one case a line."""
    stored = {
        "runs": {suite: asdict(report.runs[suite]) for suite in suites if suite in report.runs},
        "versions": report.versions,
        "in_ci": sorted(map(list, report.in_ci), key=lambda case: (suites.index(case[0]), case[1])),
        "results": {
            name: [_row(row) for row in sorted(rows, key=lambda r: suites.index(r.suite))]
            for name, rows in report.results.items()
        },
        **({"kills": report.kills} if any(report.kills.values()) else {}),
    }
    path.write_text(_lines(stored) + "\n", encoding="utf-8")


def page(report: Report, suites: Sequence[str], target: str = BROKER) -> str:
    """Return the page of a target, such as docs/conformance.md."""
    text = _head(target).format(kafka=KAFKA_VERSION, versions=report.versions)
    text += _totals(report, suites)
    return text + "".join(_suite_table(report, suite) for suite in suites)


def versions() -> str:
    """Return the names and versions of the programs on this machine, for the page."""
    return ", ".join((f"Python {platform.python_version()}", *_packages(), *_kcat()))


def _lines(value: Any, margin: str = "") -> str:
    """Return JSON in which each child of a container begins a line, unless all are scalars."""
    is_object = isinstance(value, dict)
    children = value.values() if is_object else value
    if isinstance(value, str) or not any(isinstance(each, dict | list) for each in children):
        return json.dumps(value)
    names = [f"{json.dumps(name)}: " for name in value] if is_object else [""] * len(value)
    inner = margin + " "
    texts = (
        f"{inner}{name}{_lines(each, inner)}" for name, each in zip(names, children, strict=True)
    )
    begin, end = "{}" if is_object else "[]"
    return begin + "\n" + ",\n".join(texts) + f"\n{margin}{end}"


def _row(result: Result) -> dict[str, Any]:
    return asdict(result) | {"seconds": round(result.seconds, 1), "reason": _short(result.reason)}


def _totals(report: Report, suites: Sequence[str]) -> str:
    lines = [
        "",
        "| suite | Kafka: passed / failed / skipped | Odradek: passed / failed / skipped "
        "| commit of Odradek | date |",
        "|---|---|---|---|---|",
    ]
    for suite in (*suites, "all"):
        cells = []
        for name in ("kafka", "odradek"):
            of = [r for r in report.results[name] if suite in (r.suite, "all")]
            count = Counter(result.outcome for result in of)
            counts = f"{count['passed']} / {count['failed']} / {count['skipped']}"
            counts += _kills(report.kills.get(name, {}), suite)
            cells.append(counts if of else "not run for this table")
        cells += _commit_and_date(report, suite, suites)
        lines.append(f"| {suite} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _kills(of: dict[str, int], suite: str) -> str:
    """Return the number of brokers that were killed. Empty on targets without kills."""
    if not of:
        return ""
    return f" ({sum(of.values()) if suite == 'all' else of.get(suite, 0)} kills)"


def _commit_and_date(report: Report, suite: str, suites: Iterable[str]) -> tuple[str, str]:
    """Return two cells. Those of the row "all" are empty unless all suites have the same values."""
    of = {report.runs.get(each) for each in (suites if suite == "all" else (suite,))}
    run = of.pop()
    if of:
        return "", ""
    if run is None:
        return NOT_RECORDED, NOT_RECORDED
    return f"`{run.commit[:7]}`" + (" and later changes" if run.modified else ""), run.date


def _suite_table(report: Report, suite: str) -> str:
    kafka = {r.name: r for r in report.results["kafka"] if r.suite == suite}
    odradek = {r.name: r for r in report.results["odradek"] if r.suite == suite}
    names = list(kafka) + [name for name in odradek if name not in kafka]
    if not names:
        return ""
    lines = [f"\n## {suite}\n", "| case | CI | Kafka | Odradek | |", "|---|---|---|---|---|"]
    for name in names:
        ours, theirs = odradek.get(name), kafka.get(name)
        note = KNOWN.get((suite, name), "") if ours and ours.outcome == "failed" else ""
        note = note or _short((ours.reason if ours else "") or (theirs.reason if theirs else ""))
        ci = "yes" if (suite, name) in report.in_ci else ""
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


def _packages() -> list[str]:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return found


def _kcat() -> list[str]:
    try:
        output = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return [
        line.split(" (")[0].replace("Version", "kcat")
        for line in output.splitlines()
        if line.startswith("Version")
    ]
