"""The records of conformance and the page of compared responses: commit, date, versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance import page, report
from conformance.differential import __main__ as differential
from conformance.harness import Result
from conformance.report import Report, Run
from conformance.targets import BROKER, TARGETS

from testkit import source_state
from testkit.source_state import Source

FIRST = Run("1111111" + "0" * 33, "2026-01-01")
SECOND = Run("2222222" + "0" * 33, "2026-01-02")
SUITES = ("kcat", "cross")


def result(suite: str, reason: str = "") -> Result:
    return Result(suite, "a case", "skipped" if reason else "passed", 0.123, reason)


def two_suites(**runs: Run) -> Report:
    """Return a report of Odradek on one broker, with a case of each suite."""
    found = Report(versions="kcat 1.7.1", in_ci={("kcat", "a case")})
    for suite, run in runs.items():
        reason = "no client" if suite == "cross" else ""
        found.record("odradek", [suite], run, [result(suite, reason)], {})
    return found


def totals(found: Report) -> dict[str, list[str]]:
    """Return the cells of Odradek in the table of one broker: counts, date and commit."""
    reports = {target: found if target == BROKER else Report() for target in TARGETS}
    text = page.page(reports, dict.fromkeys(TARGETS, SUITES))
    table = text.partition(f"## {page.HEADINGS[BROKER]}\n\n")[2].split("\n\n")[0]
    rows = [line[2:-2].split(" | ") for line in table.splitlines()[2:]]
    return {row[0]: [cell.strip() for cell in row[3:]] for row in rows}


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = two_suites(kcat=FIRST, cross=SECOND)
    report.save(written, SUITES, tmp_path / "report.json")
    found = report.load(tmp_path / "report.json")
    assert (found.runs, found.versions, found.in_ci) == (
        written.runs,
        written.versions,
        written.in_ci,
    )
    assert [row.seconds for row in found.results["odradek"]] == [0.1, 0.1]
    report.save(found, SUITES, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "report.json").read_bytes()


def test_the_page_names_the_commit_and_the_day_of_each_suite() -> None:
    found = totals(two_suites(kcat=FIRST, cross=SECOND))
    assert found["kcat"] == ["1 / 0 / 0", "2026-01-01", "`1111111`"]
    assert found["cross"] == ["0 / 0 / 1", "2026-01-02", "`2222222`"]
    assert found["all"] == ["1 / 0 / 1", "", ""]
    same = totals(two_suites(kcat=FIRST, cross=FIRST))
    assert same["all"] == ["1 / 0 / 1", "2026-01-01", "`1111111`"]


def test_a_run_of_some_suites_keeps_the_commits_of_the_others() -> None:
    found = two_suites(kcat=FIRST, cross=FIRST)
    found.record("odradek", ["cross"], SECOND, [result("cross")], {})
    assert found.runs["odradek"] == {"kcat": FIRST, "cross": SECOND}
    assert found.results["odradek"] == [result("kcat"), result("cross")]


@pytest.mark.parametrize(
    ("end", "modified"),
    [
        (FIRST, False),
        (SECOND, True),
        (Run(FIRST.commit, FIRST.date, modified=True), True),
    ],
)
def test_a_source_that_changed_during_the_run_is_reported(end: Run, modified: bool) -> None:
    taken = FIRST.until(end)
    assert taken == Run(FIRST.commit, FIRST.date, modified)
    assert totals(two_suites(kcat=taken))["kcat"][-1] == (
        "`1111111` and later changes" if modified else "`1111111`"
    )


def test_the_recorded_versions_are_those_of_the_programs_on_this_machine() -> None:
    assert "Python 3." in report.versions()


def test_the_commit_is_the_last_one_that_changed_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_state, "source", lambda: Source("c" * 40, "t" * 40, True))
    found = report.state_of_source()
    assert (found.commit, found.modified) == ("c" * 40, True)

    def no_git() -> Source:
        raise LookupError("git is not installed")

    monkeypatch.setattr(source_state, "source", no_git)
    assert report.state_of_source().commit == "unknown"


def test_the_page_of_compared_responses_names_commit_date_and_versions() -> None:
    counts = {"same": 1, "allowed": 0, "different": 0}
    rows = [("metadata.known v0", "same", "")]
    page = differential.page(rows, counts, FIRST)
    assert "1 same, 0 allowed, 0 different. Run on 2026-01-01 at commit `1111111`" in page
    assert "Apache Kafka 4." in page and "with Python 3." in page
    assert "later changes" in differential.page(rows, counts, FIRST.until(SECOND))
    assert "not recorded" in differential.page(rows, counts, None)
