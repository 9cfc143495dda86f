"""A broker in a process of its own. Its memory, descriptors and CPU can be measured, and its limits
set, without affecting the tests.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

# Only a hang takes this long: a busy machine may pause for many seconds.
TIMEOUT_S = 180.0
_LISTENS = re.compile(r"listens on PLAINTEXT://(127\.0\.0\.1:\d+)")
_SERVE = ["--listen", "127.0.0.1:0"]
# A broker that stops does not wait long for the disk and for clients. Here it does, so that the
# result does not depend on the speed of the machine.
_PATIENT = """
import sys
from odradek.broker.main import run
from odradek.broker.stopping import StopLimits
from odradek.cli.serve import configure
run(configure(sys.argv[1:]), stop_limits=StopLimits(120e3, 121e3, 122e3, 123e3, 124e3))
"""


class BrokerProcess:
    """`odradek serve` on a free port, with its log read line by line."""

    def __init__(
        self,
        data: Path,
        config: Mapping[str, object] | None = None,
        *,
        open_files: int | None = None,
        program: str = _PATIENT,
        ready: bool = True,
    ) -> None:
        """Start the broker, under ``ulimit -n`` with `open_files`.

        `program` is another program that takes the arguments of `serve`. Without `ready` the broker
        need not listen.
        """
        sets = [f"--set={name}={value}" for name, value in (config or {}).items()]
        limited = ["sh", "-c", f'ulimit -n {open_files} && exec "$0" "$@"'] if open_files else []
        self._process = subprocess.Popen(
            [*limited, sys.executable, "-c", program, *_SERVE, "--data", str(data), *sets],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ending = False  # a second signal would reach a process without handlers
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.bootstrap_servers = self.wait_for_line(_LISTENS.search)[1] if ready else ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()

    def wait_for_line(
        self,
        search: Callable[[str], re.Match[str] | None],
        timeout_s: float = TIMEOUT_S,
        since: int = 0,
    ) -> re.Match[str]:
        """Return the first match in the log from line `since`. Raise AssertionError if there is
        none.
        """
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            nonlocal since
            for line in self.lines[since:]:
                since += 1
                match = search(line)
                if match:
                    found.append(match)
                    return True
            return False

        with self._changed:
            if not self._changed.wait_for(is_there, timeout_s):
                raise AssertionError("not in the log:\n" + "".join(self.lines[-30:]))
        return found[0]

    # Values of the operating system; Linux only.

    def memory_bytes(self, which: str = "VmRSS") -> int:
        """Return the resident memory; ``VmHWM``: its maximum."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{which}:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def cpu_ticks(self) -> int:
        """Return user and system time in ticks of the clock."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - /proc

    def limit_file_size(self, size: int) -> None:
        """Set the largest file that the process may write; -1 for any size."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, hard))

    # The end of the process.

    def terminate(self) -> None:
        """Send SIGTERM to the process, without waiting."""
        self._ending = True
        self._process.terminate()

    def kill(self) -> None:
        """End the process as a crash would. `close` waits until it has ended."""
        self._ending = True
        self._process.kill()

    def close(self) -> int:
        """End the process if it still runs, wait, and return the exit code."""
        if not self._ending:
            self.terminate()
        try:
            return self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._reader.join()
            assert self._process.stderr is not None
            self._process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
