"""The cost of 100 times the bytes in alternating pairs: `python -m benchmarks.scaling_pairs`.

The experiment `scaling` measures each size once. The CPU time of a fetch varies by a third from one
second to the next, so a ratio of two runs varies as well. This program measures the same fetches in
short series that alternate:

- from a broker with 64 MB and a broker with 6.4 GB, which run at the same time
- from the first 64 MB and from all of the broker with 6.4 GB
- from the first 64 MB and from all of its files by a server that only calls `sendfile`

The brokers are started several times, because processes of one program differ, too. The program
also prints the bytes that the servers read from the disk, and the number of calls of Python and C
functions of a fetch. Equal calls exclude the interpreter as the cause of a difference.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from benchmarks.commits_verdict import quartiles
from benchmarks.processes import cpu_nanoseconds
from benchmarks.scaling import FACTOR, FETCH_BYTES, RECORD_BYTES, SMALL_BYTES, TOPIC, Fetcher, fill
from benchmarks.tables import show, table
from testkit.peer.artifacts import ROOT
from testkit.peer.server import BrokerProcess, start_odradek

STARTS = 6
PAIRS_A_START = 5
FETCHES = 2000
WARM_UP_FETCHES = 3000
SERIES_WARM_UP_FETCHES = 100
COUNTED_FETCHES = 2000
HEAD_BYTES = 100
SIGNAL_WAIT_S = 0.5
_REQUEST = struct.Struct(">qq")
_MODULE = "benchmarks.scaling_pairs"
Fetch = Callable[[int], object]
"""Fetch one piece at an offset, or with a number."""


@dataclass(slots=True)
class Series:
    """Fetches at random positions below `positions`, and the server's CPU time of each series."""

    title: str
    positions: int
    cpu_us: list[float] = field(default_factory=list)
    disk_bytes: list[int] = field(default_factory=list)

    def measure(self, pid: int, fetch: Fetch, random: Random) -> None:
        for _ in range(SERIES_WARM_UP_FETCHES):
            fetch(random.randrange(self.positions))
        disk, cpu = read_bytes(pid), cpu_nanoseconds(pid)
        for _ in range(FETCHES):
            fetch(random.randrange(self.positions))
        self.cpu_us.append((cpu_nanoseconds(pid) - cpu) / FETCHES / 1000)
        self.disk_bytes.append(read_bytes(pid) - disk)


def read_bytes(pid: int) -> int:
    """The bytes that the process caused to be read from the disk."""
    for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    raise RuntimeError("this system does not count the bytes that a process reads")


def log_files(directory: Path) -> list[Path]:
    """The files of full segments: all but the last."""
    return sorted(directory.glob("*.log"))[:-1]


# -- sendfile without a broker ---------------------------------------------------------------------


def serve_sendfile(directory: Path) -> None:
    """Print a port, and serve pieces of the files to one connection by the broker's system calls.

    A request is the number of a file and a position.
    """
    files = [os.open(path, os.O_RDONLY) for path in log_files(directory)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    sock.setblocking(False)
    epoll = select.epoll()
    epoll.register(sock, select.EPOLLIN)
    head, last, response = bytearray(20), bytearray(1), bytes(HEAD_BYTES)
    while True:
        epoll.poll()
        request = sock.recv(4096)
        if not request:
            return
        number, position = _REQUEST.unpack(request)
        fd, end = files[number], position + FETCH_BYTES
        os.preadv(fd, (head,), position)
        os.preadv(fd, (last,), end - 1)
        sock.send(response, socket.MSG_MORE)
        while position < end:
            try:
                position += os.sendfile(sock.fileno(), fd, position, end - position)
            except BlockingIOError:
                select.select((), (sock,), ())


class SendfileClient:
    """Requests to `serve_sendfile`, one at a time."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-m", _MODULE, "sendfile", str(directory)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Segments differ by less than one batch, and a batch is smaller than a piece.
        sizes = [path.stat().st_size for path in log_files(directory)]
        self.pieces_a_file = min(sizes) // FETCH_BYTES
        self.files = len(sizes)

    def fetch(self, piece: int) -> bytes:
        number, at = divmod(piece, self.pieces_a_file)
        self._socket.sendall(_REQUEST.pack(number, at * FETCH_BYTES))
        received = bytearray()
        while len(received) < HEAD_BYTES + FETCH_BYTES:
            chunk = self._socket.recv(1 << 20)
            if not chunk:
                raise RuntimeError("the server closed the connection")
            received += chunk
        return bytes(received)

    def close(self) -> None:
        self._socket.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


# -- calls of functions ----------------------------------------------------------------------------


def serve_counted(path: Path, arguments: Sequence[str]) -> None:
    """Run `odradek`. Count calls from SIGUSR1 to SIGUSR2, which writes them to `path`."""
    counts: Counter[str] = Counter()

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        counts[event] += 1

    def begin(*_: object) -> None:
        counts.clear()
        sys.setprofile(count)

    def end(*_: object) -> None:
        sys.setprofile(None)
        path.write_text(json.dumps(counts), encoding="ascii")

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    sys.argv = ["odradek", *arguments]
    runpy.run_module("odradek", run_name="__main__")


def calls_of_a_fetch(broker: BrokerProcess, records: int, work: Path) -> float:
    """Calls of Python and C functions of a fetch. Restarts the broker, and stops it in the end."""
    broker.stop()
    path = work / "calls.json"
    serve = broker.command.index("serve")
    environment = {**broker.environment, "PYTHONPATH": os.pathsep.join(
        (str(ROOT), broker.environment["PYTHONPATH"])
    )}  # fmt: skip
    command = [sys.executable, "-m", _MODULE, "counted", str(path), *broker.command[serve:]]
    broker.command, broker.environment = command, environment
    with broker.restart() as counted:
        fetcher, random = Fetcher(counted.bootstrap), Random(2)
        for _ in range(WARM_UP_FETCHES):
            fetcher.fetch(random.randrange(records))
        os.kill(counted.pid, signal.SIGUSR1)
        time.sleep(SIGNAL_WAIT_S)
        for _ in range(COUNTED_FETCHES):
            fetcher.fetch(random.randrange(records))
        os.kill(counted.pid, signal.SIGUSR2)
        time.sleep(SIGNAL_WAIT_S)
        counts = json.loads(path.read_text(encoding="ascii"))
        fetcher.close()
    return float(counts["call"] + counts["c_call"]) / COUNTED_FETCHES


# -- the pairs -------------------------------------------------------------------------------------


def measure(work: Path, starts: int, factor: int) -> list[str]:
    """Fill both brokers, measure all pairs and return the lines of the result."""
    small_records = SMALL_BYTES // RECORD_BYTES
    large_records = small_records * factor
    small, large = start_odradek(work / "small"), start_odradek(work / "large")
    try:
        fill(small, small_records)
        fill(large, large_records)
        for broker in (small, large):
            for path in (broker.log_dir / f"{TOPIC}-0").glob("*.log"):
                path.read_bytes()  # Read the log into the page cache.
        paired = pairs_of_series(small_records, large_records)
        random = Random(1)
        for _ in range(starts):
            small.stop()
            large.stop()
            small, large = small.restart(), large.restart()
            measure_start(paired, small, large, factor, random)
        calls = [
            calls_of_a_fetch(small, small_records - 100, work),
            calls_of_a_fetch(large, large_records - 100, work),
        ]
    finally:
        small.stop()
        large.stop()
    return [*lines_of(paired), "", f"Calls of a fetch: {calls[0]:.1f} and {calls[1]:.1f}."]


def pairs_of_series(small_records: int, large_records: int) -> list[tuple[Series, Series]]:
    small, large = small_records - 100, large_records - 100
    return [
        (Series("broker of 64 MB", small), Series("broker of 6.4 GB", large)),
        (Series("broker of 6.4 GB, first 64 MB", small), Series("broker of 6.4 GB, all", large)),
        (Series("sendfile, first 64 MB", 0), Series("sendfile, all 6.4 GB", 0)),
    ]


def measure_start(
    paired: list[tuple[Series, Series]],
    small: BrokerProcess,
    large: BrokerProcess,
    factor: int,
    random: Random,
) -> None:
    """Measure all series in turn. The order within a pair changes each time."""
    clients = [Fetcher(small.bootstrap), Fetcher(large.bootstrap)]
    sendfile = SendfileClient(large.log_dir / f"{TOPIC}-0")
    servers: list[list[tuple[int, Fetch]]] = [
        [(small.pid, clients[0].fetch), (large.pid, clients[1].fetch)],
        [(large.pid, clients[1].fetch)] * 2,
        [(sendfile.process.pid, sendfile.fetch)] * 2,
    ]
    first, second = paired[-1]
    first.positions = sendfile.pieces_a_file * max(1, sendfile.files // factor)
    second.positions = sendfile.pieces_a_file * sendfile.files
    for pair, served in zip(paired, servers, strict=True):
        for series, (_, fetch) in zip(pair, served, strict=True):
            for _ in range(WARM_UP_FETCHES):
                fetch(random.randrange(series.positions))
    for number in range(PAIRS_A_START):
        for pair, served in zip(paired, servers, strict=True):
            both = list(zip(pair, served, strict=True))
            for series, (pid, fetch) in both if number % 2 else both[::-1]:
                series.measure(pid, fetch, random)
    for client in clients:
        client.close()
    sendfile.close()


def lines_of(paired: list[tuple[Series, Series]]) -> list[str]:
    rows = []
    for one, other in paired:
        ratios = [large / small for small, large in zip(one.cpu_us, other.cpu_us, strict=True)]
        low, high = quartiles(ratios)
        for series in (one, other):
            cells = [
                series.title,
                show(statistics.median(series.cpu_us)),
                f"{min(series.cpu_us):.0f} to {max(series.cpu_us):.0f}",
                f"{sum(series.disk_bytes):,}",
            ]
            of_pair = [show(statistics.median(ratios)), f"{low:.2f} to {high:.2f}"]
            rows.append([*cells, *(of_pair if series is other else ["", ""])])
    head = ["fetches of 64 KiB", "CPU, µs, median", "all series", "bytes from the disk"]
    values = [
        [series.title, ", ".join(show(value) for value in series.cpu_us)]
        for pair in paired
        for series in pair
    ]
    lines = table([*head, "ratio, median", "quartiles"], rows)
    return [*lines, "", *table(["all series", "CPU, µs"], values)]


def main() -> None:
    if sys.argv[1:2] == ["sendfile"]:
        serve_sendfile(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["counted"]:
        serve_counted(Path(sys.argv[2]), sys.argv[3:])
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--starts", type=int, default=STARTS)
        parser.add_argument("--factor", type=int, default=FACTOR)
        options = parser.parse_args()
        work = Path(tempfile.mkdtemp(prefix="bench-"))
        try:
            print("\n".join(measure(work, options.starts, options.factor)))
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
