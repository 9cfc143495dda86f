"""The broker's side of a worker process, which is started on demand and can be killed safely.

The child gets three descriptors: two pipes, and the broker's stderr for error messages. All calls
but `kill` block, so they must run on a thread. If the worker ended or was killed they raise
`WorkerEnded`.
"""

from __future__ import annotations

import os
import subprocess
import sys

from odradek.log.cleaner.worker_protocol import (
    GO,
    CleaningJob,
    Report,
    WorkerEnded,
    decode_report,
    encode_job,
)

_MODULE = "odradek.log.cleaner.worker"


class CleanerProcess:
    """A `CleanerWorker` in a process, which is running when the constructor returns."""

    def __init__(self) -> None:
        # The child imports modules from the same paths. It hashes keys with a hash key of its own
        # (see `offset_map`).
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        environment["PYTHONHASHSEED"] = "random"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            close_fds=True,
            start_new_session=True,  # Ctrl-C goes to the broker only, which ends its workers
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, job: CleaningJob) -> None:
        self._send(encode_job(job))

    def resume(self) -> None:
        self._send(GO.encode() + b"\n")

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerEnded(str(error)) from error

    def report(self) -> Report:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerEnded(f"the worker ended with exit status {self._process.wait()}")
        return decode_report(line)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
