"""A crash at any time of a cleaning or swap loses no record and leaves no file behind."""

from __future__ import annotations

import os
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.files import RealFiles
from odradek.log.cleaner.segment_swap import recover_swaps
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import NOW_MS, open_log, open_manager
from tests.log.cleaner.running import append_pairs, compact, pairs_of

CONFIG = LogConfig(
    cleanup_compact=True,
    cleanup_delete=False,
    delete_retention_ms=1_000,
    segment_bytes=400,
    index_interval_bytes=50,
)
KEYS = 12
LATER_MS = NOW_MS + 5_000


class Killed(BaseException):
    """The process ended in the middle of a call. No code handles this exception."""


class DyingFiles(FaultyFiles):
    """Ends the process before the modifying call number `dies_at`; None: never."""

    def __init__(self) -> None:
        super().__init__(loses_names=True)
        self.calls = 0
        self.dies_at: int | None = None

    @property
    def synced(self) -> dict[str, bytes]:
        """The content on the disk, by path. A test adds the existing files."""
        return self._synced

    def _count(self) -> None:
        if self.dies_at is not None:
            if self.calls >= self.dies_at:
                raise Killed
            self.calls += 1

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._count()
        return super().open(path, flags)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        self._count()
        return super().pwrite(fd, data, position)

    def ftruncate(self, fd: int, length: int) -> None:
        self._count()
        super().ftruncate(fd, length)

    def fsync(self, fd: int) -> None:
        self._count()
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._count()
        super().fsync_dir(path)

    def replace(self, source: str, target: str) -> None:
        self._count()
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


def dirty_log(manager: LogManager) -> UnifiedLog:
    """Return a log with superseded values, due tombstones and a producer in several groups."""
    log = open_log(manager)
    for round_ in range(8):
        pairs = [(b"k%d" % (key + round_), b"%d" % round_) for key in range(5)]
        append_pairs(log, pairs)
        append_pairs(log, [(b"gone", b"1")], producer_id=9, base_sequence=round_)
    append_pairs(log, [(b"gone", None)])
    log.roll(NOW_MS)
    compact(manager, log)
    append_pairs(log, [(b"k1", b"new"), (b"k11", b"new")])
    log.roll(NOW_MS)
    append_pairs(log, [(b"k2", b"active")])
    return log


def values(log: UnifiedLog) -> dict[bytes | None, bytes]:
    """Return the last value of each key, without keys that end with a tombstone."""
    last = {key: value for _, key, value in pairs_of(log)}
    return {key: value for key, value in last.items() if value is not None}


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Return the directory of a stopped log with a second cleaning to do."""
    directory = tmp_path / "prepared"
    directory.mkdir()
    manager = open_manager(directory, CONFIG)
    dirty_log(manager)
    manager.close()
    return directory


def run_until_killed(directory: Path, files: DyingFiles, dies_at: int | None) -> bool:
    """Clean the log. Return False if the process was killed."""
    manager = open_manager(directory, CONFIG, files)
    log = open_log(manager)
    log.advance_high_watermark(log.log_end_offset)
    log.flush()
    manager.checkpoint()
    files.dies_at = dies_at
    try:
        compact(manager, log, now_ms=LATER_MS, roll=False)
        return True
    except Killed:
        return False
    finally:
        files.dies_at = None
        manager.close(clean=False)


def reopen(directory: Path) -> tuple[LogManager, UnifiedLog]:
    manager = open_manager(directory, CONFIG)
    log = open_log(manager)
    log.advance_high_watermark(log.log_end_offset)
    return manager, log


@pytest.mark.parametrize("seed", [None, 0, 1], ids=["killed", "power-cut-0", "power-cut-1"])
def test_a_crash_before_any_call_loses_nothing(prepared: Path, seed: int | None) -> None:
    """Without a seed the process is killed. With a seed the power is cut: unsynced data may be
    lost.
    """
    manager, log = reopen(prepared)
    before, written, end = values(log), set(pairs_of(log)), log.log_end_offset
    manager.close()
    finished = False
    dies_at = 0
    while not finished:
        directory = prepared.parent / f"{dies_at}"
        shutil.copytree(prepared, directory)
        files = DyingFiles()
        for path in directory.rglob("*"):
            if path.is_file():
                files.synced[str(path)] = path.read_bytes()
        finished = run_until_killed(directory, files, dies_at)
        if seed is not None:
            files.crash(directory, random.Random(1_000 * seed + dies_at))
        manager, log = reopen(directory)
        assert values(log) == before, f"killed at call {dies_at}"
        assert set(pairs_of(log)) <= written
        for segment, following in pairwise(log.segments):
            assert segment.next_offset() <= following.base_offset, "segments overlap"
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        assert log.producers.producers[9].last_sequence == 7
        left = {path.suffix for path in (directory / "topic-0").iterdir()}
        assert not left & {".cleaned", ".swap", ".deleted"}
        compact(manager, log, now_ms=LATER_MS, roll=False)
        assert values(log) == before
        manager.close()
        shutil.rmtree(directory)
        dies_at += 1
    assert dies_at > 40, "the cleaning has many calls to be killed at"


def test_an_old_segment_that_a_power_cut_restores_is_removed(prepared: Path) -> None:
    """The new name of the new segment is on the disk, but not the removal of the old names."""
    manager, log = reopen(prepared)
    before = {path: path.read_bytes() for path in (prepared / "topic-0").glob("*.log")}
    compact(manager, log, now_ms=LATER_MS, roll=False)
    compacted, bases = pairs_of(log), list(log.segments.bases)
    manager.checkpoint()
    manager.close(clean=False)
    back = [path for path in before if not path.exists()]
    assert back, "segments were joined"
    for path in back:
        path.write_bytes(before[path])
    manager, log = reopen(prepared)
    assert (log.segments.bases, pairs_of(log)) == (bases, compacted)
    assert not any(path.exists() for path in back)
    manager.close()


@pytest.mark.parametrize("synced", [False, True])
def test_names_may_be_lost_until_their_directory_is_synced(tmp_path: Path, synced: bool) -> None:
    outcomes = set()
    for seed in range(40):
        directory = tmp_path / f"{seed}"
        directory.mkdir()
        for name in "abc":
            (directory / name).write_bytes(name.encode())
        files = FaultyFiles(loses_names=True)
        files.replace(f"{directory}/a", f"{directory}/b")
        files.replace(f"{directory}/b", f"{directory}/d")
        files.unlink(f"{directory}/c")
        if synced:
            files.fsync_dir(str(directory))
        files.crash(directory, random.Random(seed))
        outcomes.add("".join(sorted(path.name for path in directory.iterdir())))
    assert outcomes == ({"d"} if synced else {"abc", "ab", "bc", "b", "cd", "d"})


def test_a_swap_that_was_being_prepared_is_undone(tmp_path: Path) -> None:
    names = [f"{0:020}{suffix}" for suffix in (".log", ".index", ".log.swap", ".index.cleaned")]
    for name in names:
        (tmp_path / name).write_bytes(b"" if name.endswith(".swap") else b"old")
    left = recover_swaps(RealFiles(), str(tmp_path), names)
    assert (tmp_path / f"{0:020}.log").read_bytes() == b"old"
    assert sorted(left) == sorted([f"{0:020}.log", f"{0:020}.index", f"{0:020}.index.cleaned"])


def test_a_swap_below_the_next_cleaned_segment_is_completed(tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.log.swap").write_bytes(b"")
    (tmp_path / f"{0:020}.log").write_bytes(b"old")
    (tmp_path / f"{9:020}.log.cleaned").write_bytes(b"")
    names = [path.name for path in tmp_path.iterdir()]
    recover_swaps(RealFiles(), str(tmp_path), names)
    assert (tmp_path / f"{0:020}.log").read_bytes() == b""


def test_a_full_disk_postpones_a_cleaning_and_leaves_the_log_unchanged(prepared: Path) -> None:
    files = DyingFiles()
    manager = open_manager(prepared, CONFIG, files)
    log = open_log(manager)
    log.advance_high_watermark(log.log_end_offset)
    before = pairs_of(log)
    files.space_left = 100
    with pytest.raises(OSError, match="no space"):
        compact(manager, log, now_ms=LATER_MS, roll=False)
    files.space_left = None
    assert pairs_of(log) == before
    compact(manager, log, now_ms=LATER_MS, roll=False)
    assert len(pairs_of(log)) < len(before)
    manager.close()
