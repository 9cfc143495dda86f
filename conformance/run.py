"""The runner of all suites: start the brokers, run each suite as a process, compare the results."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from conformance import page, report, targets
from conformance.broker_kills import BrokerKills
from conformance.harness import Result
from conformance.known import KNOWN, KNOWN_ON_CLUSTERS
from conformance.parts import LIMIT_MINUTES, PARTS, Part
from conformance.stacks import descendants, end
from conformance.targets import BROKER, KILLS
from odradek.launcher.programs import ZooKeeperUnavailable
from testkit.peer import PeerUnavailable
from testkit.peer.artifacts import ROOT
from testkit.peer.cluster import ClusterProcesses

# kafka-python's tests expect node id 0 and configured advertised listeners. They commit offsets of
# partition 1 of an auto-created topic, and join with session timeouts of 3 s.
NUMBERED = {
    "node.id": "0",
    "advertised.listeners": "PLAINTEXT://{address}",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
}
SUITE_TIMEOUT_S = 5400.0
CI_SUITE_TIMEOUT_S = 1800.0
STACKS_S = 120.0  # time for a suite to write stacks and end its processes after its time limit
ERRORS_CHARACTERS = 60_000


@dataclass(frozen=True, slots=True)
class Suite:
    """A module of this package.

    Attributes:
        name: The name of the module.
        numbered: Whether it needs NUMBERED.
        stopped: Whether it runs after the end of the brokers.
        starts_brokers: Whether it only starts brokers of its own. It does not run on clusters.
        killed: Whether it also runs while brokers are killed.
    """

    name: str
    numbered: bool = False
    stopped: bool = False
    starts_brokers: bool = False
    killed: bool = True

    def runs_on(self, target: str) -> bool:
        """Whether the suite runs on a target."""
        return target == BROKER or not (
            self.starts_brokers or (target == KILLS and not self.killed)
        )


ALL = (
    Suite("kcat"),
    Suite("confluent"),
    Suite("kafka_python"),
    Suite("aiokafka"),
    Suite("cross"),
    Suite("java_tools"),
    Suite("admin_tools"),
    Suite("group_tools"),
    Suite("transactions"),
    Suite("dump_log"),
    Suite("compaction"),
    Suite("from_kafka", starts_brokers=True),
    Suite("moving_in", starts_brokers=True),
    Suite("cluster_tools", starts_brokers=True),
    Suite("histories"),
    Suite("kafka_streams"),
    Suite("kafka_connect"),
    Suite("go_and_node"),
    # Each client has its own way to treat the errors of a registry without a broker.
    Suite("schema_registry", killed=False),
    Suite("spark"),
    Suite("stopped", stopped=True),
    Suite("franz_go"),
    Suite("kafka_python_suite", numbered=True),
)
SUITES = tuple(suite.name for suite in ALL)


@dataclass(frozen=True, slots=True)
class Plan:
    """The target, one of `targets.TARGETS`, the seed of its kills, and whether to record."""

    target: str = BROKER
    seed: int = 1
    records: bool = False


def suites_of(target: str) -> tuple[str, ...]:
    """Return the names of the suites that run on a target."""
    return tuple(each.name for each in ALL if each.runs_on(target))


def run_all(
    names: Sequence[str], suites: Sequence[str], subset: str | None, plan: Plan | None = None
) -> int:
    """Run the suites on each broker. Record the results if the plan says so.

    Returns:
        The exit code of the command.
    """
    plan = plan or Plan()
    path = report.path_of(plan.target)
    results: dict[str, list[Result]] = {}
    recorded = report.load(path)
    for name in names:
        begin = report.state_of_source()
        kills: dict[str, int] = {}
        try:
            results[name] = _run_broker(name, suites, subset, plan, kills)
        except PeerUnavailable as reason:
            recorded_in = path.relative_to(ROOT)
            print(f"{reason} Apache Kafka's own results are those recorded in {recorded_in}.")
            continue
        except ZooKeeperUnavailable as reason:
            print(reason)
            return 1
        run = begin.until(report.state_of_source())
        run = replace(run, seed=plan.seed if plan.target == KILLS else None)
        recorded.record(name, suites, run, results[name], kills)
    theirs = [row for row in recorded.results["kafka"] if row.suite in suites]
    ours = results.get("odradek", [])
    if plan.records and subset is None:
        recorded.versions = report.versions()
        recorded.in_ci = {case for case in _in_ci() if case[0] in suites_of(plan.target)}
        report.save(recorded, suites_of(plan.target), path)
        render()
    bad = _judge(ours, theirs, plan.target) + (_missing(ours, theirs) if subset is None else [])
    print("\n".join(bad) if bad else "no unexpected failure")
    return 1 if bad else 0


def run_part(part: Part, seed: int) -> int:
    """Run a part and record its results. Return the exit code of the command."""
    suites = part.suites(suites_of(part.target))
    print(f"=== {part.name}: {_minutes(part)}: {', '.join(suites)}", flush=True)
    return run_all(part.brokers, suites, None, Plan(part.target, seed, records=True))


def run_parts(seed: int) -> int:
    """Run all parts, after a list with their times. Return the exit code of the command."""
    list_parts()
    codes = [run_part(part, seed) for part in PARTS.values()]
    return max(codes)


def list_parts() -> None:
    """Print the parts of a complete run, and how long each took when it was recorded."""
    known = [each for part in PARTS.values() if (each := _recorded_minutes(part)) is not None]
    print(
        f"A complete run has {len(PARTS)} parts of at most {LIMIT_MINUTES} minutes each: "
        f"`make conformance-PART`. The recorded ones took {sum(known) / 60:.1f} hours."
    )
    for part in PARTS.values():
        print(f"  {part.name}: {_minutes(part)}")


def _minutes(part: Part) -> str:
    minutes = _recorded_minutes(part)
    return "not recorded yet" if minutes is None else f"{minutes:.0f} minutes when recorded"


def _recorded_minutes(part: Part) -> float | None:
    suites = part.suites(suites_of(part.target))
    return part.minutes(suites, report.load(report.path_of(part.target)))


def render() -> None:
    """Write docs/conformance.md from the recorded results of all targets."""
    reports = {target: report.load(report.path_of(target)) for target in targets.TARGETS}
    text = page.page(reports, {target: suites_of(target) for target in targets.TARGETS})
    page.PAGE.write_text(text, encoding="utf-8")


def list_cases(suites: Sequence[str], subset: str | None) -> None:
    """Print the names of the cases, suite by suite."""
    for suite in suites:
        for name in _case_names(suite, subset):
            print(f"{suite}: {name}")


def _run_broker(
    name: str, suites: Sequence[str], subset: str | None, plan: Plan, kills: dict[str, int]
) -> list[Result]:
    """Run the suites. Write the number of kills during each of them to `kills`."""
    chosen = [suite for suite in ALL if suite.name in suites]
    results: list[Result] = []
    for numbered in (False, True):
        here = [suite for suite in chosen if suite.numbered == numbered]
        here = [suite for suite in here if subset is None or _case_names(suite.name, subset)]
        if here:
            run = _Run(name, subset, plan, kills)
            results += run.suites(here, NUMBERED if numbered else {})
    return results


@dataclass(frozen=True, slots=True)
class _Run:
    """The suites of one target of one broker's kind."""

    name: str
    subset: str | None
    plan: Plan
    kills: dict[str, int]

    def suites(self, suites: list[Suite], properties: dict[str, str]) -> list[Result]:
        work = Path(tempfile.mkdtemp(prefix=f"conformance-{self.name}-"))
        results: list[Result] = []
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, work, ignore_errors=True)
            brokers = stack.enter_context(
                targets.start(self.plan.target, self.name, work / "broker", properties)
            )
            for suite in sorted(suites, key=lambda suite: suite.stopped):
                if suite.stopped:
                    took = brokers.stop()
                    print(f"--- {self.name} stopped in {took:.2f} s", flush=True)
                results += self._suite(brokers, suite, work)
            if not suites[-1].stopped:
                for number, log in brokers.ended():
                    print(f"--- broker {number} of {self.name} ended on its own: {log[-2000:]}")
        return results

    def _suite(self, brokers: ClusterProcesses, suite: Suite, work: Path) -> list[Result]:
        if self.plan.target != KILLS or suite.stopped:
            return _run_suite(brokers, suite.name, self.subset, work, self._options())
        random = Random(f"{self.plan.seed} {suite.name}")
        with BrokerKills(brokers, random) as kills:
            results = _run_suite(
                brokers, suite.name, self.subset, work, [*self._options(), "--kills"]
            )
        print(f"--- {kills.count} kills during {suite.name} against {self.name}", flush=True)
        self.kills[suite.name] = kills.count
        if kills.failure:
            results.append(Result(suite.name, "the cluster", "failed", 0.0, kills.failure))
        return results

    def _options(self) -> list[str]:
        """Cases that start a broker of their own kind run on the target `BROKER` only."""
        return ["--broker", self.name] if self.plan.target == BROKER else []


def _run_suite(
    brokers: ClusterProcesses, suite: str, subset: str | None, work: Path, options: Sequence[str]
) -> list[Result]:
    """Run one suite as a process. The suite fails if it ends early or writes no results."""
    print(f"--- {suite} against {brokers.name}", flush=True)
    lines = work / f"{suite}.jsonl"
    command = [
        sys.executable,
        "-m",
        f"conformance.{suite}",
        "--bootstrap-server",
        brokers.bootstrap,
        *(word for each in brokers.log_dirs for word in ("--log-dir", str(each))),
        "--json",
        str(lines),
        *options,
    ]
    command += ["--subset", subset] if subset else []
    began = time.monotonic()
    errors = work / f"{suite}.err"
    code, wrong = _wait(command, errors, CI_SUITE_TIMEOUT_S if subset == "ci" else SUITE_TIMEOUT_S)
    rows = lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []
    results = [Result(**json.loads(row)) for row in rows]
    failed = any(result.outcome == "failed" for result in results)
    if not (wrong or results):
        wrong = "it gave no results"
    if not wrong and code == 1 and not failed:
        wrong = "it ended with 1 after its last result"
    if wrong:
        seconds = time.monotonic() - began
        results.append(Result(suite, "the suite itself", "failed", seconds, wrong))
    if wrong or failed:
        output = errors.read_text(encoding="utf-8", errors="replace")
        print(f"--- stderr of {suite}\n{output[-ERRORS_CHARACTERS:]}", flush=True)
    return results


def _wait(command: list[str], errors: Path, timeout_s: float) -> tuple[int, str]:
    """Run a suite. Return its exit code and the reason for an early end, or an empty string.

    At the time limit it has STACKS_S to write its stacks (`harness._terminated`).
    """
    with errors.open("wb") as err:
        process = subprocess.Popen(command, cwd=ROOT, stderr=err)
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STACKS_S)
        return 1, f"no end within {timeout_s:g} s"
    finally:
        below = descendants(process.pid) if process.poll() is None else []
        process.kill()
        end(below)
        process.wait()
    return code, "" if code in (0, 1) else f"it ended with {code}"


def _in_ci() -> set[tuple[str, str]]:
    return {(suite, name) for suite in SUITES for name in _case_names(suite, "ci")}


def _case_names(suite: str, subset: str | None) -> list[str]:
    command = [sys.executable, "-m", f"conformance.{suite}", "--bootstrap-server", "-", "--list"]
    command += ["--subset", subset] if subset else []
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.splitlines()


def _judge(ours: list[Result], theirs: list[Result], target: str = BROKER) -> list[str]:
    """Return a line for each unacceptable result of Odradek."""
    of_kafka = {(result.suite, result.name): result.outcome for result in theirs}
    bad = []
    known = KNOWN if target == BROKER else {**KNOWN, **KNOWN_ON_CLUSTERS}
    for result in ours:
        key = (result.suite, result.name)
        if result.outcome == "failed" and key not in known and of_kafka.get(key) != "failed":
            bad.append(f"FAILED {result.suite}: {result.name}: {result.reason[:300]}")
        if result.outcome == "skipped" and of_kafka.get(key, "skipped") != "skipped":
            bad.append(f"SKIPPED, not by Kafka: {result.suite}: {result.name}: {result.reason}")
        if result.outcome == "passed" and key in KNOWN:
            bad.append(f"PASSED, though known to fail: {result.suite}: {result.name}")
    return bad


def _missing(ours: list[Result], theirs: list[Result]) -> list[str]:
    """Return the tests that passed on Kafka and did not run on Odradek.

    A case that runs a third-party suite may have ended, or been skipped, before these tests.
    """
    ran = {(result.suite, result.name) for result in ours}
    suites = {result.suite for result in ours}
    return [
        f"DID NOT RUN: {result.suite}: {result.name}"
        for result in theirs
        if result.suite in suites
        and result.outcome == "passed"
        and (result.suite, result.name) not in ran
    ]
