"""A broker on a disk that is slow from a moment on: every fsync takes `FSYNC_S` then."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from odradek.broker.main import run
from odradek.cli.serve import configure
from odradek.environment.environment import Environment
from odradek.environment.files import READ, RealFiles
from odradek.testing import Broker
from testkit.requests import produce
from testkit.wire import WireClient

FSYNC_S = 10.0
WAITING = "an fsync waits for the slow disk"


class SlowFsyncFiles(RealFiles):
    """Slow from the moment at which the file `trigger` exists. Reports the first slow fsync."""

    def __init__(self, trigger: Path) -> None:
        self._trigger = trigger
        self._reported = threading.Lock()

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        if self._trigger.exists():
            if self._reported.acquire(blocking=False):
                print(WAITING, file=sys.stderr, flush=True)
            time.sleep(FSYNC_S)
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, READ | os.O_DIRECTORY)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)


def trigger_of(data: Path) -> Path:
    return data.with_name(f"{data.name}.slow")


def serve() -> None:
    """`odradek serve` with the arguments of the process, on the slow disk."""
    config = configure(sys.argv[1:])
    files = SlowFsyncFiles(trigger_of(Path(config.log_dirs()[0])))
    run(config, environment=Environment(files=files))


def run_inside_a_program(directory: str) -> None:
    """Start a `Broker`, and return while it waits for the disk."""
    data = Path(directory)
    waiting = threading.Event()

    class ReportingFiles(SlowFsyncFiles):
        def fsync(self, fd: int) -> None:  # type: ignore[override]
            if self._trigger.exists():
                waiting.set()
            super().fsync(fd)

    files = ReportingFiles(trigger_of(data))
    broker = Broker(data_dir=data, environment=Environment(files=files)).start()
    broker.create_topic("durable", config={"flush.messages": 1})
    trigger_of(data).touch()
    client = WireClient(broker.bootstrap_servers)
    client.send(produce("durable", acks=-1), 9)
    assert waiting.wait(FSYNC_S)
