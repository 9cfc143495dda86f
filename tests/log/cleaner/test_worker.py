"""The worker process of the cleaner."""

from __future__ import annotations

import subprocess
import sys

from odradek.log.cleaner.worker_protocol import CleaningFailed

PROGRAM = f"""
from odradek.log.cleaner.worker import _Broker
from odradek.log.cleaner.worker_protocol import CleaningFailed
broker = _Broker()
broker.receive()
broker.report({CleaningFailed(0, "x")!r})
"""


def test_a_worker_whose_broker_ended_before_its_report_ends_without_a_traceback() -> None:
    """stdin stays open here: the worker notices the end of the broker at stdout first."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as worker:
        assert worker.stdin and worker.stdout and worker.stderr
        worker.stdout.close()
        worker.stdin.write(b"any line\n")
        worker.stdin.flush()
        assert worker.stderr.read() == b""
        assert worker.wait() == 0
