"""What fails a run of the conformance suites."""

from __future__ import annotations

import pytest
from conformance import run
from conformance.harness import Result


def result(outcome: str, name: str = "a test") -> Result:
    return Result("suite", name, outcome, 0.0, "")


@pytest.mark.parametrize(
    ("ours", "theirs", "bad"),
    [
        ("passed", "passed", ""),
        ("passed", "failed", ""),
        ("failed", "passed", "FAILED suite: a test"),
        ("failed", "skipped", "FAILED suite: a test"),
        ("failed", "failed", ""),
        ("skipped", "skipped", ""),
        ("skipped", "passed", "SKIPPED, not by Kafka: suite: a test"),
        ("skipped", "failed", "SKIPPED, not by Kafka: suite: a test"),
    ],
)
def test_failure_or_skip_that_kafka_does_not_have_is_told(ours: str, theirs: str, bad: str) -> None:
    told = run._judge([result(ours)], [result(theirs)])
    assert [line.split(": ")[:2] for line in told] == ([bad.split(": ")[:2]] if bad else [])


def test_failure_with_a_known_cause_must_leave_the_list_when_it_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(run.KNOWN, ("suite", "a test"), "the cause")
    assert run._judge([result("failed")], [result("passed")]) == []
    [told] = run._judge([result("passed")], [result("passed")])
    assert told.startswith("PASSED, though known to fail")


def test_what_passed_on_kafka_and_did_not_run_is_told() -> None:
    theirs = [result("passed"), result("passed", "another"), result("skipped", "a third")]
    assert run._missing([result("skipped", "the whole suite")], theirs[1:]) == [
        "DID NOT RUN: suite: another"
    ]
    assert run._missing([result("failed"), result("passed", "another")], theirs) == []
    assert run._missing([], theirs) == []  # of suites that were not asked for
