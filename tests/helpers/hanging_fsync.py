"""A broker on a disk that hangs from some point on, after which no fsync returns.

A stop that waits for a single fsync never ends, on a fast or a slow machine.
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
"""The duration of a stop by `StopClock`, between the limits for syncing and for closing logs."""
PATIENT = StopLimits(responses_ms=1_000, parts_ms=120e3, syncs_ms=1_200, logs_ms=121e3)


class HangingFsyncFiles(RealFiles):
    """Files whose fsync does not return after the file `trigger` exists.

    The first such fsync is reported.
    """

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
    """A clock that stops `STOP_MS` after a stop began, so that the stop is never late."""

    def __init__(self) -> None:
        self._end_ms = float("inf")

    def monotonic_ms(self) -> float:
        return min(super().monotonic_ms(), self._end_ms)

    def begin_stop(self) -> None:
        self._end_ms = super().monotonic_ms() + STOP_MS


class BeginStop(logging.Handler):
    """Logging handler that calls `StopClock.begin_stop` when the broker logs that it stops."""

    def __init__(self, clock: StopClock) -> None:
        super().__init__()
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == STOPPING:
            self._clock.begin_stop()


class ReportDelay(logging.Handler):
    """Logging handler that prints, at the end, how long the threads waited for a processor."""

    def emit(self, record: logging.LogRecord) -> None:
        """Ignore the record. Only `close` has an effect."""

    def close(self) -> None:
        print(DELAYED, run_delay_ms(os.getpid()), file=sys.stderr, flush=True)
        super().close()


def run_delay_ms(pid: int) -> float:
    """Return for how many milliseconds the threads of a process were ready without a processor."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text("ascii").split()[1]) for task in tasks) / 1e6


def trigger_of(data: Path) -> Path:
    return data.with_name(f"{data.name}.slow")


def serve() -> None:
    """Run `odradek serve` with the arguments of the process, on a hanging disk."""
    config = configure(sys.argv[1:])
    files = HangingFsyncFiles(trigger_of(Path(config.log_dirs()[0])))
    logging.getLogger().addHandler(ReportDelay())
    run(config, environment=Environment(files=files))


def serve_with_time() -> None:
    """Run the same with a clock by which the stop has enough time."""
    config = configure(sys.argv[1:])
    files = HangingFsyncFiles(trigger_of(Path(config.log_dirs()[0])))
    clock = StopClock()
    logging.getLogger("odradek.broker").addHandler(BeginStop(clock))
    run(config, environment=Environment(clock=clock, files=files), stop_limits=PATIENT)


def run_inside_a_program(directory: str, timeout_s: float) -> None:
    """Start a `Broker` and return while it waits for the disk."""
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
