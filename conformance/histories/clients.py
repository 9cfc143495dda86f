"""The client processes of a run: start, kill, pause and replace them, and record their events.

A client is `client.py` on librdkafka. For the role `txn-v2` it is the Go program on franz-go, which
takes the same argument and writes the same lines.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from conformance.go_programs import go_program
from conformance.histories.settings import TXN_V2, Settings
from testkit.peer.artifacts import ROOT

END_S = 45.0
STACKS_S = 1.0
"""Time in which a client writes the stacks of its threads."""
RESPAWN_S = 0.1


class HistoryFile:
    """A history file to which several threads append lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out: IO[str] = path.open("w", encoding="utf-8")
        self.lock = threading.Lock()

    def write(self, line: str) -> None:
        with self.lock:
            self.out.write(line.rstrip("\n") + "\n")

    def event(self, kind: str, **fields: Any) -> None:
        self.write(json.dumps({"type": kind, "time": time.monotonic_ns(), **fields}))

    def lines(self) -> list[str]:
        """Return the lines written so far."""
        with self.lock:
            self.out.flush()
            return self.path.read_text("utf-8").splitlines()

    def close(self) -> None:
        self.out.close()


class Client:
    """One client slot. It runs one incarnation after another until it is stopped or `retired`."""

    def __init__(self, fleet: Fleet, settings: Settings) -> None:
        self.fleet = fleet
        self.settings = settings
        self.command = [*fleet.prefix, *command_of(settings.role)]
        # SIGQUIT ends a Go program. Python's handler is registered by `client.py`.
        self.shows_stacks_at = signal.SIGQUIT if settings.role == TXN_V2 else signal.SIGUSR1
        self.retired = False
        self.process: subprocess.Popen[str] | None = None
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the client and to a program that it runs."""
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None and self.process.poll() is None:
                os.killpg(self.process.pid, number)

    def stop(self) -> None:
        """Ask the client to end after its current operation."""
        process = self.process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write("stop\n")
                process.stdin.flush()

    def _live(self) -> None:
        while not (self.fleet.ending.is_set() or self.retired):
            settings = replace(self.settings, process=self.fleet.next_process())
            self.process = _spawn(self.command, settings, self.fleet.errors)
            if self.fleet.ending.is_set():
                self.stop()
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if line.endswith("\n"):  # the last line of a killed process may be cut
                    self.fleet.history.write(line)
            self.process.wait()
            assert self.process.stdin is not None
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.stdout.close()
            self.fleet.ending.wait(RESPAWN_S)


class Fleet:
    """All clients of a run. The run owns the fleet, and the nemesis acts on the clients.

    `prefix` is a command that runs a client, such as the one that enters a network namespace.
    """

    def __init__(self, history: HistoryFile, errors: IO[str], prefix: Sequence[str] = ()) -> None:
        self.history = history
        self.errors = errors
        self.prefix = list(prefix)
        self.clients: list[Client] = []
        self.ending = threading.Event()
        self._numbers = iter(range(1, 1 << 30))
        self._lock = threading.Lock()

    def next_process(self) -> int:
        with self._lock:
            return next(self._numbers)

    def add(self, settings: Settings) -> Client:
        client = Client(self, settings)
        self.clients.append(client)
        return client

    def alive(self, suits: Callable[[Client], bool] = lambda _: True) -> list[Client]:
        return [c for c in self.clients if c.process is not None and not c.retired and suits(c)]

    def end(self) -> list[str]:
        """Let all clients finish their operations. Kill the clients that do not finish in time.

        Return the killed ones, as ``ROLE of slot N``. The stacks of their threads are in `errors`.
        """
        self.ending.set()
        for client in self.clients:
            client.send_signal(signal.SIGCONT)
            client.stop()
        deadline = time.monotonic() + END_S
        for client in self.clients:
            client.thread.join(max(0.0, deadline - time.monotonic()))
        late = [client for client in self.clients if client.thread.is_alive()]
        for client in late:
            client.send_signal(client.shows_stacks_at)
        for client in late:
            client.thread.join(STACKS_S)
        self.kill()
        return [f"{each.settings.role} of slot {each.settings.slot}" for each in late]

    def kill(self) -> None:
        """End all clients with SIGKILL."""
        self.ending.set()
        for client in self.clients:
            if client.thread.is_alive():
                client.send_signal(signal.SIGKILL)
                client.thread.join()


@functools.cache
def command_of(role: str) -> list[str]:
    """Return the command of a role's program, without the settings argument.

    Raises:
        Skip: This machine cannot build the program.
    """
    if role == TXN_V2:
        return go_program("franz_go")
    return [sys.executable, "-m", "conformance.histories.client"]


def _spawn(command: list[str], settings: Settings, errors: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, settings.to_argument()],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
    )
