"""Failures of the conformance suites, and the differences that the comparison permits."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from conformance import report, run, targets
from conformance.broker_kills import DOWN_S, PAUSE_S, BrokerKills, Kill, await_in_sync, planned
from conformance.differential.allowed import ALLOWED, table
from conformance.differential.compare import Difference, compare
from conformance.harness import (
    KILLS_VARIABLE,
    SESSION_KILLS_MS,
    SESSION_MS,
    Context,
    Result,
    Skip,
    patient_s,
)
from conformance.targets import BROKER, CLUSTER, KILLS, TARGETS

from testkit.peer.cluster import SESSION_MS as SESSION_OF_BROKERS_MS

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


# --- targets ---


def test_suites_that_start_their_own_brokers_run_on_one_broker_only() -> None:
    left_out = set(run.SUITES) - set(run.suites_of(CLUSTER))
    assert left_out == {"from_kafka", "moving_in", "cluster_tools"}
    assert run.suites_of(BROKER) == run.SUITES
    assert run.suites_of(KILLS) == run.suites_of(CLUSTER)


def test_the_same_seed_gives_both_clusters_the_same_kills() -> None:
    sequences = [
        [planned(random, 3) for _ in range(50)] for random in map(Random, ("1 kcat", "1 kcat"))
    ]
    assert sequences[0] == sequences[1]
    assert {each.position for each in sequences[0]} == {0, 1, 2}
    assert sequences[0] != [planned(other, 3) for other in [Random("2 kcat")] for _ in range(50)]
    for each in sequences[0]:
        assert PAUSE_S[0] <= each.pause_s <= PAUSE_S[1] and DOWN_S[0] <= each.down_s <= DOWN_S[1]


class FakeCluster:
    """The brokers of a cluster, without processes. The second start of a broker may fail."""

    name = "odradek"
    bootstrap = "127.0.0.1:1"

    def __init__(self, *, fails: bool = False) -> None:
        self.brokers = {1: None, 2: None, 3: None}
        self.calls: list[tuple[str, int]] = []
        self.several = threading.Event()
        self._fails = fails

    def kill(self, broker_id: int) -> None:
        self.calls.append(("kill", broker_id))

    def restart(self, broker_id: int) -> None:
        self.calls.append(("restart", broker_id))
        if len(self.calls) >= 6:
            self.several.set()
        if self._fails:
            self.several.set()
            raise RuntimeError(f"broker {broker_id} ended while starting")


class FastKills(BrokerKills):
    def _plan(self) -> Kill:
        return replace(super()._plan(), pause_s=0.0, down_s=0.0)

    def _missing(self) -> list[str]:
        return []


def test_sessions_under_kills_outlast_the_session_of_a_killed_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setitem(
        targets.CLUSTER_STARTERS, "odradek", lambda _, properties: started.append(properties)
    )
    for target in (CLUSTER, KILLS):
        targets.start(target, "odradek", Path(), {"node.id": "0"})
    assert started[0] == {"node.id": "0"}
    assert started[1] == {"node.id": "0", **targets.SHORT_SESSIONS}
    assert SESSION_MS == SESSION_OF_BROKERS_MS < SESSION_KILLS_MS


def test_waits_are_longer_while_brokers_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KILLS_VARIABLE, raising=False)
    assert patient_s(90.0) == 90.0
    monkeypatch.setenv(KILLS_VARIABLE, "1")
    assert patient_s(90.0) == 270.0


def test_each_killed_broker_is_started_before_the_next_kill() -> None:
    cluster = FakeCluster()
    with FastKills(cluster, Random(1)) as kills:  # type: ignore[arg-type]
        cluster.several.wait()
    assert kills.failure == ""
    assert kills.count == len(cluster.calls) // 2 >= 3
    for killed, started in zip(cluster.calls[::2], cluster.calls[1::2], strict=True):
        assert (killed[0], started[0]) == ("kill", "restart") and killed[1] == started[1]


def test_a_broker_that_does_not_start_again_is_a_failure_of_the_cluster() -> None:
    cluster = FakeCluster(fails=True)
    with FastKills(cluster, Random(1)) as kills:  # type: ignore[arg-type]
        cluster.several.wait()
    assert kills.failure.endswith("ended while starting")


def test_replicas_that_stay_out_of_sync_are_named() -> None:
    with pytest.raises(RuntimeError, match="not in sync after 0 s: pages-0"):
        await_in_sync(lambda: ["pages-0"], 0)


def test_the_reports_of_targets_have_pages_of_their_own(tmp_path: Path) -> None:
    assert len({path for target in TARGETS for path in report.paths(target)}) == 2 * len(TARGETS)
    stored = report.Report(
        runs={"kcat": report.Run("c" * 40, "2026-11-26")},
        results={name: [Result("kcat", "a test", "passed", 1.0)] for name in run.NAMES},
        kills={"odradek": {"kcat": 4}, "kafka": {"kcat": 3}},
    )
    report.save(stored, run.SUITES, tmp_path / "results.json")
    loaded = report.load(tmp_path / "results.json")
    assert loaded.kills == stored.kills
    page = report.page(loaded, ["kcat"], KILLS)
    assert page.startswith("# Conformance while brokers are killed\n")
    assert "| kcat | 1 / 0 / 0 (3 kills) | 1 / 0 / 0 (4 kills) |" in page
    assert "kills)" not in report.page(replace(loaded, kills={}), ["kcat"], CLUSTER)


def test_a_case_gets_the_log_directory_of_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    directories = tuple(tmp_path / str(number) for number in range(3))
    context = Context(",".join(addresses), tmp_path, directories)
    monkeypatch.setattr("conformance.harness.leader", lambda *_: addresses[1])
    assert context.log_dir_of("pages") == directories[1]
    assert (context.brokers, context.replicas) == (3, 3)
    one = Context(addresses[0], tmp_path, directories[:1])
    assert one.log_dir_of("pages") == directories[0] and one.replicas == 1
    with pytest.raises(Skip, match="--log-dir"):
        Context(addresses[0], tmp_path).need_log_dirs()
