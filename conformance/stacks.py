"""Stacks of a client that hangs: the threads of this process and of its descendant processes.

A case that reaches its time limit prints these stacks before its processes are ended. `run` starts
the programs of the cases, so that their output up to that time can be printed as well.

The request for stacks depends on the kind of process:

- Java: `jcmd PID Thread.print`.
- Python and Go: SIGABRT, with PYTHONFAULTHANDLER and GOTRACEBACK in the environment. It ends them.
- Node: SIGUSR2, for which NODE_OPTIONS requests a diagnostic report. Node writes the report only
  between two events. It lists the sockets and timers on which the process waits.
- Other programs, and programs that do not respond: names and states of the threads.

Python, Go and Node write the stacks to stderr, which is read back if it is a file. Processes are
found in /proc. Without /proc only the stacks of this process are printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, TextIO

PROC = Path("/proc")
ENVIRONMENT = {
    "PYTHONFAULTHANDLER": "1",
    "GOTRACEBACK": "all",
    "NODE_OPTIONS": "--report-on-signal --report-signal=SIGUSR2 --report-filename=stderr",
}
STACKS_S = 10.0  # time for a process to write its stacks; the machine may be stalled
STACKS_CHARACTERS = 30_000
REASON_CHARACTERS = 1500


class TimeLimit(Exception):
    """A program did not end in time. The message has the end of its output."""


def prepare_environment() -> None:
    """Set environment variables so that child processes write their stacks on request."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def run(
    command: Sequence[str],
    *,
    timeout_s: float,
    stdin: str | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Any exit code is accepted.

    Raises:
        TimeLimit: The program did not end within `timeout_s`. Its stacks are written to stderr,
            and it is ended.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env=None if environment is None else {**os.environ, **environment},
        )
        try:
            process.communicate(None if stdin is None else stdin.encode(), timeout_s)
        except subprocess.TimeoutExpired:
            below = descendants(process.pid)
            dump_processes(sys.stderr, [process.pid, *below])
            end(below)
            raise TimeLimit(
                f"{Path(command[0]).name} did not end within {timeout_s:g} s: "
                + (_text(out) + _text(err))[-REASON_CHARACTERS:]
            ) from None
        finally:
            process.kill()  # does nothing to a process that has ended
            process.wait()
        return subprocess.CompletedProcess(
            list(command), process.returncode, _text(out), _text(err)
        )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def hung(message: str) -> TimeLimit:
    """Write the stacks of the descendant processes. Return the error for the caller to raise.

    For a deadline inside a case: its clients are ended before the case fails.
    """
    dump_processes(sys.stderr, descendants(os.getpid()))
    return TimeLimit(message)


def descendants(root: int) -> list[int]:
    """Return the descendants of a process, parents first."""
    children: dict[int, list[int]] = {}
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended since
            after_name = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            children.setdefault(int(after_name[1]), []).append(int(path.parent.name))
    found: list[int] = []
    level = children.get(root, [])
    while level:
        found += level
        level = [child for each in level for child in children.get(each, [])]
    return found


def end(pids: Collection[int]) -> None:
    """Send SIGKILL. The objects that started the processes reap them."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def dump_all(out: TextIO, pids: Collection[int]) -> None:
    """Write the stacks of this process and of the processes in `pids`."""
    dump_threads(out)
    dump_processes(out, pids)


def dump_threads(out: TextIO) -> None:
    """Write the stacks of all threads of this process, and of its asyncio tasks."""
    print("--- threads of the suite", file=out, flush=True)
    faulthandler.dump_traceback(out, all_threads=True)
    for task in [each for each in gc.get_objects() if isinstance(each, asyncio.Task)]:
        with contextlib.suppress(RuntimeError):  # the loop runs while its tasks are printed
            if not task.done():
                task.print_stack(file=out)
    out.flush()


def dump_processes(out: TextIO, pids: Collection[int]) -> None:
    """Write the stacks of the processes. Python and Go processes end when asked for them."""
    for pid in pids:
        try:
            words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            program = Path(words[0]).name
            print(f"--- process {pid}: {' '.join(words)[:300]}", file=out)
            print(_java(pid) if program == "java" else _asked(pid, program), file=out, flush=True)
        except OSError:
            continue  # ended since


def _java(pid: int) -> str:
    try:
        output = subprocess.run(
            ["jcmd", str(pid), "Thread.print"],
            capture_output=True,
            text=True,
            timeout=STACKS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n{_threads(pid)}"
    return (output.stdout + output.stderr)[:STACKS_CHARACTERS]


def _asked(pid: int, program: str) -> str:
    """Return the process's stderr output after the signal, or the states of its threads."""
    states = _threads(pid)
    if program.startswith("node"):
        number = signal.SIGUSR2
    elif program.startswith("python") or _is_go(pid):
        number = signal.SIGABRT
    else:
        return states
    with contextlib.suppress(OSError), (PROC / str(pid) / "fd" / "2").open("rb") as errors:
        if errors.seekable():
            began = errors.seek(0, os.SEEK_END)
            os.kill(pid, number)
            return _stacks_of(errors, began)[:STACKS_CHARACTERS] or states
    return states


def _stacks_of(errors: IO[bytes], began: int) -> str:
    """Return the bytes that are appended to the file, until it no longer grows."""
    deadline, size = time.monotonic() + STACKS_S, -1
    while time.monotonic() < deadline:
        now = errors.seek(0, os.SEEK_END)
        if began < now == size:
            break
        size = now
        time.sleep(0.3)
    errors.seek(began)
    return errors.read().decode(errors="replace")


def _is_go(pid: int) -> bool:
    """Return whether the file has the build information that Go's linker adds."""
    return b"Go buildinf:" in (PROC / str(pid) / "exe").read_bytes()


def _threads(pid: int) -> str:
    rows = []
    for task in sorted((PROC / str(pid) / "task").iterdir()):
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text("utf-8", "replace").strip()
            state = (task / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
            rows.append(f"thread {task.name} {name}: {state}")
    return "\n".join(rows)
