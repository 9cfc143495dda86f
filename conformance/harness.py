"""The runner of conformance cases: one after another, with a time limit, against one address.

A suite is a module with a tuple `CASES`. `python -m conformance.<suite> --bootstrap-server
HOST:PORT` runs one suite. A case passes when it returns and fails when it raises an exception. It
is skipped when it raises `Skip`, whose message names the missing prerequisite.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from conformance import stacks
from testkit.topics import leader

KILLS_VARIABLE = "ODRADEK_CONFORMANCE_KILLS"
"""Set in the environment of all clients while brokers are killed."""
SESSION_VARIABLE = "ODRADEK_CONFORMANCE_SESSION_MS"
"""The session timeout in ms of the members that a case kills, in the environment of programs."""
SESSION_MS = 6_000
SESSION_KILLS_MS = 15_000
"""The same while brokers are killed: a new coordinator serves after the session of the old broker,
which has 6 s. With sessions of 6 s librdkafka's static members commit without their member id when
their own session ends first, and are fenced for ever."""
PATIENCE = 3
"""Limits of waits are so many times as long while brokers are killed."""
CASE_TIMEOUT_S = 1200.0  # the first case with Java may have to fetch it
REPEATS_MAX = 5
"""How often a test is repeated that failed by a race or a kill. A defect of a broker fails every
time.
"""
AFTER_A_KILL = "after the kill of a broker"
ENDED_S = 15.0  # for the thread of a case after its processes were ended


def patient_s(limit_s: float) -> float:
    """Return a limit of a wait, longer while brokers are killed: each new coordinator restarts the
    sessions of its groups.
    """
    return limit_s * PATIENCE if KILLS_VARIABLE in os.environ else limit_s


class Skip(Exception):
    """The case cannot run on this machine, or not against this address."""


@dataclass(frozen=True, slots=True)
class Context:
    """The arguments of a case.

    Attributes:
        bootstrap: The addresses of the brokers, separated by commas.
        work: A scratch directory.
        log_dirs: The log directory of each broker, in the order of the addresses, or nothing.
        broker: The name of the broker in `testkit.peer`, for cases that start another broker of its
            kind.
        kills: Whether the brokers are killed one after the other.
    """

    bootstrap: str
    work: Path
    log_dirs: tuple[Path, ...] = ()
    broker: str | None = None
    kills: bool = False

    @property
    def brokers(self) -> int:
        """The number of brokers."""
        return self.bootstrap.count(",") + 1

    @property
    def replicas(self) -> int:
        """The replication factor of a topic without a factor of its own."""
        return min(3, self.brokers)

    def topic(self, hint: str = "t") -> str:
        """Return a topic name that no case has used."""
        return f"{hint}-{uuid.uuid4().hex[:10]}"

    def need_log_dirs(self) -> tuple[Path, ...]:
        if not self.log_dirs:
            raise Skip("needs --log-dir, the broker's log directory on this machine")
        return self.log_dirs

    def log_dir_of(self, topic: str, partition: int = 0) -> Path:
        """Return the log directory of the partition's leader."""
        directories = self.need_log_dirs()
        if len(directories) == 1:
            return directories[0]
        return directories[
            self.bootstrap.split(",").index(leader(self.bootstrap, topic, partition))
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one test inside a case that runs a third-party test suite."""

    name: str
    outcome: str  # passed, failed, skipped
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One test, or a third-party suite that returns a list of outcomes.

    `ci`: the case belongs to the CI subset.
    """

    name: str
    run: Callable[[Context], list[Outcome] | None]
    ci: bool = False
    timeout_s: float = CASE_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Result:
    suite: str
    name: str
    outcome: str  # passed, failed, skipped
    seconds: float
    reason: str = ""


def select(cases: Iterable[Case], subset: str | None, only: Sequence[str]) -> list[Case]:
    """Return the cases of the subset whose names contain one of the words."""
    kept = [case for case in cases if subset != "ci" or case.ci]
    return [case for case in kept if not only or any(word in case.name for word in only)]


def repeat(failed: Outcome, test: Callable[[], Outcome], cause: str = AFTER_A_KILL) -> Outcome:
    """Run a failed test again until it passes, at most `REPEATS_MAX` times.

    Args:
        failed: The first result. It is also returned when the test never passes.
        test: Run the test.
        cause: The reason for the repetitions, which is added to the result.
    """
    for attempt in range(2, REPEATS_MAX + 2):
        last = test()
        if last.outcome != "failed":
            return replace(last, reason=f"at attempt {attempt}, {cause}")
    return failed


def run_case(suite: str, case: Case, context: Context) -> list[Result]:
    """Run a case in a thread of its own.

    When it does not end in time, the stacks of this process and of the processes that the case
    started are written to stderr. The processes are ended and the thread is left behind.
    """
    before = set(stacks.descendants(os.getpid()))
    ended: list[list[Outcome]] = []
    began = time.monotonic()

    def one(outcome: str, reason: str = "") -> list[Outcome]:
        return [Outcome(case.name, outcome, time.monotonic() - began, reason)]

    def body() -> None:
        try:
            ended.append(case.run(context) or one("passed"))
        except Skip as skip:
            ended.append(one("skipped", str(skip)))
        except BaseException as error:  # noqa: BLE001 - every end of a case is a result
            print(f"=== {suite}: {case.name}\n{traceback.format_exc()}", file=sys.stderr)
            stacks.dump_threads(sys.stderr)  # a case may fail because one of its clients hangs
            ended.append(one("failed", f"{type(error).__name__}: {error}".strip()))

    thread = threading.Thread(target=body, name=case.name, daemon=True)
    thread.start()
    thread.join(case.timeout_s)
    outcomes = list(ended[0]) if ended else one("failed", f"no end within {case.timeout_s:g} s")
    if not ended:
        print(f"=== {suite}: {case.name}: {outcomes[0].reason}", file=sys.stderr)
        mine = [pid for pid in stacks.descendants(os.getpid()) if pid not in before]
        stacks.dump_all(sys.stderr, mine)
        stacks.end(mine)
        thread.join(ENDED_S)
    return [Result(suite, o.name, o.outcome, o.seconds, o.reason) for o in outcomes]


def main(suite: str, cases: Sequence[Case], argv: Sequence[str] | None = None) -> None:
    """Run the command line of one suite. End the process with exit code 1 when a case failed."""
    parser = argparse.ArgumentParser(prog=f"python -m conformance.{suite}")
    parser.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="each broker"
    )
    parser.add_argument(
        "--log-dir",
        type=Path,
        action="append",
        default=[],
        help="the broker's log directory, if it is local; for a cluster once for each address",
    )
    parser.add_argument(
        "--kills", action="store_true", help="the brokers are killed during the run"
    )
    parser.add_argument("--broker", choices=["kafka", "odradek"], help="the broker at the address")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--subset", choices=["ci"])
    parser.add_argument("--json", type=Path, help="also write the results as JSON lines")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    options = parser.parse_args(argv)
    chosen = select(cases, options.subset, options.only)
    if options.list:
        for case in chosen:
            print(case.name)
        return
    stacks.prepare_environment()
    if options.kills:
        os.environ[KILLS_VARIABLE] = "1"
    os.environ[SESSION_VARIABLE] = str(SESSION_KILLS_MS if options.kills else SESSION_MS)
    signal.signal(signal.SIGTERM, _terminated)
    failed = False
    with tempfile.TemporaryDirectory(prefix="conformance-") as work:
        context = Context(
            options.bootstrap_server,
            Path(work),
            tuple(options.log_dir),
            options.broker,
            options.kills,
        )
        for case in chosen:
            for result in run_case(suite, case, context):
                failed |= result.outcome == "failed"
                _show(result, options.json)
    sys.stdout.flush()
    stacks.end(stacks.descendants(os.getpid()))
    os._exit(1 if failed else 0)  # A case that hangs must not keep the process.


def _terminated(*_: object) -> None:
    """Handle SIGTERM, which the parent process sends when the suite reaches its time limit."""
    print("=== the suite was terminated", file=sys.stderr)
    below = stacks.descendants(os.getpid())
    stacks.dump_all(sys.stderr, below)
    stacks.end(below)
    os._exit(1)


def _show(result: Result, lines: Path | None) -> None:
    reason = f"  [{result.reason[:300]}]" if result.reason else ""
    print(
        f"{result.outcome:8}{result.seconds:7.1f} s  {result.suite}: {result.name}{reason}",
        flush=True,
    )
    if lines is not None:
        with lines.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(result)) + "\n")
