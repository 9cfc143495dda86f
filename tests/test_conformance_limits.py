"""Time limits of the conformance run: each ends with a failure and the stacks of what hung."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conformance import run, stacks
from conformance.harness import Case, Context, run_case

HANGS = """
import time
def in_the_client():
    print("begun", flush=True)
    time.sleep(3600)
in_the_client()
"""
NODE_WAITS = "console.log('begun'); setInterval(() => {}, 1000)"
LIMIT_S = 3.0


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context("127.0.0.1:1", tmp_path)


def hang_in_a_thread(_: Context) -> None:
    threading.Event().wait()


def test_a_case_that_hangs_fails_with_its_stack(
    context: Context, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.harness.ENDED_S", 0.0)
    [result] = run_case("suite", Case("hangs", hang_in_a_thread, timeout_s=0.01), context)
    assert (result.outcome, result.reason) == ("failed", "no end within 0.01 s")
    reported = capfd.readouterr().err
    assert "=== suite: hangs" in reported
    assert "hang_in_a_thread" in reported


def test_the_processes_of_a_case_that_hangs_are_listed_and_ended(
    context: Context, capfd: pytest.CaptureFixture[str]
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def hang_in_a_process(_: Context) -> None:
        started.append(subprocess.Popen(["sleep", "3600"]))
        started[0].wait()

    case = Case("hangs", hang_in_a_process, timeout_s=LIMIT_S)
    [result] = run_case("suite", case, context)
    assert result.outcome == "failed"
    assert started[0].wait() == -signal.SIGKILL
    assert f"--- process {started[0].pid}: sleep 3600" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "frame"),
    [
        ([sys.executable, "-c", HANGS], "in in_the_client"),
        (["node", "-e", NODE_WAITS], '"event": "SIGUSR2"'),
        (["sh", "-c", "echo begun; read never"], " sh: "),
    ],
    ids=["Python", "Node", "another"],
)
def test_a_process_writes_its_stacks(
    command: list[str], frame: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no `{command[0]}` on the PATH")
    for name, value in stacks.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    pipe = subprocess.PIPE
    with (tmp_path / "err").open("wb") as err, (tmp_path / "reported").open("w+") as reported:
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=err) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"begun\n"
                stacks.dump_processes(reported, [process.pid])
            finally:
                process.kill()
        reported.seek(0)
        assert frame in reported.read()


def test_a_program_that_hangs_is_ended_and_its_output_reported() -> None:
    command = ["sh", "-c", "echo begun; exec sleep 3600"]
    with pytest.raises(stacks.TimeLimit, match="sh did not end within 3 s: begun"):
        stacks.run(command, timeout_s=LIMIT_S)


def test_a_program_that_ends_gives_its_output() -> None:
    done = stacks.run(["cat", "-", "/"], stdin="given", timeout_s=120)
    assert (done.returncode, done.stdout) == (1, "given")
    assert "directory" in done.stderr


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        ("pass", ""),
        ("import os; os.abort()", "it ended with -6"),
        (f"import time; time.sleep({3600})", "no end within 1 s"),
    ],
)
def test_a_suite_that_does_not_run_to_its_end_has_failed(
    program: str, wrong: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", program]
    limit_s = 1.0 if "time" in program else 120.0
    assert run._wait(command, tmp_path / "suite.err", limit_s)[1] == wrong
