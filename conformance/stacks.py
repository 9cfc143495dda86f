"""Stacks of a client that hangs: of the threads of this process and of the processes below it.

A case that reaches its time limit shows these before its processes are ended. `run` starts the
programs of the cases, so that what they have written until then can be shown, too.

How a process is asked for its stacks depends on what it is:

- Java: `jcmd PID Thread.print`.
- Python and Go: SIGABRT, with PYTHONFAULTHANDLER and GOTRACEBACK in the environment. It ends them.
- Node: SIGUSR2, for which NODE_OPTIONS asks for a diagnostic report. Node writes it between two
  events only, with the sockets and timers that it waits for.
- Other programs, and programs that do not answer: names and states of the threads.

Python, Go and Node answer on stderr, which is read back if it is a file. Processes are found in
/proc. Without /proc the stacks are those of this process.
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
ANSWER_S = 10.0  # a process that was asked for its stacks; the machine may stand still
STACKS_CHARACTERS = 30_000
REASON_CHARACTERS = 1500


class TimeLimit(Exception):
    """A program did not end in time. The message has what it wrote last."""


def prepare_environment() -> None:
    """Have the processes that are started from now on answer when they are asked for stacks."""
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
        TimeLimit: It did not end within `timeout_s`. Its stacks are on stderr, and it is ended.
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
    """Write the stacks of the processes below this one; the error that its caller raises.

    For a deadline inside of a case: its clients are ended before the case fails.
    """
    dump_processes(sys.stderr, descendants(os.getpid()))
    return TimeLimit(message)


def descendants(root: int) -> list[int]:
    """The processes below one, parents first."""
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
    """SIGKILL. The processes are reaped by the objects that started them."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def dump_all(out: TextIO, pids: Collection[int]) -> None:
    """Write the stacks of this process, and of those given."""
    dump_threads(out)
    dump_processes(out, pids)


def dump_threads(out: TextIO) -> None:
    """Write the stacks of all threads of this process, and of its asyncio tasks."""
    print("--- threads of the suite", file=out, flush=True)
    faulthandler.dump_traceback(out, all_threads=True)
    for task in [each for each in gc.get_objects() if isinstance(each, asyncio.Task)]:
        with contextlib.suppress(RuntimeError):  # its loop goes on while this is printed
            if not task.done():
                task.print_stack(file=out)
    out.flush()


def dump_processes(out: TextIO, pids: Collection[int]) -> None:
    """Write the stacks of the processes. Those in Python and Go end of it."""
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
        told = subprocess.run(
            ["jcmd", str(pid), "Thread.print"],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n{_threads(pid)}"
    return (told.stdout + told.stderr)[:STACKS_CHARACTERS]


def _asked(pid: int, program: str) -> str:
    """Return its output on stderr after the signal, or the states of its threads."""
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
            return _answer(errors, began)[:STACKS_CHARACTERS] or states
    return states


def _answer(errors: IO[bytes], began: int) -> str:
    """Return the bytes that are appended to the file, until it no longer grows."""
    deadline, size = time.monotonic() + ANSWER_S, -1
    while time.monotonic() < deadline:
        now = errors.seek(0, os.SEEK_END)
        if began < now == size:
            break
        size = now
        time.sleep(0.3)
    errors.seek(began)
    return errors.read().decode(errors="replace")


def _is_go(pid: int) -> bool:
    """Go's linker puts its build information into the file."""
    return b"Go buildinf:" in (PROC / str(pid) / "exe").read_bytes()


def _threads(pid: int) -> str:
    rows = []
    for task in sorted((PROC / str(pid) / "task").iterdir()):
        with contextlib.suppress(OSError):
            name = (task / "comm").read_text("utf-8", "replace").strip()
            state = (task / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
            rows.append(f"thread {task.name} {name}: {state}")
    return "\n".join(rows)
