"""The functions in which a broker spends its CPU time under a load, sampled by Linux perf.

perf samples all threads of the broker by the CPU clock, and keeps the call chain of each sample. A
sample in the kernel belongs to the system call in which it was taken. The loopback interface
delivers a packet inside of `send`, so the receiving side of TCP belongs to the sender's call. A
sample in user space belongs to its library.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import loads
from benchmarks.further_rows import many_partitions
from testkit.peer.server import BrokerProcess

SAMPLES_A_SECOND = 499
ATTACH_S = 0.5
REPORT_TIMEOUT_S = 300.0
KERNEL = "[kernel.kallsyms]"
EVALUATION = "_PyEval_EvalFrameDefault"
# The compiler leaves out the frame of read and write, whose last step is ksys_read or ksys_write.
_SYSTEM_CALL = re.compile(r"(?:__(?:x64|arm64|ia32)_sys_|ksys_)(\w+)$")
_SYSTEM_CALL_ENTRY = re.compile(r"entry_SYSCALL|do_syscall|el0_svc|invoke_syscall")
_FRAME = re.compile(r"\s*[0-9a-f]+ (.*) \((.*)\)$")

Prepare = Callable[[BrokerProcess, str, float], object]


class PerfUnavailable(RuntimeError):
    """This machine cannot sample. The message is one sentence with the reason."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """A load. Only the time of `run` is sampled."""

    key: str
    title: str
    run: Callable[[BrokerProcess, str, float], Any]
    prepare: Prepare | None = None


def _idempotent(broker: BrokerProcess, topic: str, scale: float) -> object:
    return loads.rdkafka_batches_of_50(broker, topic, scale, idempotent=1)


def _fetch(broker: BrokerProcess, topic: str, scale: float) -> object:
    return loads.consumer_performance(broker, topic, int(2 * loads.MILLION * scale))


PROFILED = (
    Profiled("batches_of_50", "batches of 50", loads.batches_of_50),
    Profiled("one_a_request", "one record a request", loads.one_a_request),
    Profiled("large_batches", "128 KB batches", loads.large_batches),
    Profiled("fetch_all", "fetch, warm", _fetch, prepare=loads.fetch_all),
    Profiled("many_partitions", "12 partitions", many_partitions),
    Profiled("rdkafka_plain", "librdkafka, batches of 50", loads.rdkafka_batches_of_50),
    Profiled("rdkafka_idempotent", "librdkafka, batches of 50, idempotent", _idempotent),
)


@contextmanager
def sampling(pid: int, output: Path) -> Iterator[None]:
    """Sample all threads of a process during the context."""
    perf = shutil.which("perf")
    if perf is None:
        raise PerfUnavailable("The profile is taken by perf, and there is no `perf` on the PATH.")
    command = [perf, "record", "--quiet", "-e", "cpu-clock", "-F", str(SAMPLES_A_SECOND), "-g",
               "-p", str(pid), "-o", str(output)]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(ATTACH_S)
        if process.poll() is not None:
            assert process.stderr is not None
            raise PerfUnavailable(f"perf cannot sample: {process.stderr.read().strip()[-300:]}")
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def samples(path: Path) -> list[list[tuple[str, str]]]:
    """Return the call chain of each sample, as pairs of a symbol and its library, leaf first."""
    command = ["perf", "script", "-i", str(path), "-F", "ip,sym,dso"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=REPORT_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise PerfUnavailable(f"perf cannot read its samples: {done.stderr.strip()[-300:]}")
    return list(chains(done.stdout.splitlines()))


def chains(lines: Iterable[str]) -> Iterator[list[tuple[str, str]]]:
    """The call chains in the output of `perf script -F ip,sym,dso`: an empty line ends each."""
    chain: list[tuple[str, str]] = []
    for line in [*lines, ""]:
        if found := _FRAME.match(line):
            chain.append((found[1], found[2]))
        elif chain:
            yield chain
            chain = []


def place(chain: list[tuple[str, str]]) -> str:
    """Return the part of the broker or the kernel in which a sample was taken."""
    symbol, library = chain[0]
    if library == KERNEL:
        calls = (found[1] for name, _ in chain if (found := _SYSTEM_CALL.match(name)))
        is_call = any(_SYSTEM_CALL_ENTRY.match(name) for name, _ in chain)
        default = "entry and exit of system calls" if is_call else "interrupts and scheduling"
        return f"kernel: {next(calls, default)}"
    path = Path(library)
    name = path.name
    if re.match(r"(lib)?python3", name):
        return "Python: evaluation" if symbol == EVALUATION else "Python: objects and memory"
    if library.startswith("["):
        return "libc"  # The clock of the vDSO, and unknown pages.
    if re.match(r"lib(c|m|pthread)[.-]|ld-", name):
        return "libc"
    stem = name.partition(".")[0]
    # The module `loop` of the package `uvloop` is in uvloop/loop.cpython-311-x86_64-linux-gnu.so.
    return f"{path.parent.name}.{stem}" if re.search(r"\.(cpython|abi3)", name) else stem


def counted(found: list[list[tuple[str, str]]]) -> dict[str, int]:
    """The number of samples by place, the largest first."""
    return dict(Counter(map(place, found)).most_common())


def symbols(found: list[list[tuple[str, str]]], count: int) -> dict[str, int]:
    """The number of samples by function, for the functions with the most samples."""
    return dict(Counter(chain[0][0].partition("+")[0] for chain in found).most_common(count))


def measure(profiled: Profiled, broker: BrokerProcess, work: Path, scale: float) -> dict[str, Any]:
    """Sample one load on a topic of its own. The broker has done the same load before."""
    output = work / f"{profiled.key}.perf"
    topic = loads.fresh_topic(broker)
    (profiled.prepare or profiled.run)(broker, topic, scale)
    if profiled.prepare is None:
        loads.drop_topic(broker, topic)
        topic = loads.fresh_topic(broker)
    with sampling(broker.pid, output):
        profiled.run(broker, topic, scale)
    loads.drop_topic(broker, topic)
    found = samples(output)
    output.unlink()
    return {"samples": len(found), "places": counted(found), "functions": symbols(found, 25)}
