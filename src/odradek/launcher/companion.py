"""A process that runs beside this one and is started again when it ends.

The companion writes to this process's standard error. It has a session of its own, so Ctrl-C in the
terminal does not reach it. It holds one end of a pipe, whose other end closes when this process
ends, also by SIGKILL. The companion then ends, too.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from odradek.launcher.child import SIGNAL_NAMES
from odradek.launcher.plan import exit_text

logger = logging.getLogger(__name__)

STDERR = 2
"""The descriptor of standard error."""
PAUSE_S_MIN = 0.5
"""Pause before the first restart. It doubles with each further one."""
PAUSE_S_MAX = 30.0
RUNS_WELL_S = 60.0
"""After a run of this time the pauses begin with `PAUSE_S_MIN` again."""
STOP_TIMEOUT_S = 3.0
"""Time after which a companion that does not end gets SIGKILL, if its owner names no other one."""
KILL_TIMEOUT_S = 3.0
"""Time limit of its end after SIGKILL."""


class Companion:
    """A companion and the thread that starts it.

    Args:
        name: The name in log lines, such as "schema registry".
        command: Returns the command line.
            The arguments are the address of the broker, and the descriptor of the pipe.
        stop_timeout_s: Time after which it gets SIGKILL, longer than its own limit of a stop.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[str, int], Sequence[str]],
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        self._name = name
        self._stop_timeout_s = stop_timeout_s
        self._command = command
        self._is_stopped = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None

    def start(self, bootstrap_servers: str) -> None:
        """Start the companion, and start it again each time it ends."""
        self._pipe = os.pipe()
        command = list(self._command(bootstrap_servers, self._pipe[0]))
        self._thread = threading.Thread(
            target=self._run, args=(command, self._pipe[0]), name="odradek-companion", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL after the time limit, and wait for the end."""
        with self._lock:
            self._is_stopped.set()
            process = self._process
            if process is not None:
                process.send_signal(signal.SIGTERM)
        if self._thread is not None:
            self._thread.join(self._stop_timeout_s)
            if self._thread.is_alive() and process is not None:
                logger.warning(
                    "the %s (pid %d) has not ended within %g s of SIGTERM, and gets SIGKILL",
                    self._name,
                    process.pid,
                    self._stop_timeout_s,
                )
                process.kill()
                self._thread.join(KILL_TIMEOUT_S)
            self._thread = None
        if self._pipe is not None:
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None

    def _run(self, command: list[str], lifeline: int) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            began_s = time.monotonic()
            end = self._run_once(command, lifeline)
            if self._is_stopped.is_set():
                return
            if time.monotonic() - began_s >= RUNS_WELL_S:
                pause_s = PAUSE_S_MIN
            logger.warning(
                "the %s has ended: %s. It is started again in %g s", self._name, end, pause_s
            )
            self._is_stopped.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _run_once(self, command: list[str], lifeline: int) -> str:
        """Run the companion to its end, and return how it ended."""
        with self._lock:
            if self._is_stopped.is_set():
                return "stopped"
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=STDERR,
                    start_new_session=True,
                    pass_fds=(lifeline,),
                )
            except OSError as error:
                return f"it cannot be started ({error.strerror})"
            self._process = process
        logger.info("started the %s with pid %d", self._name, process.pid)
        code = process.wait()
        with self._lock:
            self._process = None
        return f"pid {process.pid}, {exit_text(code, SIGNAL_NAMES)}"
