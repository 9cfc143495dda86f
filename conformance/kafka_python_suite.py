"""kafka-python's own integration tests, unmodified, from its source package.

The package leaves out one module that the tests import (`test/service.py`). A stub of a few lines
replaces it. Every test is a line of the result. KAFKA_VERSION is 4.1, whose API version ranges
Odradek serves. The broker must have been started with node.id=0, advertised.listeners,
num.partitions=4 (at least 2) and group.min.session.timeout.ms=1000 (at most 3000). These are not
the defaults. The comment at `NUMBERED` in conformance/run.py gives the reasons.

The tests connect to one address, and their admin clients do not repeat requests after a broken
connection. kafka-python 3.0.12 also loses a request to a transaction coordinator that refuses the
connection, and waits until the time limit (`Sender._maybe_send_pending_request`). While brokers are
killed each test can fail for these reasons. A failed test is then run again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from conformance import stacks
from conformance.harness import Case, Context, Outcome, Skip, main, repeat
from testkit.peer.artifacts import CACHE

HERE = Path(__file__).resolve().parent
KAFKA_VERSION = "4.1"
FILES = ("admin", "consumer", "producer")
TEST_TIMEOUT_S = 60
SUITE_TIMEOUT_S = 900.0


def _sources() -> Path:
    """Return the unpacked source package of the installed release of kafka-python."""
    try:
        release = version("kafka-python")
    except PackageNotFoundError:
        raise Skip("kafka-python is not installed") from None
    home = CACHE / f"kafka-python-{release}"
    if not home.is_dir():
        _unpack(release, home)
    return home


def _unpack(release: str, home: Path) -> None:
    partial = home.with_name(f"{home.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            str(partial),
            f"kafka-python=={release}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise Skip(f"pip could not fetch kafka-python's sources: {done.stderr[-200:]}")
        with tarfile.open(next(partial.glob("*.tar.gz"))) as archive:
            archive.extractall(partial, filter="data")
        unpacked = next(path for path in partial.iterdir() if path.is_dir())
        # The clients under test are the installed package. Only the tests come from here.
        shutil.rmtree(unpacked / "kafka")
        (unpacked / "test" / "__init__.py").touch()
        shutil.copy(HERE / "released" / "kafka_python_service.py", unpacked / "test" / "service.py")
        unpacked.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run(context: Context, name: str) -> list[Outcome]:
    module = f"test/integration/test_{name}_integration.py"
    outcomes = _tested(context, module)
    if context.kills:
        outcomes = repeat_failed(outcomes, lambda test: _tested(context, f"{module}::{test}"))
    return outcomes


def repeat_failed(outcomes: list[Outcome], test: Callable[[str], list[Outcome]]) -> list[Outcome]:
    """Repeat each failed test alone (`repeat`)."""

    def again(failed: Outcome) -> Outcome:
        return repeat(failed, lambda: test(failed.name)[0])

    return [again(each) if each.outcome == "failed" else each for each in outcomes]


def _tested(context: Context, tests: str) -> list[Outcome]:
    """Run a module of tests, or one test of it, by its node id."""
    home = _sources()
    report = context.work / f"{context.topic('report')}.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:odradek",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "--timeout",
        str(TEST_TIMEOUT_S),
        "--timeout-method",
        "signal",
        "--tb",
        "line",
        "--show-capture",
        "no",
        "--junitxml",
        str(report),
        tests,
    ]
    environment = {
        "KAFKA_VERSION": KAFKA_VERSION,
        # One address: of a cluster the first broker's, which has the id of NUMBERED.
        "KAFKA_URI": f"kafka://{context.bootstrap.split(',')[0]}",
        # Required even when the tests do not start the broker. Any directory is accepted.
        "KAFKA_ROOT": str(context.work),
        "PYTHONPATH": str(home),
    }
    done = stacks.run(command, cwd=home, environment=environment, timeout_s=SUITE_TIMEOUT_S)
    if done.returncode != 0:  # the stacks of a test that reached its time limit are here
        print((done.stdout + done.stderr)[-stacks.STACKS_CHARACTERS :], file=sys.stderr)
    if not report.exists():
        raise AssertionError(f"pytest ended with {done.returncode}: {done.stdout[-500:]}")
    return [_outcome(case) for case in ET.parse(report).getroot().iter("testcase")]


def _outcome(case: ET.Element) -> Outcome:
    seconds = float(case.get("time", "0"))
    for kind, verdict in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(kind)
        if found is not None:
            reason = (found.get("message") or "").strip().splitlines() or [""]
            return Outcome(case.get("name", "?"), verdict, seconds, reason[0])
    return Outcome(case.get("name", "?"), "passed", seconds)


CASES = tuple(
    Case(f"test_{name}_integration", partial(_run, name=name), timeout_s=SUITE_TIMEOUT_S + 30)
    for name in FILES
)

if __name__ == "__main__":
    main("kafka_python_suite", CASES)
