"""A worker of the log cleaner as a protocol, and the messages to its process as lines of JSON.

The broker sends a `CleaningJob`. The worker sends a `CleanedGroup` for each group of segments, and
waits for the broker's ``go`` (the swap is done) before the next one. Its last message is
`CleaningDone` or `CleaningFailed`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

GO = "go"


@dataclass(slots=True)
class CleaningJob:
    """One log to be cleaned from `first_dirty_offset` up to `upper_bound`.

    Attributes:
        segments: (base offset, size in bytes) of the segments below `upper_bound`.
        last_records: (producer id, offset of its last data or -1, epoch) of the active producers.
    """

    name: str
    directory: str
    segments: list[tuple[int, int]]
    first_dirty_offset: int
    upper_bound: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    bytes_per_second: float | None = None
    last_records: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class CleanedGroup:
    """The segments with these base offsets were merged into ``<first base>.log.cleaned``.

    `has_aborted`: the new segment has an index of aborted transactions.
    """

    bases: list[int]
    size: int
    has_aborted: bool


@dataclass(slots=True)
class CleaningDone:
    """All records below `end_offset` are clean. `stats` are those of `CleanerStats`."""

    end_offset: int
    elapsed_s: float
    stats: dict[str, float]


@dataclass(slots=True)
class CleaningFailed:
    """`errno` is 0 unless the operating system raised an error. `reason` is the error message."""

    errno: int
    reason: str


Report = CleanedGroup | CleaningDone | CleaningFailed
_REPORTS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (CleanedGroup, CleaningDone, CleaningFailed)
}


class WorkerEnded(Exception):
    """The worker has ended, or was killed."""


class CleanerWorker(Protocol):
    """A worker, which cleans one log at a time.

    All calls but `kill` may block, so they run on a thread. They raise `WorkerEnded` if the worker
    has ended.
    """

    def start(self, job: CleaningJob) -> None:
        """Begin to clean a log."""

    def report(self) -> Report:
        """Wait for the next report and return it."""

    def resume(self) -> None:
        """Report that the last group was swapped in, so the worker may clean the next one."""

    def kill(self) -> None:
        """Kill the worker, even in the middle of a job. May be called from any thread."""

    def close(self) -> None:
        """Kill the worker and wait until it has ended."""


def encode_job(job: CleaningJob) -> bytes:
    return json.dumps(asdict(job)).encode() + b"\n"


def decode_job(line: bytes) -> CleaningJob:
    fields = json.loads(line)
    for name in ("segments", "last_records"):
        fields[name] = [tuple(each) for each in fields[name]]
    return CleaningJob(**fields)


def encode_report(report: Report) -> bytes:
    return json.dumps({type(report).__name__: asdict(report)}).encode() + b"\n"


def decode_report(line: bytes) -> Report:
    """Decode a report. Raise ValueError if the line is not a report."""
    ((kind, fields),) = json.loads(line).items()
    report: Report = _REPORTS[kind](**fields)
    return report
