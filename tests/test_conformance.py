"""Failures of the conformance suites, and the differences that the comparison permits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conformance import run
from conformance.differential.allowed import ALLOWED, table
from conformance.differential.compare import Difference, compare
from conformance.harness import Result

DEVIATIONS = Path(__file__).resolve().parent.parent / "docs" / "deviations.md"


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
def test_failure_or_skip_that_kafka_does_not_have_is_reported(
    ours: str, theirs: str, bad: str
) -> None:
    reported = run._judge([result(ours)], [result(theirs)])
    assert [line.split(": ")[:2] for line in reported] == ([bad.split(": ")[:2]] if bad else [])


def test_failure_with_a_known_cause_must_leave_the_list_when_it_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(run.KNOWN, ("suite", "a test"), "the cause")
    assert run._judge([result("failed")], [result("passed")]) == []
    [reported] = run._judge([result("passed")], [result("passed")])
    assert reported.startswith("PASSED, though known to fail")


def test_a_case_that_passed_on_kafka_and_did_not_run_is_reported() -> None:
    theirs = [result("passed"), result("passed", "another"), result("skipped", "a third")]
    assert run._missing([result("skipped", "the whole suite")], theirs[1:]) == [
        "DID NOT RUN: suite: another"
    ]
    assert run._missing([result("failed"), result("passed", "another")], theirs) == []
    assert run._missing([], theirs) == []  # suites that were not requested


def test_every_permitted_difference_is_in_the_deviations_and_nothing_else_is() -> None:
    section = DEVIATIONS.read_text("utf-8").split("\n## What the comparison permits\n")[1]
    section = section.split("\n## ")[0]
    listed = re.findall(r"^\| (.+) \| (.+) \|$", section, re.M)[1:]
    found = {
        pattern: reason for reason, where in listed for pattern in re.findall(r"`([^`]+)`", where)
    }
    assert found == ALLOWED
    assert section.endswith("\n" + table()), "python -m conformance.differential.allowed"


@pytest.mark.parametrize("pattern", ALLOWED)
def test_pattern_permits_its_field_and_no_other_field_of_the_step(pattern: str) -> None:
    *permitted, field = pattern.replace("*", "0").split("/")
    assert Difference("/".join([*permitted, field]), 1, 2).pattern is not None
    for planted in ([*permitted, "planted"], [*permitted, field, "planted"]):
        assert Difference("/".join(planted), 1, 2).pattern is None


@pytest.mark.parametrize("pattern", ALLOWED)
def test_no_pattern_permits_a_whole_scenario(pattern: str) -> None:
    """A missing response is a difference of its step, and only single steps are permitted."""
    scenario = re.split("[@/:]", pattern)[0].replace("*", "any")
    missing = compare(f"{scenario}@9", [("a step of another name", {"error_code": 0})], [])
    assert [difference.pattern for difference in missing] == [None]
