"""CPU of the broker per produce request, compared with a minimal C program.

``python -m benchmarks.minimal_broker [--runs 4] [--scale 1.0] [--only ROW]``

`programs/minimal_broker.c` does the least work that a broker does for a produce request. It waits
with epoll, receives, checks the CRC-32C of the batch, appends the batch with one pwrite, and sends
a fixed response. `programs/request_driver.c` drives the C program and Odradek with the same bytes,
five requests in flight on one connection.

The two sides alternate. The files of a run are deleted before the next run, because page-cache
growth into fresh memory costs three times as much now and then. For the same reason the ratio of
each side's least value decides.

Prints the raw values of all runs as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.loads import drop_topic, fresh_topic
from benchmarks.machine import description
from benchmarks.memory import steady_memory
from benchmarks.processes import cpu_nanoseconds
from odradek.records.record import Record, build_batch
from testkit.peer.server import BrokerProcess, start_odradek
from testkit.programs import build_c
from testkit.requests import produce
from testkit.wire import request_bytes

PROGRAMS = Path(__file__).parent / "programs"
SIDES = ("odradek", "c_program")
RUNS = 4
IN_FLIGHT = 5
VERSION = 12
"""Version of the produce requests: the last one that names its topics."""
CLIENT_ID = "producer-1"
SEED = 1
TIMESTAMP_MS = 1_700_000_000_000
WARM_UP = 500
"""Requests before the first run. The last response to them is the fixed one of the C program."""
TRIAL_SCALE = 0.15
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Size:
    """A row. `requests` is their number at scale 1."""

    key: str
    title: str
    records: int
    record_bytes: int
    requests: int


SIZES = (
    Size("one_record", "1 record of 200 bytes", 1, 200, 200_000),
    Size("fifty_records", "50 records of 200 bytes", 50, 200, 60_000),
    Size("large_batch", "127 records of 1 KB (128 KB)", 127, 1024, 7_000),
)


@dataclass(frozen=True, slots=True)
class Request:
    """The bytes of a request, their size included, and the position of the batch in them."""

    frame: bytes
    batch_position: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run against one side."""

    requests: int
    cpu_us: float
    elapsed_us: float

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_us / self.requests


def batch_of(size: Size, seed: int = SEED) -> bytes:
    """The record batch of a row. Its values are random bytes of `seed`."""
    random = Random(seed)
    records = [
        Record(None, random.randbytes(size.record_bytes), TIMESTAMP_MS) for _ in range(size.records)
    ]
    return bytes(build_batch(records, timestamp_ms=TIMESTAMP_MS))


def request_of(batch: bytes, topic: str) -> Request:
    """The produce request with one batch for partition 0 of `topic`."""
    body = request_bytes(produce(topic, batch, acks=1), VERSION, 0, CLIENT_ID)
    frame = len(body).to_bytes(4, "big") + body
    return Request(frame, frame.index(batch))


def least_ratio(row: dict[str, Any]) -> float:
    """Odradek's least CPU per request divided by the C program's least."""
    least = {side: min(run["cpu_us_per_request"] for run in row[side]) for side in SIDES}
    return least["odradek"] / least["c_program"]


def order_of(run: int) -> tuple[str, ...]:
    """The order in which the sides are driven in a run."""
    return SIDES if run % 2 == 0 else SIDES[::-1]


class Comparison:
    """Drives both sides. Owns the built programs, the files in `work` and the running Odradek."""

    def __init__(self, work: Path, odradek: BrokerProcess) -> None:
        self._work = work
        self._odradek = odradek
        self._driver = build_c(PROGRAMS / "request_driver.c", work / "request_driver")
        self._minimal = build_c(PROGRAMS / "minimal_broker.c", work / "minimal_broker")
        self._request_file = work / "request"
        self._response_file = work / "response"

    def measure(self, size: Size, runs: int, scale: float) -> dict[str, Any]:
        """All runs of a row."""
        batch = batch_of(size)
        requests = max(int(size.requests * scale), IN_FLIGHT)
        row: dict[str, Any] = {"title": size.title, "requests": requests}
        with self._topic() as topic:
            self._prepare(batch, topic)
            _, response = self._drive(self._odradek.pid, self._port, WARM_UP)
            self._response_file.write_bytes(response)
            row["frame_bytes"] = self._request_file.stat().st_size
        row |= {side: [] for side in SIDES}
        for number in range(runs):
            for side in order_of(number):
                run = getattr(self, f"_run_{side}")(batch, requests)
                measured = {**asdict(run), "cpu_us_per_request": run.cpu_us_per_request}
                row[side].append(measured)
                _report(
                    f"run {number + 1} {side:9} {size.key:14} "
                    f"{run.cpu_us_per_request:8.2f} CPU-us a request, "
                    f"{run.elapsed_us / requests:8.2f} us elapsed"
                )
        return row

    def _run_odradek(self, batch: bytes, requests: int) -> Run:
        with self._topic() as topic:
            self._prepare(batch, topic)
            return self._drive(self._odradek.pid, self._port, requests)[0]

    def _run_c_program(self, batch: bytes, requests: int) -> Run:
        request = self._prepare(batch, "c_program")
        log = self._work / "minimal.log"
        options = [str(log), str(len(request.frame)), str(request.batch_position)]
        command = [*self._minimal, *options, str(self._response_file)]
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
                assert program.stdout is not None
                port = int(program.stdout.readline())
                run, _ = self._drive(program.pid, port, requests)
                if program.wait(DEADLINE_S):
                    raise RuntimeError(f"the C program ended with {program.returncode}")
            if (size := log.stat().st_size) != requests * len(batch):
                raise RuntimeError(f"the C program wrote {size} bytes")
            return run
        finally:
            log.unlink(missing_ok=True)

    @property
    def _port(self) -> int:
        return int(self._odradek.bootstrap.rpartition(":")[2])

    @contextmanager
    def _topic(self) -> Iterator[str]:
        """A topic whose files are gone when the context ends."""
        topic = fresh_topic(self._odradek)
        os.sync()
        try:
            yield topic
        finally:
            drop_topic(self._odradek, topic)
            deadline = time.monotonic() + DEADLINE_S
            while any(self._odradek.log_dir.glob(f"{topic}-*")):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the files of {topic} are not deleted")
                time.sleep(0.05)

    def _prepare(self, batch: bytes, topic: str) -> Request:
        request = request_of(batch, topic)
        self._request_file.write_bytes(request.frame)
        return request

    def _drive(self, pid: int, port: int, requests: int) -> tuple[Run, bytes]:
        """Send the prepared request; return what it cost the process, and the last response."""
        command = [*self._driver, str(port), str(self._request_file), str(requests), str(IN_FLIGHT)]
        before = cpu_nanoseconds(pid)
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as driver:
            assert driver.stdout is not None and driver.stdin is not None
            elapsed, response = driver.stdout.readline(), driver.stdout.readline()
            after = cpu_nanoseconds(pid)
            driver.stdin.close()
            if driver.wait(DEADLINE_S) or not elapsed:
                raise RuntimeError(f"the client ended with {driver.returncode}")
        run = Run(requests, (after - before) / 1000, float(elapsed))
        return run, bytes.fromhex(response)


def run(work: Path, runs: int, scale: float, only: list[str]) -> dict[str, Any]:
    """All rows on one broker."""
    with start_odradek(work / "odradek") as odradek:
        comparison = Comparison(work, odradek)
        rows = {
            size.key: comparison.measure(size, runs, scale)
            for size in SIZES
            if not only or size.key in only
        }
    return {"rows": rows, "ratios": {key: least_ratio(row) for key, row in rows.items()}}


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minimal_broker")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of requests")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ROW",
        choices=[size.key for size in SIZES],
        help=", ".join(size.key for size in SIZES),
    )
    options = parser.parse_args()
    small = options.scale < TRIAL_SCALE
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as work,
        nullcontext(False) if small else steady_memory(_report) as steady,
    ):
        result = {
            "machine": description(steady_memory=steady, peers=False),
            "in_flight": IN_FLIGHT,
            "runs": options.runs,
            "scale": options.scale,
            **run(Path(work), options.runs, options.scale, options.only),
        }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
