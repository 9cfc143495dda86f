"""The owner of a table directory: one driver at a time, numbered by epochs.

    DIR/owner/3.json    {"epoch": 3, "host": "a", "boot_id": "...", "pid_namespace": "...",
                         "pid": 4711, "started": 123456, "beat": 17, "lease_s": 60,
                         "released": false}

A driver claims the directory by creating the file of the next epoch, without overwriting. Of two
drivers that claim one epoch, one succeeds. The owner counts `beat` up every `BEAT_INTERVAL_S`. The
highest epoch owns the directory until its file says `released`.

An owner is replaced in three cases:

- it has released the directory,
- it ran on this host and its process is gone: the host was booted since, or no process has its
  process id and start time,
- its process cannot be looked up (another host, or another namespace of process ids), and `beat`
  has not changed for the time that its file names as `lease_s`. The clocks of two hosts are never
  compared. The new driver waits for that time by its own clock.

A driver that was replaced may still run, for example after a pause of its host. `Owner.check` finds
a higher epoch and raises an error. A sink calls it before each commit, after it has prepared the
commit. `sinks.parquet` and `sinks.delta` say why a commit that passed the check before the claim
cannot do harm.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from odradek.pipeline.errors import PipelineError

logger = logging.getLogger(__name__)

LEASE_S = 60
BEAT_INTERVAL_S = 10
CLAIMS_MAX = 10
"""Attempts to claim a directory, each of which another driver may win."""
GONE_STATES = ("Z", "X", "x")
"""States in /proc of processes that have ended: zombie and dead."""


class OwnerFiles(Protocol):
    """The file operations of an owner (`sinks.files.HadoopFiles`)."""

    def list_names(self, path: str) -> list[str]: ...

    def read_text(self, path: str) -> str: ...

    def create_text(self, path: str, text: str) -> None:
        """Create a file with its whole content. Raise FileExistsError if it exists."""

    def replace_text(self, path: str, text: str) -> None: ...

    def delete(self, path: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process of a host. `started` is its start time in clock ticks since the boot."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: int


class Processes(Protocol):
    """The processes of this host."""

    def current(self) -> ProcessIdentity:
        """Return the identity of this process."""

    def start_time(self, pid: int) -> int | None:
        """Return when the process started, in clock ticks. None if no such process runs."""


class LinuxProcesses:
    """The processes in /proc."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def current(self) -> ProcessIdentity:
        started = self.start_time(os.getpid())
        assert started is not None
        return ProcessIdentity(
            socket.gethostname(),
            (self._proc / "sys/kernel/random/boot_id").read_text().strip(),
            (self._proc / "self/ns/pid").readlink().name,
            os.getpid(),
            started,
        )

    def start_time(self, pid: int) -> int | None:
        try:
            text = (self._proc / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name of the program is in parentheses and may contain spaces and parentheses.
        state, *fields = text.rpartition(")")[2].split()
        return None if state in GONE_STATES else int(fields[18])


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The content of an owner's file."""

    epoch: int
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: int
    beat: int = 0
    lease_s: int = LEASE_S
    released: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> OwnerRecord:
        return cls(**json.loads(text))

    def text(self) -> str:
        return f"process {self.pid} on {self.host} (epoch {self.epoch})"


def is_gone(record: OwnerRecord, here: ProcessIdentity, processes: Processes) -> bool | None:
    """Return whether the process of an owner has ended, or None if this host cannot know.

    Containers of one host have its boot id. They see each other's processes only if they share the
    namespace of process ids. A boot ends all processes of a host. `localhost` is the name of many
    hosts, so it does not identify one.
    """
    if record.boot_id != here.boot_id:
        is_this_host = record.host == here.host and not record.host.startswith("localhost")
        return True if is_this_host else None
    if record.pid_namespace != here.pid_namespace:
        return None
    return processes.start_time(record.pid) != record.started


class Owner:
    """The ownership of one directory by this process, from `claim` to `release`."""

    def __init__(self, files: OwnerFiles, directory: str, record: OwnerRecord) -> None:
        self._files = files
        self._directory = directory
        self._record = record

    @property
    def epoch(self) -> int:
        return self._record.epoch

    @property
    def directory(self) -> str:
        return self._directory

    def check(self) -> None:
        """Raise PipelineError if a driver with a higher epoch owns the directory."""
        newest = newest_epoch(self._files, self._directory)
        if newest > self.epoch:
            found = read_record(self._files, self._directory, newest)
            by = f"epoch {newest}" if found is None else found.text()
            raise PipelineError(
                f"{self._directory} now belongs to {by}, so this driver (epoch {self.epoch}) stops"
                " before it commits. Run one ingest for each directory."
            )

    def beat(self) -> None:
        """Renew the lease.

        Raises:
            PipelineError: Another driver owns the directory.
        """
        self.check()
        self._write(replace(self._record, beat=self._record.beat + 1))

    def release(self) -> None:
        """Let the next driver claim the directory at once."""
        if newest_epoch(self._files, self._directory) == self.epoch:
            self._write(replace(self._record, released=True))

    def _write(self, record: OwnerRecord) -> None:
        self._record = record
        self._files.replace_text(_path(self._directory, self.epoch), record.to_json())


def claim(
    files: OwnerFiles,
    directory: str,
    processes: Processes,
    wait: Callable[[float], object],
) -> Owner:
    """Claim a directory for this process.

    Args:
        files: The files of the directory.
        directory: The table directory.
        processes: The processes of this host.
        wait: Waits for a number of seconds, such as `time.sleep`. Called at most once for each
            owner on another host.

    Raises:
        PipelineError: Another driver owns the directory and runs.
    """
    here = processes.current()
    for _ in range(CLAIMS_MAX):
        newest = newest_epoch(files, directory)
        if newest:
            _wait_until_replaceable(files, directory, newest, here, processes, wait)
        record = OwnerRecord(newest + 1, **asdict(here))
        try:
            files.create_text(_path(directory, record.epoch), record.to_json())
        except FileExistsError:
            continue
        for epoch in _epochs(files, directory):
            if epoch < newest:  # the newest one before this one says who was replaced
                files.delete(_path(directory, epoch))
        return Owner(files, directory, record)
    raise PipelineError(
        f"Other drivers claimed {directory} {CLAIMS_MAX} times in a row. Run one ingest for each"
        " directory."
    )


def _wait_until_replaceable(
    files: OwnerFiles,
    directory: str,
    epoch: int,
    here: ProcessIdentity,
    processes: Processes,
    wait: Callable[[float], object],
) -> None:
    before = read_record(files, directory, epoch)
    if before is None or before.released:
        return
    gone = is_gone(before, here, processes)
    if gone is None:
        logger.warning(
            "%s belongs to %s. Waiting %d s for its lease to end.",
            directory,
            before.text(),
            before.lease_s,
        )
        wait(before.lease_s)
        now = read_record(files, directory, epoch)
        gone = now == before or now is None or now.released
    if not gone:
        raise PipelineError(
            f"{directory} belongs to {before.text()}, which is running. Stop that ingest, or use"
            " another directory."
        )


def newest_epoch(files: OwnerFiles, directory: str) -> int:
    """Return the highest epoch that a driver has claimed, or 0."""
    return max(_epochs(files, directory), default=0)


def read_record(files: OwnerFiles, directory: str, epoch: int) -> OwnerRecord | None:
    """Return the record of an owner, or None if a later owner has removed it.

    Raises:
        PipelineError: The file is not such a record.
    """
    path = _path(directory, epoch)
    try:
        return OwnerRecord.from_json(files.read_text(path))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise PipelineError(
            f"{path} is not the record of an owner: {error}. If no ingest uses {directory}, remove"
            " the file."
        ) from error


def _epochs(files: OwnerFiles, directory: str) -> list[int]:
    names = (name.removesuffix(".json") for name in files.list_names(f"{directory}/owner"))
    return [int(name) for name in names if name.isdigit()]


def _path(directory: str, epoch: int) -> str:
    return f"{directory}/owner/{epoch}.json"


class Heartbeat:
    """A thread that renews the lease of an owner until `stop`.

    Args:
        owner: The owner.
        interval_s: Time between two renewals, in seconds.
        failures: Errors of the file system, which may work again at the next renewal.
    """

    def __init__(
        self,
        owner: Owner,
        interval_s: float = BEAT_INTERVAL_S,
        failures: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        self._owner = owner
        self._failures = failures
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingest owner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and release the directory."""
        self._stop.set()
        self._thread.join()
        self._owner.release()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._owner.beat()
            except PipelineError as error:
                directory = self._owner.directory
                logger.warning(
                    "the ingest into %s stops before its next commit: %s", directory, error
                )
                return
            except self._failures as error:
                logger.warning(
                    "the lease of %s could not be renewed, the next attempt is in %d s: %s",
                    self._owner.directory,
                    self._interval_s,
                    error,
                )
