"""A truncation or a roll that fails for lack of space or descriptors, and is tried again.

The tests compare with the log of a run without the fault, also after a clean stop and a start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.config.log_config import LogConfig
from odradek.errors import KafkaError
from odradek.log.directories.log_manager import LogManager
from odradek.log.state import checkpoints
from odradek.log.truncation import LogTruncations, truncate_to
from odradek.log.unified_log import UnifiedLog
from tests.helpers.faulty_files import Buffer, FaultyFiles
from tests.log.builders import (
    NOW_MS,
    TP,
    append,
    append_marker,
    append_transactional,
    open_log,
    open_manager,
    values_of,
)

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
STEPS_MAX = 200


class FailingFiles(FaultyFiles):
    """One operation fails: number `fail_at` of the operations that can fail with `code`."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code
        self.fail_at: int | None = None

    def _operation(self, path: str, *, opens: bool, writes: bool) -> None:
        if self.fail_at is None or not (opens if self.code == errno.EMFILE else writes):
            return
        if self.fail_at == 0:
            self.fail_at = None
            raise OSError(self.code, os.strerror(self.code), path)
        self.fail_at -= 1

    def open(self, path: str, flags: int) -> int:
        self._operation(path, opens=True, writes=bool(flags & os.O_CREAT))
        return super().open(path, flags)

    def listdir(self, path: str) -> list[str]:
        self._operation(path, opens=True, writes=False)
        return super().listdir(path)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self._operation(self._paths[fd], opens=False, writes=True)
        return super().pwrite(fd, data, position)

    def replace(self, source: str, target: str) -> None:
        self._operation(target, opens=False, writes=True)
        super().replace(source, target)


class LogState(NamedTuple):
    """Everything that a reader or a producer can see of a log, and the data files."""

    offsets: tuple[int, int, int]
    values: list[bytes]
    bases: list[int]
    aborted: list[tuple[int, int]]
    epochs: list[tuple[int, int]]
    producers: dict[int, int]
    timestamps: list[tuple[int, int]]
    names: list[str]


def state_of(log: UnifiedLog) -> LogState:
    end = log.log_end_offset
    return LogState(
        offsets=(log.log_start_offset, end, log.high_watermark),
        values=values_of(log),
        bases=log.segments.bases,
        aborted=log.segments.aborted_transactions(0, end),
        epochs=log.epochs.entries(),
        producers={pid: each.last_sequence for pid, each in log.producers.producers.items()},
        timestamps=[(each.max_timestamp, each.max_timestamp_offset) for each in log.segments],
        names=sorted(each.name for each in Path(log.directory).glob("*.log")),
    )


def fill(log: UnifiedLog) -> None:
    """Fill several segments, of three epochs, with committed and aborted transactions."""
    sequence = 0
    for at in range(16):
        if at % 4 == 3:
            append_marker(log, 7, committed=at % 8 == 7, leader_epoch=at // 6)
            continue
        append_transactional(log, [b"%02d " % at * 25], 7, sequence, leader_epoch=at // 6)
        sequence += 1


def reopened(manager: LogManager, root: Path) -> tuple[LogManager, UnifiedLog]:
    manager.close()
    assert (root / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
    manager = open_manager(root, CONFIG)
    return manager, open_log(manager)


def run(
    root: Path, code: int, fail_at: int | None, change: Callable[[UnifiedLog, FailingFiles], None]
) -> tuple[list[LogState], bool]:
    """Return the states of the log around a clean stop, and whether the fault has occurred."""
    files = FailingFiles(code)
    # With one open file, each step opens its files.
    manager = open_manager(root, CONFIG, files, open_files_max=1)
    log = open_log(manager)
    fill(log)
    manager.checkpoint()
    files.fail_at = fail_at
    change(log, files)
    has_failed = fail_at is not None and files.fail_at is None
    files.fail_at = None
    assert not log.log_dir.offline
    for at in range(4):
        append(log, [b"of the new leader %d" % at * 8], 9)
    states = [state_of(log)]
    for _ in range(2):
        manager, log = reopened(manager, root)
        states.append(state_of(log))
    manager.close()
    return states, has_failed


def compare_at_each_step(
    tmp_path: Path, code: int, change: Callable[[UnifiedLog, FailingFiles], None], least: int
) -> None:
    """Let each operation of `change` fail, at least `least` of them."""
    expected, _ = run(tmp_path / "without", code, None, change)
    for at in range(STEPS_MAX):
        found, has_failed = run(tmp_path / str(at), code, at, change)
        assert found == expected, f"operation {at}"
        if not has_failed:
            assert at >= least
            return
    pytest.fail("the change has more operations")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("high_watermark", [1, 16])
@pytest.mark.parametrize("offset", [2, 5, 6])
def test_truncation_that_is_repeated_after_an_error_at_any_step_leaves_the_same_log(
    tmp_path: Path, offset: int, high_watermark: int, code: int
) -> None:
    def truncate(log: UnifiedLog, files: FailingFiles) -> None:
        log.high_watermark = high_watermark
        truncations = LogTruncations()
        truncations.truncate_to(log, offset)
        has_failed = bool(truncations.execute())
        assert log.is_truncating == has_failed
        if has_failed:
            assert truncations.execute() == {}

    compare_at_each_step(tmp_path, code, truncate, 8)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_full_truncation_that_is_repeated_after_an_error_at_any_step_leaves_the_same_log(
    tmp_path: Path, code: int
) -> None:
    def truncate(log: UnifiedLog, files: FailingFiles) -> None:
        truncations = LogTruncations()
        truncations.truncate_fully_and_start_at(log, 50)
        if truncations.execute():
            assert truncations.execute() == {}

    compare_at_each_step(tmp_path, code, truncate, 8)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_append_that_is_repeated_after_an_error_at_any_step_of_its_roll_leaves_the_same_log(
    tmp_path: Path, code: int
) -> None:
    def roll(log: UnifiedLog, files: FailingFiles) -> None:
        for at in range(3):
            batch = b"large %d" % at * 40
            try:
                append(log, [batch], 5)
            except KafkaError:
                append(log, [batch], 5)

    compare_at_each_step(tmp_path, code, roll, 8)


@pytest.mark.parametrize("is_follower", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_log_that_is_truncated_after_a_roll_that_failed_at_any_step_has_no_gap(
    tmp_path: Path, code: int, is_follower: bool
) -> None:
    """An empty file at the old end would become the active segment of the next clean start."""
    manager = open_manager(tmp_path / "leader", CONFIG)
    leader = open_log(manager)
    fill(leader)
    append(leader, [b"large" * 60], 5)
    last = leader.segments.active
    batch = last.read_batch(0, last.size)
    manager.close()

    def roll_and_truncate(log: UnifiedLog, files: FailingFiles) -> None:
        log.high_watermark = 2
        with contextlib.suppress(KafkaError):
            if is_follower:
                log.append_as_follower(memoryview(batch), 5, now_ms=NOW_MS)
            else:
                append(log, [b"large" * 60], 5)
        unfailed, files.fail_at = files.fail_at, None
        truncate_to(log, 5)
        files.fail_at = unfailed

    compare_at_each_step(tmp_path, code, roll_and_truncate, 6)


def test_empty_file_that_a_failed_roll_could_not_remove_is_removed_by_a_truncation(
    tmp_path: Path,
) -> None:
    """It may also be the file of an earlier process that was killed in a roll."""
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    fill(log)
    stray = Path(log.directory) / f"{16:020d}.log"
    stray.touch()
    truncate_to(log, 5)
    assert not stray.exists()
    before = log.segments.bases
    manager, log = reopened(manager, tmp_path)
    assert (log.log_end_offset, log.segments.bases) == (5, before)
    manager.close()


def test_removal_without_a_free_descriptor_is_repeated_and_keeps_the_directory_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    append(open_log(manager), [b"a"])
    manager.delete(TP)
    manager.checkpoint()

    def fail(path: str) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patched:
        patched.setattr(files, "remove_tree", fail)
        manager.maintain(NOW_MS)
    assert not manager.log_dirs[0].offline
    assert list(tmp_path.glob("*-delete"))
    manager.maintain(NOW_MS)
    assert not list(tmp_path.glob("*-delete"))
    manager.close()


@pytest.mark.parametrize("change", ["checkpoint", "truncation"])
def test_fsync_of_a_new_file_that_reports_a_full_disk_is_repeated(
    tmp_path: Path, change: str
) -> None:
    """Nothing of value was in its pages. The fsync of a log fails its directory."""
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    log = open_log(manager)
    fill(log)
    manager.checkpoint()
    truncations = LogTruncations()
    if change == "truncation":
        truncations.truncate_to(log, 5)
        log.log_dir.write_checkpoints()
        assert log.high_watermark == 5
    else:
        append(log, [b"more"])
        log.flush()
    files.fail_fsync = OSError(errno.ENOSPC, "no space left on device")
    if change == "truncation":
        assert log in truncations.execute()
    else:
        manager.checkpoint()
    assert files.fail_fsync is None
    assert not log.log_dir.offline
    if change == "truncation":
        assert not truncations.execute()
        assert log.log_end_offset == 5
    else:
        manager.maintain(NOW_MS)
        assert not log.log_dir.checkpoint_due
    append(log, [b"again"], 3)
    files.fail_fsync = OSError(errno.ENOSPC, "no space left on device")
    with pytest.raises(KafkaError):
        log.flush()
    assert log.log_dir.offline
    manager.close(clean=False)


class FewDescriptors(FaultyFiles):
    """A process with `limit` descriptors for files."""

    limit = sys.maxsize

    def open(self, path: str, flags: int) -> int:
        if len(self._paths) >= self.limit:
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, flags)


def refused(change: Callable[[], object]) -> bool:
    """Return whether the change raises KAFKA_STORAGE_ERROR."""
    try:
        change()
    except KafkaError:
        return True
    return False


@pytest.mark.parametrize("change", ["append", "truncation", "checkpoint", "flush"])
def test_later_attempt_without_free_descriptors_has_those_of_idle_segments(
    tmp_path: Path, change: str
) -> None:
    files = FewDescriptors()
    manager = open_manager(tmp_path, CONFIG, files, open_files_max=100)
    log = open_log(manager)
    fill(log)
    log.roll(NOW_MS)
    append(log, [b"first"], 8)
    values = values_of(log)
    assert len(manager.pool) > 4
    truncations = LogTruncations()
    if change == "truncation":
        truncations.truncate_to(log, 5)
    files.limit = len(files._paths)
    changes: dict[str, Callable[[], bool]] = {
        "append": lambda: refused(partial(append, log, [b"x"], 9)),
        "flush": lambda: refused(log.flush),
        "truncation": lambda: bool(truncations.execute()),
        "checkpoint": lambda: manager.checkpoint() or manager.log_dirs[0].checkpoint_due,
    }
    attempts = 1
    while changes[change]():
        assert not log.log_dir.offline
        attempts += 1
        assert attempts < 50
    assert attempts > 1
    files.limit = sys.maxsize
    assert values_of(log)[:5] == values[:5]
    manager.close()
