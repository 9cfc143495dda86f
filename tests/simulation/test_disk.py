from __future__ import annotations

import errno
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.environment.files import READ, READ_WRITE, UPDATE, Files, read_file, write_file
from tests.simulation.disk import PAGE_BYTES, SECTOR_BYTES, Disk, Inode
from tests.simulation.event_loop import ProcessKilled, SimulatedClock, SimulatedLoop
from tests.simulation.executors import Threads
from tests.simulation.files import NOWAIT, SimulatedFiles
from tests.simulation.scheduler import Scheduler


class Machine:
    """A disk, and the files of its current process."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.disk = Disk(self.scheduler.stream("disk"))
        self.kills = 0
        self.files = self.start()
        self.files.mkdir("/d")
        self.disk.root.sync()

    def start(self) -> SimulatedFiles:
        clock = SimulatedClock(self.scheduler)
        loop = SimulatedLoop(self.scheduler, "process", clock)
        threads = Threads(self.scheduler, loop, self.scheduler.stream("threads"))
        self.files = SimulatedFiles(self.disk, threads, clock, "boot", {}, self.killed)
        checked: Files = self.files
        assert checked is self.files
        return self.files

    def killed(self) -> None:
        self.kills += 1
        self.files.kill()

    def power_cut(self) -> SimulatedFiles:
        self.files.kill()
        self.disk.power_cut()
        return self.start()

    def write(self, path: str, data: bytes, *, sync: bool = False) -> None:
        fd = self.files.open(path, READ_WRITE)
        self.files.pwrite(fd, data, 0)
        if sync:
            self.files.fsync(fd)
        self.files.close(fd)

    def names(self) -> set[str]:
        return set(self.files.listdir("/d"))


def test_files_are_read_as_they_were_written() -> None:
    machine = Machine()
    files = machine.files
    fd = files.open("/d/f", READ_WRITE)
    assert files.pwrite(fd, b"hello world", 0) == 11
    files.pwrite(fd, b"W", 6)
    files.pwrite(fd, b"!", 20)
    assert files.pread(fd, 100, 0) == b"hello World" + bytes(9) + b"!"
    buffer = bytearray(5)
    assert files.preadv(fd, [buffer], 6, 0) == 5
    assert buffer == b"World"
    files.ftruncate(fd, 5)
    assert (files.size("/d/f"), files.pread(fd, 100, 3)) == (5, b"lo")
    files.replace("/d/f", "/d/g")
    assert files.pread(fd, 5, 0) == b"hello"
    files.unlink("/d/g")
    assert files.pread(fd, 5, 0) == b"hello", "an open file lives on"
    with pytest.raises(FileNotFoundError):
        files.open("/d/g", READ)
    with pytest.raises(FileExistsError):
        files.mkdir("/d")


def test_a_kill_keeps_what_was_written_and_ends_the_locks() -> None:
    machine = Machine()
    machine.write("/d/f", b"unsynced")
    machine.files.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        machine.files.lock("/d/.lock")
    old = machine.files
    old.kill()
    with pytest.raises(ProcessKilled):
        old.listdir("/d")
    old.close(1)  # a destructor
    files = machine.start()
    assert read_file(files, "/d/f") == b"unsynced"
    files.lock("/d/.lock").release()
    files.lock("/d/.lock")


def test_a_power_cut_keeps_what_was_synced_with_its_name() -> None:
    for seed in range(30):
        machine = Machine(seed)
        machine.write("/d/f", b"synced", sync=True)
        machine.files.fsync_dir("/d")
        machine.write("/d/f", b"SYNCED and more")
        files = machine.power_cut()
        assert read_file(files, "/d/f")[:6] in (b"synced", b"SYNCED")
        write_file(files, "/d/g", b"replaced", sync=True)
        files = machine.power_cut()
        assert read_file(files, "/d/g") == b"replaced"


def test_a_power_cut_loses_names_that_were_not_synced() -> None:
    seen = set()
    for seed in range(60):
        machine = Machine(seed)
        machine.write("/d/old", b"1", sync=True)
        machine.files.fsync_dir("/d")
        machine.write("/d/new", b"2", sync=True)
        machine.files.replace("/d/old", "/d/renamed")
        machine.power_cut()
        names = machine.names()
        assert ("old" in names) != ("renamed" in names), "a rename happens as a whole"
        seen.add(frozenset(names))
    assert len(seen) == 4


def test_a_change_that_is_lost_takes_later_changes_of_its_name_with_it() -> None:
    seen = set()
    for seed in range(60):
        machine = Machine(seed)
        machine.write("/d/f.tmp", b"1", sync=True)
        machine.files.replace("/d/f.tmp", "/d/f")
        machine.power_cut()
        seen.add(frozenset(machine.names()))
    assert seen == {frozenset(), frozenset({"f.tmp"}), frozenset({"f"})}


def test_the_files_of_a_directory_are_lost_with_its_name() -> None:
    outcomes = set()
    for seed in range(30):
        machine = Machine(seed)
        machine.files.mkdir("/d/e")
        machine.write("/d/e/f", b"1", sync=True)
        machine.files.fsync_dir("/d/e")
        files = machine.power_cut()
        outcomes.add(files.is_dir("/d/e"))
        if files.is_dir("/d/e"):
            assert read_file(files, "/d/e/f") == b"1"
    assert outcomes == {True, False}


def test_a_removed_directory_may_come_back_with_some_of_its_files() -> None:
    counts = set()
    for seed in range(60):
        machine = Machine(seed)
        machine.files.mkdir("/d/e")
        for name in "abc":
            machine.write(f"/d/e/{name}", b"1", sync=True)
        machine.files.fsync_dir("/d/e")
        machine.files.fsync_dir("/d")
        machine.files.remove_tree("/d/e")
        assert not machine.files.is_dir("/d/e")
        files = machine.power_cut()
        counts.add(len(files.listdir("/d/e")) if files.is_dir("/d/e") else -1)
    assert counts == {-1, 0, 1, 2, 3}


@given(
    st.lists(st.tuples(st.integers(0, 4 * PAGE_BYTES), st.integers(1, 2 * PAGE_BYTES)), max_size=4),
    st.lists(st.tuples(st.integers(0, 4 * PAGE_BYTES), st.integers(1, 2 * PAGE_BYTES)), max_size=4),
    st.integers(0, 6 * PAGE_BYTES) | st.none(),
    st.integers(0, 1 << 30),
)
def test_each_sector_is_old_new_or_zero_after_a_power_cut(
    synced: list[tuple[int, int]],
    unsynced: list[tuple[int, int]],
    truncation: int | None,
    seed: int,
) -> None:
    inode = Inode()
    for position, length in synced:
        inode.write(b"o" * length, position)
    inode.sync()
    old = bytes(inode.data)
    assert inode.durable == inode.data
    for position, length in unsynced:
        inode.write(b"n" * length, position)
    if truncation is not None:
        inode.truncate(truncation)
    new = bytes(inode.data)
    inode.lose_unsynced(random.Random(seed))
    left = bytes(inode.data)
    assert min(len(old), len(new)) <= len(left) <= max(len(old), len(new))
    for start in range(0, len(left), SECTOR_BYTES):
        piece = left[start : start + SECTOR_BYTES]
        for candidate in (old, new):
            end = max(min(start + len(piece), len(candidate)), start)
            is_zero = not piece[end - start :].strip(b"\0")
            if piece[: end - start] == candidate[start:end] and is_zero:
                break
        else:
            pytest.fail(f"the sector at {start} has other bytes")
    assert inode.is_synced


def test_a_full_disk_takes_a_part_of_a_write_and_no_new_file() -> None:
    machine = Machine()
    files = machine.files
    fd = files.open("/d/f", READ_WRITE)
    files.pwrite(fd, b"0123456789", 0)
    machine.disk.space_left = 4
    assert files.pwrite(fd, b"abcdefgh", 8) == 6
    assert files.pread(fd, 100, 0) == b"01234567abcdef"
    with pytest.raises(OSError, match="no space") as raised:
        files.pwrite(fd, b"x", 14)
    assert raised.value.errno == errno.ENOSPC
    assert files.pwrite(fd, b"X", 0) == 1, "an overwrite needs no space"
    with pytest.raises(OSError, match="no space"):
        files.open("/d/new", READ_WRITE)
    with pytest.raises(OSError, match="no space"):
        files.mkdir("/d/new")


def test_a_failed_fsync_syncs_nothing() -> None:
    lost = 0
    for seed in range(30):
        machine = Machine(seed)
        machine.write("/d/f", b"", sync=True)
        machine.files.fsync_dir("/d")
        machine.disk.fail_fsyncs = 1
        with pytest.raises(OSError, match="input/output"):
            machine.write("/d/f", b"data", sync=True)
        files = machine.power_cut()
        lost += read_file(files, "/d/f") != b"data"
    assert lost


def fail_fsync(machine: Machine, data: bytes) -> None:
    machine.disk.fail_fsyncs = 1
    with pytest.raises(OSError, match="input/output"):
        machine.write("/d/f", data, sync=True)


def test_an_fsync_after_a_failed_one_succeeds_without_the_pages() -> None:
    size, lost = 3 * PAGE_BYTES, 0
    for seed in range(10):
        machine = Machine(seed)
        machine.write("/d/f", bytes(size), sync=True)
        machine.files.fsync_dir("/d")
        fail_fsync(machine, b"x" * size)
        assert read_file(machine.files, "/d/f") == b"x" * size, "processes see the pages"
        fd = machine.files.open("/d/f", UPDATE)
        machine.files.fsync(fd)
        found = read_file(machine.power_cut(), "/d/f")
        pages = [found[at : at + PAGE_BYTES] for at in range(0, size, PAGE_BYTES)]
        assert {*pages} <= {bytes(PAGE_BYTES), b"x" * PAGE_BYTES}
        lost += pages.count(bytes(PAGE_BYTES))
    assert 0 < lost < 30


def test_a_page_that_is_written_after_a_failed_fsync_is_synced() -> None:
    for seed in range(10):
        machine = Machine(seed)
        machine.write("/d/f", bytes(PAGE_BYTES), sync=True)
        machine.files.fsync_dir("/d")
        fail_fsync(machine, b"x" * PAGE_BYTES)
        machine.write("/d/f", b"y", sync=True)
        assert read_file(machine.power_cut(), "/d/f") == b"y" + b"x" * (PAGE_BYTES - 1)


def test_the_page_cache_drops_the_pages_of_a_failed_fsync() -> None:
    dropped = 0
    for seed in range(10):
        machine = Machine(seed)
        machine.write("/d/f", b"old", sync=True)
        fail_fsync(machine, b"newer")
        paths = machine.disk.drop_failed_pages()
        assert paths in ([], ["/d/f"])
        assert read_file(machine.files, "/d/f") == (b"old\0\0" if paths else b"newer")
        assert machine.disk.drop_failed_pages() == []
        dropped += len(paths)
    assert 0 < dropped < 10


def test_failed_reads_and_writes() -> None:
    machine = Machine()
    machine.write("/d/f", b"data")
    machine.disk.fail_writes = 1
    with pytest.raises(OSError, match="input/output"):
        machine.write("/d/f", b"x")
    machine.disk.file("/d/f").unreadable = True
    with pytest.raises(OSError, match="input/output"):
        read_file(machine.files, "/d/f")


def test_a_probe_reports_evicted_pages_until_they_are_read() -> None:
    machine = Machine()
    files = machine.files
    machine.write("/d/f", bytes(3 * PAGE_BYTES), sync=True)
    fd = files.open("/d/f", UPDATE)
    buffer = [bytearray(1)]
    assert files.preadv(fd, buffer, 0, NOWAIT) == 1
    files.pwrite(fd, b"x", 2 * PAGE_BYTES)
    machine.disk.file("/d/f").evict()
    with pytest.raises(BlockingIOError):
        files.preadv(fd, buffer, 0, NOWAIT)
    assert files.preadv(fd, buffer, 2 * PAGE_BYTES, NOWAIT) == 1, "a written page stays"
    files.pread(fd, 10, PAGE_BYTES)
    assert files.blocked_loop == 2, "the fsync and this read"
    assert files.preadv(fd, buffer, PAGE_BYTES, NOWAIT) == 1
    with pytest.raises(BlockingIOError):
        files.preadv(fd, buffer, 0, NOWAIT)


def test_the_process_dies_at_a_change_of_files() -> None:
    contents = set()
    for seed in range(60):
        machine = Machine(seed)
        machine.files.kill_after = 2
        with pytest.raises(ProcessKilled):
            machine.write("/d/f", b"0123456789")
        assert machine.kills == 1
        files = machine.start()
        contents.add(read_file(files, "/d/f"))
    assert {b"", b"0123456789"} < contents, "before, after, and in the middle of the write"


def test_listings_depend_on_the_seed_only() -> None:
    def listing(seed: int) -> list[str]:
        machine = Machine(seed)
        for number in range(10):
            machine.write(f"/d/{number}", b"")
        return machine.files.listdir("/d")

    assert listing(1) == listing(1) != listing(2)


def test_descriptors_run_out() -> None:
    machine = Machine()
    with pytest.raises(OSError, match="too many") as raised:
        for number in range(2_000):
            machine.files.open("/d/f", os.O_CREAT)
            assert machine.files.open_count == number + 1
    assert raised.value.errno == errno.EMFILE
