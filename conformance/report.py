"""The recorded results of each target, in JSON files of docs/.

The results of a suite on one kind of broker are recorded together, with the commit, the day and the
seed of that run. `conformance.page` makes docs/conformance.md from all files.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from conformance.harness import Result
from conformance.targets import BROKER
from testkit import source_state
from testkit.peer.artifacts import ROOT

DOCS = ROOT / "docs"
RESULTS = DOCS / "conformance.json"
NAMES = ("kafka", "odradek")
REASON_MAX = 120
PACKAGES = ("confluent-kafka", "kafka-python", "aiokafka", "pyspark")


def path_of(target: str) -> Path:
    """Return the file with the recorded results of a target."""
    return RESULTS if target == BROKER else DOCS / f"conformance-{target}.json"


@dataclass(frozen=True, slots=True)
class Run:
    """The code that a suite was run against, and the day.

    `commit` is the last commit that changed src/. `modified`: src/ had uncommitted changes, or it
    changed during the run. `seed` is the one of the kills.
    """

    commit: str
    date: str
    modified: bool = False
    seed: int | None = None

    def until(self, end: Run) -> Run:
        """Return the run of which `self` is the state at the start and `end` at the end."""
        changed = self.modified or end.modified or self.commit != end.commit
        return replace(self, modified=changed)


@dataclass(slots=True)
class Report:
    """The contents of a file with results, such as docs/conformance.json.

    Attributes:
        runs: By broker and suite. A suite that was not run has none.
        versions: The programs of the last run.
        in_ci: Suite and name of each case that CI runs.
        results: By broker.
        kills: By broker and suite, the number of brokers that were killed during it.
    """

    runs: dict[str, dict[str, Run]] = field(default_factory=lambda: {name: {} for name in NAMES})
    versions: str = ""
    in_ci: set[tuple[str, str]] = field(default_factory=set)
    results: dict[str, list[Result]] = field(default_factory=lambda: {name: [] for name in NAMES})
    kills: dict[str, dict[str, int]] = field(default_factory=lambda: {name: {} for name in NAMES})

    def record(
        self,
        name: str,
        suites: Iterable[str],
        run: Run,
        results: Iterable[Result],
        kills: Mapping[str, int],
    ) -> None:
        """Replace the results of these suites on one kind of broker."""
        suites = set(suites)
        kept = [row for row in self.results[name] if row.suite not in suites]
        self.results[name] = kept + list(results)
        self.runs[name] |= dict.fromkeys(suites, run)
        self.kills[name] |= kills

    def seconds(self, name: str, suite: str) -> float | None:
        """Return how long the cases of a suite took. None: it was not run."""
        if suite not in self.runs[name]:
            return None
        return sum(row.seconds for row in self.results[name] if row.suite == suite)


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
        runs={
            name: {suite: Run(**run) for suite, run in runs.items()}
            for name, runs in stored["runs"].items()
        },
        versions=stored["versions"],
        in_ci={(suite, name) for suite, name in stored["in_ci"]},
        results={name: [Result(**row) for row in rows] for name, rows in stored["results"].items()},
        kills=stored["kills"],
    )


def save(report: Report, suites: Sequence[str], path: Path = RESULTS) -> None:
    """Write the report, with the results in the order of the suites, one case a line."""
    stored = {
        "runs": {
            name: {suite: asdict(runs[suite]) for suite in suites if suite in runs}
            for name, runs in report.runs.items()
        },
        "versions": report.versions,
        "in_ci": sorted(map(list, report.in_ci), key=lambda case: (suites.index(case[0]), case[1])),
        "results": {
            name: [_row(row) for row in sorted(rows, key=lambda r: suites.index(r.suite))]
            for name, rows in report.results.items()
        },
        "kills": report.kills,
    }
    path.write_text(_lines(stored) + "\n", encoding="utf-8")


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
    return asdict(result) | {"seconds": round(result.seconds, 1), "reason": short(result.reason)}


def short(reason: str) -> str:
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
