"""A child process: its log, signals and end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.launcher.child import Child, LaunchFailed, wait_for

LIMIT_S = 60.0
SLEEPER = "import time; print('runs', flush=True); time.sleep(1000)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def child(tmp_path: Path, program: str) -> Child:
    return Child("the child", [sys.executable, "-c", program], tmp_path / "child.log")


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Child]:
    found = child(tmp_path, SLEEPER)
    found.start()
    try:
        _await_log(found)
        yield found
    finally:
        found.kill()


def _await_log(found: Child) -> None:
    wait_for(lambda: found.last_words() == "runs", [found], "its output", LIMIT_S)


def test_a_child_runs_until_it_is_stopped(sleeper: Child) -> None:
    assert sleeper.is_running and sleeper.exit_text() is None
    assert sleeper.stop()
    assert not sleeper.is_running
    assert sleeper.exit_text() == "signal SIGTERM"
    assert sleeper.stop()


def test_a_suspended_child_is_stopped(sleeper: Child) -> None:
    sleeper.send(signal.SIGSTOP)
    assert sleeper.stop()
    assert not sleeper.is_running


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    deaf = child(tmp_path, DEAF)
    deaf.start()
    _await_log(deaf)
    assert not deaf.stop(timeout_s=0.1)
    assert deaf.exit_text() == "signal SIGKILL"


def test_a_signal_handler_kills_a_child_for_which_its_thread_waits(tmp_path: Path) -> None:
    """The second Ctrl-C: the interrupted `stop` waits, and has the lock of its process."""
    deaf = child(tmp_path, DEAF)
    deaf.start()
    _await_log(deaf)
    with deaf._started._waitpid_lock:  # type: ignore[attr-defined]
        deaf.send_kill()
    deaf.kill()
    assert deaf.exit_text() == "signal SIGKILL"
    deaf.send_kill()


def test_a_child_can_be_started_again(sleeper: Child) -> None:
    former = sleeper.pid
    sleeper.kill()
    sleeper.start()
    assert sleeper.is_running
    assert sleeper.pid != former
    _await_log(sleeper)


def test_a_child_that_ends_while_it_starts_is_reported_with_its_last_words(tmp_path: Path) -> None:
    failing = child(tmp_path, "import sys; sys.exit('odradek: no id')")
    failing.start()
    with pytest.raises(LaunchFailed, match=r"the child did not start: no id \(log: .*child\.log\)"):
        wait_for(lambda: False, [failing], "nothing", LIMIT_S)


def test_a_child_that_does_not_become_ready_is_reported(sleeper: Child) -> None:
    with pytest.raises(LaunchFailed, match=r"waited 0\.1 s for an event. Read .*child\.log"):
        wait_for(lambda: False, [sleeper], "an event", 0.1)


def test_a_wait_can_be_cancelled(sleeper: Child) -> None:
    assert not wait_for(lambda: False, [sleeper], "an event", LIMIT_S, lambda: True)
