"""The ownership of a directory: claims, takeovers and checks, also between real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.owner import (
    LEASE_S,
    Heartbeat,
    LinuxProcesses,
    Owner,
    OwnerRecord,
    ProcessIdentity,
    claim,
    is_gone,
    newest_epoch,
    read_record,
)
from odradek.pipeline.sinks.local_files import LocalFiles
from tests.pipeline.table_ledger.files import FilesInMemory

DIR = "/lake"
HERE = ProcessIdentity("a", "boot-1", "ns", 100, 5000)
EXIT_TIMEOUT_S = 120


class Host:
    """Processes of a host: start time by process id."""

    def __init__(self, me: ProcessIdentity, running: dict[int, int] | None = None) -> None:
        self._me = me
        self.running = {me.pid: me.started} if running is None else running

    def current(self) -> ProcessIdentity:
        return self._me

    def start_time(self, pid: int) -> int | None:
        return self.running.get(pid)


class Waits:
    """A clock that performs an action instead of waiting."""

    def __init__(self, action: object = None) -> None:
        self.waited: list[float] = []
        self._action = action

    def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        if callable(self._action):
            self._action()


def take(files: FilesInMemory, host: Host, waits: Waits | None = None) -> Owner:
    return claim(files, DIR, host, waits or Waits())


def test_first_driver_owns_the_directory_at_once() -> None:
    files, waits = FilesInMemory(), Waits()
    owner = take(files, Host(HERE), waits)
    owner.check()
    assert (owner.epoch, waits.waited) == (1, [])
    assert read_record(files, DIR, 1) == OwnerRecord(1, **asdict(HERE))


def test_second_driver_is_refused_while_the_owner_runs() -> None:
    files = FilesInMemory()
    owner = take(files, Host(HERE))
    with pytest.raises(PipelineError, match=r"belongs to process 100 on a \(epoch 1\)") as refused:
        take(files, Host(replace(HERE, pid=200), {100: HERE.started, 200: 1}))
    assert "\n" not in str(refused.value)
    owner.check()


@pytest.mark.parametrize(
    "later",
    [
        Host(replace(HERE, pid=200), {200: 1}),
        Host(replace(HERE, pid=200), {100: HERE.started + 1}),
        Host(replace(HERE, pid=100, boot_id="boot-2")),
    ],
    ids=["process is gone", "process id is used again", "host was booted"],
)
def test_owner_whose_process_is_gone_is_replaced_at_once(later: Host) -> None:
    files, waits = FilesInMemory(), Waits()
    old = take(files, Host(HERE))
    assert take(files, later, waits).epoch == 2
    assert waits.waited == []
    with pytest.raises(PipelineError, match=r"now belongs to .* \(epoch 2\)"):
        old.check()
    with pytest.raises(PipelineError, match="epoch 2"):
        old.beat()


def test_released_directory_is_claimed_at_once() -> None:
    files = FilesInMemory()
    take(files, Host(HERE)).release()
    assert take(files, Host(replace(HERE, host="b", boot_id="x"))).epoch == 2


def test_owner_that_was_replaced_does_not_release_its_successor() -> None:
    files = FilesInMemory()
    old = take(files, Host(HERE))
    new = take(files, Host(replace(HERE, pid=200), {200: 1}))
    old.release()
    new.check()
    with pytest.raises(PipelineError, match="is running"):
        take(files, Host(replace(HERE, pid=300), {200: HERE.started}))


ELSEWHERE = replace(HERE, host="b", boot_id="boot-of-b")


@pytest.mark.parametrize(
    "host",
    [
        ELSEWHERE,
        replace(HERE, pid_namespace="container"),
    ],
    ids=["another host", "another container"],
)
def test_owner_elsewhere_is_replaced_after_its_lease(host: ProcessIdentity) -> None:
    files, waits = FilesInMemory(), Waits()
    take(files, Host(HERE))
    assert take(files, Host(host), waits).epoch == 2
    assert waits.waited == [LEASE_S]


def test_hosts_named_localhost_are_not_taken_for_one_host() -> None:
    files, waits = FilesInMemory(), Waits()
    take(files, Host(replace(HERE, host="localhost")))
    take(files, Host(replace(HERE, host="localhost", boot_id="other")), waits)
    assert waits.waited == [LEASE_S]


def test_owner_elsewhere_that_beats_during_the_lease_stays() -> None:
    files = FilesInMemory()
    owner = take(files, Host(HERE))
    with pytest.raises(PipelineError, match="is running"):
        take(files, Host(ELSEWHERE), Waits(owner.beat))
    owner.check()


def test_owner_elsewhere_that_releases_during_the_lease_is_replaced() -> None:
    files = FilesInMemory()
    owner = take(files, Host(HERE))
    assert take(files, Host(ELSEWHERE), Waits(owner.release)).epoch == 2


@pytest.mark.parametrize("operation", ["list_names", "read_text", "create_text"])
def test_of_two_drivers_that_claim_at_the_same_time_one_succeeds(operation: str) -> None:
    """The second driver acts completely before each operation of the first one."""
    files = FilesInMemory()
    take(files, Host(replace(HERE, pid=1))).beat()
    both = {100: 5000, 200: 5000}
    winners: list[Owner] = []

    def other_driver_first(name: str, path: str) -> None:
        if name == operation:
            files.before = lambda name, path: None
            winners.append(take(files, Host(replace(HERE, pid=200), both)))

    files.before = other_driver_first
    with pytest.raises(PipelineError, match="belongs to process 200"):
        take(files, Host(HERE, both))
    winners[0].check()
    assert newest_epoch(files, DIR) == 2


def test_files_of_old_owners_are_removed() -> None:
    files = FilesInMemory()
    for pid in range(1, 6):
        take(files, Host(replace(HERE, pid=pid)))
    assert files.list_names(f"{DIR}/owner") == ["4.json", "5.json"]


def test_file_that_is_no_record_is_an_error_that_names_it() -> None:
    files = FilesInMemory()
    files.texts[f"{DIR}/owner/3.json"] = "{"
    with pytest.raises(PipelineError, match=f"{DIR}/owner/3.json is not the record of an owner"):
        take(files, Host(HERE))


def test_this_process_runs_and_a_zombie_does_not(tmp_path: Path) -> None:
    processes = LinuxProcesses()
    me = processes.current()
    record = OwnerRecord(1, **asdict(me))
    assert is_gone(record, me, processes) is False
    assert is_gone(replace(record, started=me.started + 1), me, processes) is True
    (tmp_path / "7").mkdir()
    stat = f"7 (a) b) {{state}} {' '.join(str(n) for n in range(4, 30))}"
    (tmp_path / "7" / "stat").write_text(stat.format(state="S"))
    assert LinuxProcesses(tmp_path).start_time(7) == 22
    (tmp_path / "7" / "stat").write_text(stat.format(state="Z"))
    assert LinuxProcesses(tmp_path).start_time(7) is None
    assert LinuxProcesses(tmp_path).start_time(8) is None


def test_stopped_heartbeat_releases_the_directory(tmp_path: Path) -> None:
    files, directory = LocalFiles(), str(tmp_path)
    for epoch in (1, 2):
        heartbeat = Heartbeat(claim(files, directory, LinuxProcesses(), Waits()), interval_s=0.001)
        heartbeat.start()
        heartbeat.stop()
        record = read_record(files, directory, epoch)
        assert record is not None and record.released


PROGRAM = """
import sys
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.owner import LinuxProcesses, claim
from odradek.pipeline.sinks.local_files import LocalFiles
def wait(seconds): raise AssertionError("another host")
try:
    print(claim(LocalFiles(), sys.argv[1], LinuxProcesses(), wait).epoch, flush=True)
except PipelineError as error:
    print(error, flush=True)
sys.stdin.read()
"""


def driver(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(directory)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_one_of_several_real_processes_owns_a_directory_until_it_is_killed(tmp_path: Path) -> None:
    drivers = [driver(tmp_path) for _ in range(4)]
    try:
        lines = [first_line(one) for one in drivers]
        owners = [one for one, line in zip(drivers, lines, strict=True) if line == "1\n"]
        assert len(owners) == 1
        assert sum("is running" in line for line in lines) == 3
        owners[0].send_signal(signal.SIGKILL)
        owners[0].wait(EXIT_TIMEOUT_S)
        drivers.append(driver(tmp_path))
        assert first_line(drivers[-1]) == "2\n"
    finally:
        for one in drivers:
            one.kill()
            one.communicate(timeout=EXIT_TIMEOUT_S)
