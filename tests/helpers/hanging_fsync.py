"""A broker on a disk that hangs from a moment on: no fsync returns then.

So a stop that waits for a single one never ends, however fast or slow the machine is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

from odradek.broker.main import run
from odradek.broker.stopping import StopLimits
from odradek.cli.serve import configure
from odradek.environment.clock import SystemClock
from odradek.environment.environment import Environment
from odradek.environment.files import READ, RealFiles
from odradek.testing import Broker
from testkit.requests import produce
from testkit.wire import WireClient

WAITING = "an fsync waits for the disk"
DELAYED = "ready threads waited for a processor for ms:"
STOPPING = "stopping on a signal"  # the broker's log line when a signal ends it
STOP_MS = 1_300.0
"""The time of a stop by `StopClock`: after the limit for syncs, before that for writing logs."""
PATIENT = StopLimits(responses_ms=1_000, parts_ms=120e3, syncs_ms=1_200, logs_ms=121e3)


class HangingFsyncFiles(RealFiles):
    """No fsync returns from the moment at which the file `trigger` exists. Reports the first."""

    def __init__(self, trigger: Path) -> None:
        self._trigger = trigger
        self._reported = threading.Lock()

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        if self._trigger.exists():
            if self._reported.acquire(blocking=False):
                self.report()
            threading.Event().wait()
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, READ | os.O_DIRECTORY)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def report(self) -> None:
        print(WAITING, file=sys.stderr, flush=True)


class StopClock(SystemClock):
    """A clock that stands still `STOP_MS` after a stop began: the stop is never late by it."""

    def __init__(self) -> None:
        self._end_ms = float("inf")

    def monotonic_ms(self) -> float:
        return min(super().monotonic_ms(), self._end_ms)

    def begin_stop(self) -> None:
        self._end_ms = super().monotonic_ms() + STOP_MS


class BeginStop(logging.Handler):
    """Begins the stop of a clock when the broker logs that it stops."""

    def __init__(self, clock: StopClock) -> None:
        super().__init__()
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == STOPPING:
            self._clock.begin_stop()


class ReportDelay(logging.Handler):
    """Prints at the end of the process for how long its threads waited for a processor."""

    def emit(self, record: logging.LogRecord) -> None:
        """Only the end of logging counts."""

    def close(self) -> None:
        print(DELAYED, run_delay_ms(os.getpid()), file=sys.stderr, flush=True)
        super().close()


def run_delay_ms(pid: int) -> float:
    """How long the threads that a process has were ready to run and did not, since they began."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text("ascii").split()[1]) for task in tasks) / 1e6


def trigger_of(data: Path) -> Path:
    return data.with_name(f"{data.name}.slow")


def serve() -> None:
    """`odradek serve` with the arguments of the process, on the disk that hangs."""
    config = configure(sys.argv[1:])
    files = HangingFsyncFiles(trigger_of(Path(config.log_dirs()[0])))
    logging.getLogger().addHandler(ReportDelay())
    run(config, environment=Environment(files=files))


def serve_with_time() -> None:
    """The same with a stop that has the time that it needs, by its clock."""
    config = configure(sys.argv[1:])
    files = HangingFsyncFiles(trigger_of(Path(config.log_dirs()[0])))
    clock = StopClock()
    logging.getLogger("odradek.broker").addHandler(BeginStop(clock))
    run(config, environment=Environment(clock=clock, files=files), stop_limits=PATIENT)


def run_inside_a_program(directory: str, timeout_s: float) -> None:
    """Start a `Broker`, and return while it waits for the disk."""
    data = Path(directory)
    waiting = threading.Event()

    class ReportingFiles(HangingFsyncFiles):
        def report(self) -> None:
            waiting.set()

    files = ReportingFiles(trigger_of(data))
    broker = Broker(data_dir=data, environment=Environment(files=files)).start()
    broker.create_topic("durable", config={"flush.messages": 1})
    trigger_of(data).touch()
    client = WireClient(broker.bootstrap_servers)
    client.send(produce("durable", acks=-1), 9)
    assert waiting.wait(timeout_s)
