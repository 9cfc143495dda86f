"""Failures of the conformance suites, and the differences that the comparison permits."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from conformance import franz_go, page, program_cases, report, run, targets
from conformance.broker_kills import DOWN_S, PAUSE_S, BrokerKills, Kill, await_in_sync, planned
from conformance.differential.allowed import ALLOWED, table
from conformance.differential.compare import Difference, compare
from conformance.franz_go import RACES
from conformance.harness import (
    KILLS_VARIABLE,
    REPEATS_MAX,
    SESSION_KILLS_MS,
    SESSION_MS,
    Context,
    Outcome,
    Result,
    Skip,
    patient_s,
)
from conformance.kafka_python_suite import repeat_failed
from conformance.parts import LIMIT_MINUTES, PARTS, START_S
from conformance.program_cases import Group
from conformance.targets import BROKER, CLUSTER, KILLS, TARGETS

from testkit.peer import cluster

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


def test_a_known_failure_of_clusters_may_pass_there_and_is_a_failure_on_one_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(run.KNOWN_ON_CLUSTERS, ("suite", "a test"), "the cause")
    for target in (CLUSTER, KILLS):
        for outcome in ("failed", "passed"):
            assert run._judge([result(outcome)], [result("passed")], target) == []
    assert run._judge([result("failed")], [result("passed")], BROKER) != []


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


def test_clients_of_a_registry_do_not_run_while_brokers_are_killed() -> None:
    assert set(run.suites_of(CLUSTER)) - set(run.suites_of(KILLS)) == {"schema_registry"}
    assert set(run.suites_of(KILLS)) <= set(run.suites_of(CLUSTER))


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
        cluster.CLUSTER_STARTERS, "odradek", lambda _, properties: started.append(properties)
    )
    for target in (CLUSTER, KILLS):
        targets.start(target, "odradek", Path(), {"node.id": "0"})
    assert started[0] == {"node.id": "0"}
    assert started[1] == {"node.id": "0", **targets.SHORT_SESSIONS}
    assert SESSION_MS == cluster.SESSION_MS < SESSION_KILLS_MS


def test_waits_are_longer_while_brokers_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KILLS_VARIABLE, raising=False)
    assert patient_s(90.0) == 90.0
    monkeypatch.setenv(KILLS_VARIABLE, "1")
    assert patient_s(90.0) == 270.0


def test_without_kills_only_a_test_with_a_race_is_repeated_until_it_passes() -> None:
    names: list[str] = []

    def third_time(pattern: str) -> list[Outcome]:
        names.append(pattern)
        return [Outcome(RACES[0], "passed" if len(names) == 2 else "failed", 1.0)]

    failed = [Outcome(name, "failed", 1.0, "no record") for name in (RACES[0], "TestPing")]
    first, second = franz_go.repeat_failed(failed, third_time, kills=False)
    assert (first.outcome, first.reason) == ("passed", "at attempt 3, for a race of the test")
    assert second == failed[1]
    assert names == [f"^{RACES[0]}$"] * 2
    fails = [Outcome(RACES[0], "failed", 1.0)]
    assert franz_go.repeat_failed(failed, lambda _: fails, kills=False) == failed


@pytest.mark.parametrize("passes", [True, False])
def test_with_kills_each_failed_subtest_is_repeated_and_decides_about_its_parent(
    passes: bool,
) -> None:
    patterns: list[str] = []
    parent, child = "TestTxnEtl", "TestTxnEtl/range/848"
    outcomes = [
        Outcome("TestPing", "passed", 0.1),
        *(Outcome(name, "failed", 1.0) for name in (parent, child)),
        Outcome("TestTxnEtl/sticky", "failed", 1.0),
    ]

    def repeated(pattern: str) -> list[Outcome]:
        patterns.append(pattern)
        name = pattern.replace("^", "").replace("$", "")
        ends = "passed" if passes or name == child else "failed"
        return [Outcome(name, "passed", 1.0), Outcome(parent, ends, 1.0)]

    found = franz_go.repeat_failed(outcomes, repeated, kills=True)
    verdict = "passed" if passes else "failed"
    assert [each.outcome for each in found] == ["passed", verdict, "passed", verdict]
    again = 1 if passes else REPEATS_MAX
    assert patterns == ["^TestTxnEtl$/^range$/^848$"] + ["^TestTxnEtl$/^sticky$"] * again


def test_each_failed_test_of_kafka_python_is_repeated_alone_until_it_passes() -> None:
    names: list[str] = []

    def second_time(name: str) -> list[Outcome]:
        names.append(name)
        return [Outcome(name, "passed" if len(names) == 2 else "failed", 1.0)]

    passed, failed = Outcome("test_a", "passed", 1.0), Outcome("test_b", "failed", 1.0, "refused")
    first, second = repeat_failed([passed, failed], second_time)
    assert first == passed
    assert (second.outcome, second.reason) == ("passed", "at attempt 3, after the kill of a broker")
    assert names == ["test_b"] * 2
    never = repeat_failed([failed], lambda _: [Outcome("test_b", "failed", 1.0, "again")])
    assert never == [failed]


@pytest.mark.parametrize("kills", [True, False])
def test_members_that_fail_are_started_again_only_while_brokers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: bool
) -> None:
    monkeypatch.setattr(program_cases, "RESTART_PAUSE_S", 0.0)
    program = """
import pathlib, sys, time
marker = pathlib.Path(sys.argv[-2] + ".marker")
if not marker.exists():
    marker.touch()
    sys.exit("no broker responds")
print(0, 7, flush=True)
time.sleep(600)
"""
    context = Context("127.0.0.1:1", tmp_path, kills=kills)
    topic = str(tmp_path / "topic")
    group = Group(context, [sys.executable, "-c", program], topic, str(tmp_path / "group"))
    member = group.join()
    try:
        if kills:
            group.until_seen(1)
            assert (member.seen(), member.restarts) == ([(0, 7)], 1)
        else:
            with pytest.raises(AssertionError, match="a member ended: no broker responds"):
                group.until_seen(1)
    finally:
        group.end()


def test_each_killed_broker_is_started_before_the_next_kill() -> None:
    fake = FakeCluster()
    with FastKills(fake, Random(1)) as kills:  # type: ignore[arg-type]
        fake.several.wait()
    assert kills.failure == ""
    assert kills.count == len(fake.calls) // 2 >= 3
    for killed, started in zip(fake.calls[::2], fake.calls[1::2], strict=True):
        assert (killed[0], started[0]) == ("kill", "restart") and killed[1] == started[1]


def test_a_broker_that_does_not_start_again_is_a_failure_of_the_cluster() -> None:
    fake = FakeCluster(fails=True)
    with FastKills(fake, Random(1)) as kills:  # type: ignore[arg-type]
        fake.several.wait()
    assert kills.failure.endswith("ended while starting")


def test_replicas_that_stay_out_of_sync_are_named() -> None:
    with pytest.raises(RuntimeError, match="not in sync after 0 s: pages-0"):
        await_in_sync(lambda: ["pages-0"], 0)


def _report(seed: int | None = None, **kills: int) -> report.Report:
    recorded = report.Report()
    for name in report.NAMES:
        of_run = report.Run("c" * 40, f"2026-11-2{len(name)}", seed=seed)
        rows = [Result("kcat", "a test", "passed", 1.0)]
        counts = {"kcat": kills[name]} if name in kills else {}
        recorded.record(name, ["kcat"], of_run, rows, counts)
    return recorded


def _page(**reports: report.Report) -> str:
    suites = {
        target: ("kcat", "spark", "moving_in")[: 3 if target == BROKER else 2] for target in TARGETS
    }
    return page.page({each: reports.get(each, report.Report()) for each in TARGETS}, suites)


def test_the_page_shows_kills_with_seed_commit_and_date(tmp_path: Path) -> None:
    report.save(_report(7, kafka=3, odradek=4), run.SUITES, tmp_path / "results.json")
    loaded = report.load(tmp_path / "results.json")
    assert loaded == _report(7, kafka=3, odradek=4)
    shown = _page(kills=loaded)
    row = "| kcat | 1 / 0 / 0 | 3 | 2026-11-25 | 1 / 0 / 0 | 4 | 2026-11-27 | `ccccccc` | 7 |"
    assert row in shown.partition("## Results while brokers are killed")[2]


def test_the_page_names_what_was_not_run() -> None:
    three_brokers = _report()
    del three_brokers.runs["kafka"]["kcat"]
    shown = _page(broker=_report(), cluster=three_brokers)
    _, one, rest = re.split("## Results on one broker|## Results on three brokers", shown)
    three, killed = rest.split("## Results while brokers are killed")
    assert "Not run with Odradek: spark, moving_in.\n" in one and "own" not in one
    assert "| kcat | not run |  | 1 / 0 / 0 | 2026-11-27 | `ccccccc` |" in three
    assert "Not run with Kafka: kcat, spark.\n" in three
    assert "These suites only start brokers of their own, on one broker: moving_in.\n" in three
    assert "Not run with Odradek: kcat, spark.\n" in killed


def test_the_page_names_suites_that_do_not_run_while_brokers_are_killed() -> None:
    suites = {
        BROKER: ("kcat", "schema_registry"),
        CLUSTER: ("kcat", "schema_registry"),
        KILLS: ("kcat",),
    }
    shown = page.page({each: _report() for each in TARGETS}, suites)
    sentence = "These suites do not run while brokers are killed: schema_registry.\n"
    assert shown.count(sentence) == 1
    assert sentence in shown.partition("## Results while brokers are killed")[2]
    assert "only start brokers of their own, on one broker" not in shown


COLUMNS = ("one broker", "killed brokers")


def test_a_case_has_a_column_for_each_target_of_which_its_suite_was_run() -> None:
    killed = _report(1)
    killed.record("odradek", ["kcat"], report.Run("d" * 40, ""), [], {})
    section = _page(broker=_report(), kills=killed).partition("## kcat\n")[2]
    heads = (
        "one broker: Kafka | one broker: Odradek | killed brokers: Kafka | killed brokers: Odradek"
    )
    assert f"| case | CI | {heads} |  |" in section
    assert "| a test |  | passed | passed | passed | - |  |" in section


def test_results_of_one_broker_replace_only_its_own() -> None:
    recorded = _report()
    row = Result("kcat", "a test", "failed", 2.0)
    recorded.record("kafka", ["kcat"], report.Run("d" * 40, "later"), [row], {})
    assert [each.outcome for each in recorded.results["kafka"]] == ["failed"]
    assert [each.outcome for each in recorded.results["odradek"]] == ["passed"]
    assert recorded.runs["odradek"]["kcat"].commit == "c" * 40
    assert (recorded.seconds("kafka", "kcat"), recorded.seconds("kafka", "spark")) == (2.0, None)


def test_the_parts_of_a_run_have_each_suite_of_each_target_once() -> None:
    for target in TARGETS:
        for name in report.NAMES:
            of_target = [
                suite
                for part in PARTS.values()
                if part.target == target and name in part.brokers
                for suite in part.suites(run.suites_of(target))
            ]
            assert sorted(of_target) == sorted(run.suites_of(target))


def test_no_part_takes_more_than_an_hour_by_its_recorded_results() -> None:
    for part in PARTS.values():
        suites = part.suites(run.suites_of(part.target))
        minutes = part.minutes(suites, report.load(report.path_of(part.target)))
        assert minutes is None or minutes <= LIMIT_MINUTES, part.name
    assert PARTS["cluster-clients-kafka"].minutes(("kcat",), _report()) == (1 + START_S) / 60
    assert PARTS["cluster-clients-kafka"].minutes(("kcat", "spark"), _report()) is None


def test_the_page_is_the_one_of_the_recorded_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "conformance.md")
    run.render()
    assert page.PAGE.read_text(encoding="utf-8") == recorded


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
