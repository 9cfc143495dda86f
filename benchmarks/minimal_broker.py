"""CPU of the broker per produce request, compared with a minimal C program.

`programs/minimal_broker.c` does the least work that a broker does for a produce request. It waits
with epoll, receives, checks the CRC-32C of the batch, appends the batch with one pwrite, and sends
a fixed response. `programs/request_driver.c` drives the C program and Odradek with the same bytes,
five requests in flight on one connection.

The C program runs in two ways. As `c_each` it sends the response to each request when the request
is appended, and this side decides. As `c_together` it sends the responses to all requests of one
receive at once, as Odradek does.

The sides alternate. Each run has a process and files of its own, which are deleted when it ends.
Page-cache growth into fresh memory costs three times as much now and then, so the ratio of each
side's least value decides.

`make evidence-c-program` runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from benchmarks.loads import fresh_topic
from benchmarks.processes import cpu_nanoseconds
from odradek.records.record import Record, build_batch
from testkit.peer.server import start_odradek
from testkit.programs import build_c
from testkit.requests import produce
from testkit.wire import request_bytes

PROGRAMS = Path(__file__).parent / "programs"
ODRADEK, C_EACH, C_TOGETHER = "odradek", "c_each", "c_together"
SIDES = (ODRADEK, C_EACH, C_TOGETHER)
RESPONSES = {C_EACH: "each", C_TOGETHER: "together"}
"""How the C program sends its responses, by side."""
RUNS = 4
IN_FLIGHT = 5
VERSION = 12
"""Version of the produce requests: the last version with topic names."""
CLIENT_ID = "producer-1"
SEED = 1
TIMESTAMP_MS = 1_700_000_000_000
WARM_UP = 500
"""Requests to each new Odradek before its run. The last response is the C program's fixed one."""
SAME_LENGTH = "bench-cprogram"
"""The name in the requests to the C program, as long as Odradek's topic name."""
METRIC = "cpu_us_per_request"
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
    # As many as Kafka's producer puts into a batch of 131,072 bytes.
    Size("large_batch", "126 records of 1 KB (128 KB)", 126, 1024, 7_000),
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


def least_ratio(runs: list[dict[str, dict[str, float]]], side: str) -> float:
    """Odradek's least CPU per request divided by the least of a side of the C program."""
    ours, theirs = (min(run[key][METRIC] for run in runs) for key in (ODRADEK, side))
    return ours / theirs


def order_of(number: int) -> tuple[str, ...]:
    """The order in which the sides are driven in a run."""
    return SIDES if number % 2 == 0 else SIDES[::-1]


class Comparison:
    """Drives both sides. Owns the built programs and the files in `work`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._driver = build_c(PROGRAMS / "request_driver.c", work / "request_driver")
        self._minimal = build_c(PROGRAMS / "minimal_broker.c", work / "minimal_broker")
        self._request_file = work / "request"
        self._response_file = work / "response"

    def measure(self, size: Size, number: int, scale: float) -> dict[str, dict[str, float]]:
        """Run each side once, in the order of run `number`; return the values by side."""
        batch = batch_of(size)
        requests = max(int(size.requests * scale), IN_FLIGHT)
        if not self._response_file.exists():
            self._run_odradek(batch, IN_FLIGHT)
        found: dict[str, dict[str, float]] = {}
        for side in order_of(number):
            os.sync()
            run = (
                self._run_odradek(batch, requests)
                if side == ODRADEK
                else self._run_c_program(batch, requests, RESPONSES[side])
            )
            found[side] = {**asdict(run), METRIC: run.cpu_us_per_request}
        return found

    def _run_odradek(self, batch: bytes, requests: int) -> Run:
        directory = self._work / "odradek"
        try:
            with start_odradek(directory) as odradek:
                self._prepare(batch, fresh_topic(odradek))
                port = int(odradek.bootstrap.rpartition(":")[2])
                _, response = self._drive(odradek.pid, port, WARM_UP)
                self._response_file.write_bytes(response)
                return self._drive(odradek.pid, port, requests)[0]
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _run_c_program(self, batch: bytes, requests: int, responses: str) -> Run:
        request = self._prepare(batch, SAME_LENGTH)
        log = self._work / "minimal.log"
        options = [str(log), str(len(request.frame)), str(request.batch_position)]
        command = [*self._minimal, *options, str(self._response_file), responses]
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
