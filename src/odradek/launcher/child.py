"""One process that this process starts: its pid, its log, its end, signals.

A child has a session of its own, so Ctrl-C in the terminal does not reach it. Its owner stops it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from odradek.launcher.plan import exit_text, last_words

TERM_TIMEOUT_S = 60.0
"""Time after which a process that does not end gets SIGKILL."""
PROBE_AGAIN_S = 0.02
LOG_TAIL_BYTES = 64 * 1024
SIGNAL_NAMES = {int(each): each.name for each in signal.Signals}


class LaunchFailed(RuntimeError):
    """A process did not start. The message is one line with the reason and the log."""


class Child:
    """A process and its log. Owned by its creator.

    Args:
        name: The name in messages, such as "broker 1".
        command: The command line.
        log_file: The file of its output. Each start appends.
        environment: Variables that are added to those of this process.
        directory: The working directory. Default: that of this process.
        keeps: Descriptors that the process inherits.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        keeps: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_file = log_file
        self._environment = dict(environment or {})
        self._directory = directory
        self._keeps = tuple(keeps)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """The pid of the process that was started last."""
        return self._started.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def exit_text(self) -> str | None:
        """Return how the process ended, such as "signal SIGKILL". None: it runs."""
        code = self._started.poll()
        return None if code is None else exit_text(code, SIGNAL_NAMES)

    def last_words(self) -> str:
        """Return the reason of its end from the output since the last start."""
        with self.log_file.open("rb") as file:
            file.seek(max(self._log_start, self.log_file.stat().st_size - LOG_TAIL_BYTES))
            return last_words(file.read().decode("utf-8", errors="replace"))

    def start(self) -> None:
        """Start the process. It does not run yet, or it has ended."""
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                self.command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._directory,
                env={**os.environ, **self._environment},
                start_new_session=True,
                pass_fds=self._keeps,
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it has not ended."""
        self._started.send_signal(number)

    def stop(self, timeout_s: float = TERM_TIMEOUT_S) -> bool:
        """Send SIGTERM, then SIGKILL if the process does not end. Return whether it ended itself.

        A suspended process goes on first.
        """
        if not self.is_running:
            return True
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        try:
            self._started.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """Send SIGKILL to the process and its own children, and wait for its end."""
        self.send_kill()
        if self._process is not None:
            self._process.wait()

    def send_kill(self) -> None:
        """Send SIGKILL to the process and its own children. Do not wait, and take no lock.

        A signal handler may call this while the thread that it interrupts waits for the process.
        `Popen.wait` holds a lock then.
        """
        # Its pid is not free before it was waited for.
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the process was started"
        return self._process


def wait_for(
    is_ready: Callable[[], bool],
    children: Sequence[Child],
    what: str,
    timeout_s: float,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> bool:
    """Probe until `is_ready` returns True. Return False if the wait was cancelled.

    Args:
        is_ready: The probe.
        children: The processes that must run.
        what: What is waited for, such as "broker 1 to respond".
        timeout_s: Time limit in seconds.
        is_cancelled: Whether the wait must end.

    Raises:
        LaunchFailed: A process ended, or the time is over.
    """
    deadline = time.monotonic() + timeout_s
    while not is_ready():
        if is_cancelled():
            return False
        for child in children:
            if not child.is_running:
                raise LaunchFailed(
                    f"{child.name} did not start: {child.last_words()} (log: {child.log_file})"
                )
        if time.monotonic() >= deadline:
            logs = ", ".join(str(child.log_file) for child in children)
            raise LaunchFailed(f"waited {timeout_s:g} s for {what}. Read {logs}")
        time.sleep(PROBE_AGAIN_S)
    return True
