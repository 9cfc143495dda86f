"""A companion process: restarts with pauses, its end by signals, and the end of its parent."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.launcher import companion as companion_module
from odradek.launcher.companion import Companion

TIMEOUT_S = 60.0
SLEEPS = "import time; time.sleep(600)"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def python(program: str, notes: Path, stop_timeout_s: float = TIMEOUT_S) -> Companion:
    """Return a companion that notes its pid and the address of the broker, and runs a program."""
    note = f"import os, sys; open({str(notes)!r}, 'a').write(f'{{os.getpid()}} {{sys.argv[1]}}\\n')"
    return Companion(
        "test program",
        lambda servers, _: [sys.executable, "-c", f"{note}\n{program}", servers],
        stop_timeout_s,
    )


def noted(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def test_it_gets_the_address_and_ends_on_stop(notes: Path) -> None:
    companion = python(SLEEPS, notes)
    companion.start("127.0.0.1:9092")
    wait_until(lambda: len(noted(notes)) == 1)
    pid, address = noted(notes)[0].split()
    assert address == "127.0.0.1:9092"
    companion.stop()
    assert not is_alive(int(pid))


def test_it_is_started_again_with_growing_pauses(
    notes: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companion_module, "PAUSE_S_MIN", 0.01)
    monkeypatch.setattr(companion_module, "PAUSE_S_MAX", 0.02)
    companion = python("sys.exit(3)", notes)
    with caplog.at_level(logging.WARNING):
        companion.start("a:1")
        wait_until(lambda: len(noted(notes)) >= 4)
        companion.stop()
    lines = [each.getMessage() for each in caplog.records]
    assert "exit code 3. It is started again in 0.01 s" in lines[0]
    assert "exit code 3. It is started again in 0.02 s" in lines[1]
    assert "started again in 0.02 s" in lines[2]


def test_a_killed_companion_is_started_again(
    notes: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companion_module, "PAUSE_S_MIN", 0.01)
    companion = python(SLEEPS, notes)
    with caplog.at_level(logging.WARNING):
        companion.start("a:1")
        wait_until(lambda: len(noted(notes)) == 1)
        os.kill(int(noted(notes)[0].split()[0]), signal.SIGKILL)
        wait_until(lambda: len(noted(notes)) == 2)
        companion.stop()
    assert "signal SIGKILL" in caplog.text


def test_a_companion_that_ignores_sigterm_gets_sigkill(notes: Path) -> None:
    companion = python(IGNORES_SIGTERM, notes, stop_timeout_s=0.5)
    companion.start("a:1")
    wait_until(lambda: len(noted(notes)) == 1)
    companion.stop()
    assert not is_alive(int(noted(notes)[0].split()[0]))


def test_stop_ends_a_pause(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion_module, "PAUSE_S_MIN", TIMEOUT_S)
    companion = python("sys.exit(0)", notes)
    companion.start("a:1")
    wait_until(lambda: len(noted(notes)) == 1)
    companion.stop()


def test_a_program_that_does_not_exist_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companion_module, "PAUSE_S_MIN", 0.01)
    companion = Companion("test program", lambda *_: ["/does/not/exist"])
    with caplog.at_level(logging.WARNING):
        companion.start("a:1")
        wait_until(lambda: len(caplog.records) >= 2)
        companion.stop()
    assert "it cannot be started" in caplog.text


def test_stop_without_start_does_nothing() -> None:
    Companion("test program", lambda *_: []).stop()


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """The companion reads the end of the pipe that its parent held."""
    program = textwrap.dedent(
        f"""
        import sys, time
        from odradek.launcher.companion import Companion
        child = "import os, sys; open({str(tmp_path / "pid")!r}, 'w').write(str(os.getpid()));"
        child += "os.read(int(sys.argv[1]), 1); open({str(tmp_path / "ended")!r}, 'w').close()"
        companion = Companion("c", lambda _, pipe: [sys.executable, "-c", child, str(pipe)])
        companion.start("a:1")
        time.sleep(600)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(lambda: (tmp_path / "pid").exists())
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: (tmp_path / "ended").exists())
