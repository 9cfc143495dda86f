"""The page docs/conformance.md, made from the recorded results of all targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance.harness import Result
from conformance.known import KNOWN, KNOWN_ON_CLUSTERS
from conformance.report import DOCS, NAMES, Report, Run, short
from conformance.targets import BROKER, CLUSTER, KILLS, TARGETS
from testkit.peer.artifacts import KAFKA_VERSION

PAGE = DOCS / "conformance.md"
HEAD = Path(__file__).with_name("head.md")
NOT_RUN = "not run"
HEADINGS = {
    BROKER: "Results on one broker",
    CLUSTER: "Results on three brokers",
    KILLS: "Results while brokers are killed",
}
COLUMNS = {BROKER: "one broker", CLUSTER: "three brokers", KILLS: "killed brokers"}
TITLES = {"kafka": "Kafka", "odradek": "Odradek"}

Reports = Mapping[str, Report]
"""The report of each target."""
Suites = Mapping[str, Sequence[str]]
"""The names of the suites of each target."""


def page(reports: Reports, suites: Suites) -> str:
    """Return the page."""
    versions = next((each.versions for each in reports.values() if each.versions), "not recorded")
    text = HEAD.read_text(encoding="utf-8").format(kafka=KAFKA_VERSION, versions=versions)
    for target in TARGETS:
        text += f"\n## {HEADINGS[target]}\n\n"
        text += "\n".join(_totals(reports[target], suites[target], target)) + "\n"
        text += "".join(_left_out(reports[target], suites, target))
    return text + "".join(_cases(reports, suites, suite) for suite in suites[BROKER])


def _totals(report: Report, suites: Sequence[str], target: str) -> Iterator[str]:
    """Yield the lines of the table of a target: one line for each suite that was run."""
    heads = ["suite"]
    for name in NAMES:
        heads.append(f"{TITLES[name]}: passed / failed / skipped")
        heads += ["kills"] if target == KILLS else []
        heads.append("date")
    heads += ["commit of Odradek", *(["seed"] if target == KILLS else [])]
    yield _line(heads)
    yield _line("---" for _ in heads)
    for suite in suites:
        if any(suite in report.runs[name] for name in NAMES):
            yield _line([suite, *_cells(report, suite, target)])
    yield _line(["all", *_sums(report, suites, target)])


def _cells(report: Report, suite: str, target: str) -> Iterator[str]:
    for name in NAMES:
        run = report.runs[name].get(suite)
        yield _counts(report.results[name], suite) if run else NOT_RUN
        if target == KILLS:
            yield str(report.kills[name].get(suite, 0)) if run else ""
        yield run.date if run else ""
    yield _commit(report.runs["odradek"].get(suite))
    if target == KILLS:
        seeds = {str(runs[suite].seed) for runs in report.runs.values() if suite in runs}
        yield ", ".join(sorted(seeds))


def _sums(report: Report, suites: Sequence[str], target: str) -> Iterator[str]:
    """Yield the cells of the row "all". A cell is empty if the suites differ."""
    for name in NAMES:
        runs = {report.runs[name].get(suite) for suite in suites}
        yield _counts(report.results[name], "all") if runs != {None} else NOT_RUN
        if target == KILLS:
            yield str(sum(report.kills[name].values()))
        dates = {run.date if run else "" for run in runs}
        yield dates.pop() if len(dates) == 1 else ""
    runs = {report.runs["odradek"].get(suite) for suite in suites}
    commits = {_commit(run) for run in runs}
    yield commits.pop() if len(commits) == 1 else ""
    if target == KILLS:
        yield ""


def _counts(results: Sequence[Result], suite: str) -> str:
    count = Counter(row.outcome for row in results if suite in (row.suite, "all"))
    return f"{count['passed']} / {count['failed']} / {count['skipped']}"


def _commit(run: Run | None) -> str:
    if run is None:
        return ""
    return f"`{run.commit[:7]}`" + (" and later changes" if run.modified else "")


def _left_out(report: Report, suites: Suites, target: str) -> Iterator[str]:
    """Yield paragraphs with the suites that the table lacks or has for one broker only."""
    own = [suite for suite in suites[BROKER] if suite not in suites[CLUSTER]]
    if own and target != BROKER:
        yield f"\nThese suites only start brokers of their own, on one broker: {', '.join(own)}.\n"
    spared = [suite for suite in suites[CLUSTER] if suite not in suites[target]]
    if spared and target == KILLS:
        yield f"\nThese suites do not run while brokers are killed: {', '.join(spared)}.\n"
    for name in NAMES:
        missing = [suite for suite in suites[target] if suite not in report.runs[name]]
        if missing:
            yield f"\nNot run with {TITLES[name]}: {', '.join(missing)}.\n"


def _cases(reports: Reports, suites: Suites, suite: str) -> str:
    """Return the section of a suite, or nothing if it was not run."""
    shown = [
        target
        for target in TARGETS
        if suite in suites[target] and any(suite in reports[target].runs[name] for name in NAMES)
    ]
    rows = {
        (target, name): {r.name: r for r in reports[target].results[name] if r.suite == suite}
        for target in shown
        for name in NAMES
    }
    cases = list(dict.fromkeys(case for found in rows.values() for case in found))
    if not cases:
        return ""
    heads = [f"{COLUMNS[target]}: {TITLES[name]}" for target, name in rows]
    lines = [_line(["case", "CI", *heads, ""]), _line("---" for _ in range(len(heads) + 3))]
    for case in cases:
        results = {key: found.get(case) for key, found in rows.items()}
        in_ci = any((suite, case) in reports[target].in_ci for target in shown)
        outcomes = [each.outcome if each else "-" for each in results.values()]
        note = _note(suite, case, results).replace("|", " ")
        lines.append(_line([case, "yes" if in_ci else "", *outcomes, note]))
    return f"\n## {suite}\n\n" + "\n".join(lines) + "\n"


def _note(suite: str, case: str, results: Mapping[tuple[str, str], Result | None]) -> str:
    """Return the known cause, or the reason of the first result that has one, Odradek's first."""
    found = [each for (_, name), each in results.items() if each and name == "odradek"]
    known = {**KNOWN_ON_CLUSTERS, **KNOWN}.get((suite, case))
    if known and any(each.outcome == "failed" for each in found):
        return known
    found += [each for (_, name), each in results.items() if each and name == "kafka"]
    return next((text for each in found if (text := short(each.reason))), "")


def _line(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"
