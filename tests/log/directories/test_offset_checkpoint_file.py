"""One offset checkpoint, written by several threads on a disk that may be slow."""

from __future__ import annotations

import errno
import gc
import os
import threading
from pathlib import Path

import pytest

from odradek.environment.files import RealFiles
from odradek.ids import TopicPartition
from odradek.log.directories.offset_checkpoint_file import (
    CLOSED_SUFFIX,
    OWN_MARK,
    OffsetCheckpointFile,
)
from odradek.log.state import checkpoints
from odradek.log.state.checkpoints import CorruptCheckpoint, entry_name, read_offsets
from tests.helpers.faulty_files import FaultyFiles

TIMEOUT_S = 60
NAME = "replication-offset-checkpoint"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
N0, N1 = entry_name(T0), entry_name(T1)


class HeldFiles(RealFiles):
    """The next fsync waits, and may fail."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.error: OSError | None = None

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self.asked.set()
        assert self.may_sync.wait(TIMEOUT_S)
        if self.error is not None:
            raise self.error
        os.fsync(fd)


def opened(directory: Path, files: RealFiles | None = None) -> OffsetCheckpointFile:
    file = OffsetCheckpointFile(files or RealFiles(), str(directory), NAME)
    file.load(os.listdir(directory))  # noqa: PTH208
    return file


def content(directory: Path) -> dict[str, int]:
    found = read_offsets(RealFiles(), str(directory / NAME))
    return {entry_name(each): offset for each, offset in found.items()}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def in_thread(file: OffsetCheckpointFile, files: HeldFiles, offsets: dict) -> threading.Thread:  # type: ignore[type-arg]
    """Run a write that waits for the disk in a thread."""
    files.may_sync.clear()
    files.asked.clear()
    thread = threading.Thread(target=file.write, args=(lambda: offsets,))
    thread.start()
    assert files.asked.wait(TIMEOUT_S)
    return thread


def test_written_offsets_are_read_again(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write(lambda: {N0: 1, N1: 2})
    file.update(T0, 7)
    file.remove({T1})
    assert file.offsets == {N0: 7}
    assert file.removes(T1)
    file.write_removals()
    assert content(tmp_path) == file.offsets == {N0: 7}
    assert not file.removes(T1)
    assert opened(tmp_path).offsets == {N0: 7}
    assert names(tmp_path) == [NAME]


def test_the_garbage_collector_visits_no_offsets(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write(lambda: {N0: 1})
    file.update(T1, 2)
    file.remove({T0})
    assert file.offsets == {N1: 2}
    assert not gc.is_tracked(file.offsets)
    assert not gc.is_tracked(opened(tmp_path).offsets)


def test_a_removal_makes_no_system_call(tmp_path: Path) -> None:
    """A rename of a file that is not synced would lose the entries of all logs in a power cut."""
    files = FaultyFiles()
    file = OffsetCheckpointFile(files, str(tmp_path), NAME)
    file.write(lambda: {N0: 1, N1: 2})
    writes, fsyncs = files.writes, files.fsyncs
    file.remove({T1})
    assert (files.writes, files.fsyncs) == (writes, fsyncs)
    assert content(tmp_path) == {N0: 1, N1: 2}


def test_a_removal_copies_nothing_and_does_not_change_a_write_in_progress(tmp_path: Path) -> None:
    """Many logs are removed one after the other: a copy for each would be quadratic."""
    files = HeldFiles()
    file = opened(tmp_path, files)
    file.write(lambda: {N0: 1, N1: 2})
    offsets = file.offsets
    file.remove({T1})
    assert file.offsets is offsets
    collected = {N0: 1, N1: 3}
    thread = in_thread(file, files, collected)
    file.remove({T1})
    assert collected == {N0: 1, N1: 3}
    files.may_sync.set()
    thread.join()
    assert content(tmp_path) == {N0: 1, N1: 3}
    assert file.removes(T1)
    file.write_removals()
    assert content(tmp_path) == file.offsets == {N0: 1}


def test_the_loop_does_not_wait_for_a_write_that_waits_for_the_disk(tmp_path: Path) -> None:
    files = HeldFiles()
    file = opened(tmp_path, files)
    file.write(lambda: {N0: 1, N1: 1})
    thread = in_thread(file, files, {N0: 2, N1: 2})
    file.remove({T1})
    assert file.offsets == {N0: 1}, "no fsync has covered the write in progress"
    files.may_sync.set()
    thread.join(TIMEOUT_S)
    assert file.offsets == {N0: 2}
    assert file.removes(T1), "the write in progress began before the removal"
    file.write_removals()
    assert content(tmp_path) == file.offsets == {N0: 2}
    assert names(tmp_path) == [NAME]


def test_entry_of_a_log_that_is_deleted_in_the_meantime_is_not_written(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write(lambda: {N0: 1})
    file.update(T1, 2, lambda: True)
    assert content(tmp_path) == file.offsets == {N0: 1}


def test_a_closed_file_does_not_change(tmp_path: Path) -> None:
    files = HeldFiles()
    file = opened(tmp_path, files)
    file.write(lambda: {N0: 0})
    thread = in_thread(file, files, {N0: 1})
    file.close(lambda: {N0: 2})
    file.write(lambda: {N0: 3})
    file.update(T0, 4)
    file.remove({T0})
    file.write_removals()
    files.may_sync.set()
    thread.join(TIMEOUT_S)
    assert content(tmp_path) == {N0: 0}, "the last write has a name of its own until it is synced"
    assert names(tmp_path) == [NAME, NAME + CLOSED_SUFFIX]
    file.sync_closed()
    assert content(tmp_path) == {N0: 2}
    assert names(tmp_path) == [NAME]


def test_file_of_an_unsynced_stop_is_used_only_if_it_is_complete(tmp_path: Path) -> None:
    for use_closed in (True, False):
        file = opened(tmp_path)
        file.write(lambda: {N0: 1})
        file.close(lambda: {N0: 2})
        again = OffsetCheckpointFile(RealFiles(), str(tmp_path), NAME)
        again.load(names(tmp_path), use_closed=use_closed)
        assert again.offsets == content(tmp_path) == {N0: 2 if use_closed else 1}
        assert names(tmp_path) == [NAME]


def test_offsets_count_as_written_after_the_sync(tmp_path: Path) -> None:
    files = HeldFiles()
    file = opened(tmp_path, files)
    file.write(lambda: {N0: 1})
    thread = in_thread(file, files, {N0: 2})
    assert file.offsets == {N0: 1}
    files.may_sync.set()
    thread.join(TIMEOUT_S)
    assert file.offsets == {N0: 2}


def test_a_write_after_a_removal_is_synced_even_if_the_file_is_equal(tmp_path: Path) -> None:
    files = HeldFiles()
    file = opened(tmp_path, files)
    file.write(lambda: {N0: 1, N1: 1})
    file.remove({T1})
    files.asked.clear()
    file.write(lambda: {N0: 1})
    assert files.asked.is_set()


def test_a_write_that_ends_after_a_removal_does_not_restore_the_entry(tmp_path: Path) -> None:
    removals = [T1]

    class LateDirectory(RealFiles):
        def fsync_dir(self, path: str) -> None:
            super().fsync_dir(path)
            if removals and file.offsets:
                file.remove({removals.pop()})

    file = opened(tmp_path, LateDirectory())
    file.write(lambda: {N0: 1, N1: 1})
    file.write(lambda: {N0: 2, N1: 2})
    assert file.offsets == {N0: 2}
    file.write_removals()
    assert content(tmp_path) == file.offsets == {N0: 2}


def test_a_failed_write_leaves_only_the_old_content(tmp_path: Path) -> None:
    files = HeldFiles()
    file = opened(tmp_path, files)
    file.write(lambda: {N0: 1})
    files.error = OSError(errno.ENOSPC, "no space left")
    with pytest.raises(OSError, match="no space"):
        file.write(lambda: {N0: 2})
    assert (content(tmp_path), names(tmp_path)) == ({N0: 1}, [NAME])
    files.error = None
    file.write(lambda: {N0: 2})
    assert content(tmp_path) == {N0: 2}


def test_loading_removes_only_unfinished_files_of_a_crash(tmp_path: Path) -> None:
    opened(tmp_path).write(lambda: {N0: 1})
    for name in (f"{NAME}.7.tmp", f"{NAME}.x.tmp", f"other-{NAME}.7.tmp"):
        (tmp_path / name).touch()
    assert opened(tmp_path).offsets == {N0: 1}
    assert names(tmp_path) == sorted([NAME, f"{NAME}.x.tmp", f"other-{NAME}.7.tmp"])


def test_a_torn_file_has_no_entries(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("0\n2\nt 0 1\n")
    file = OffsetCheckpointFile(RealFiles(), str(tmp_path), NAME)
    with pytest.raises(CorruptCheckpoint):
        file.load([NAME])
    assert file.offsets == {}
    file.update(T0, 5)
    assert content(tmp_path) == {N0: 5}


def test_only_a_file_that_kafka_has_not_written_since_is_own(tmp_path: Path) -> None:
    points = tmp_path / checkpoints.RECOVERY_POINT_FILE

    def loaded() -> OffsetCheckpointFile:
        file = OffsetCheckpointFile(RealFiles(), str(tmp_path), points.name)
        file.load(names(tmp_path))
        return file

    file = loaded()
    assert not file.is_own
    file.write(dict)
    assert file.is_own
    assert loaded().is_own
    file.add(T0)
    assert loaded().is_own
    assert loaded().offsets == {N0: 0}
    points.write_text("0\n1\nt 0 0\n")
    file = loaded()
    assert not file.is_own
    assert file.offsets == {N0: 0}
    file.write(lambda: {N0: 0})
    assert loaded().is_own
    file.close()
    file.sync_closed()
    assert loaded().is_own


def test_removed_entry_of_zero_is_dropped_by_the_next_write_and_delays_no_new_log(
    tmp_path: Path,
) -> None:
    """A directory that is copied to this name may have gaps, which the entry would call losses."""
    file = OffsetCheckpointFile(FaultyFiles(), str(tmp_path), checkpoints.RECOVERY_POINT_FILE)
    file.write(lambda: {N0: 1, N1: 0})
    file.remove({T1})
    assert not file.removes(T1)
    file.write(lambda: {N0: 1})
    path = str(tmp_path / checkpoints.RECOVERY_POINT_FILE)
    assert checkpoints.read_offsets(FaultyFiles(), path) == {T0: 1, OWN_MARK: 0}
    number = file._last_write
    file.write(lambda: {N0: 1})
    assert file._last_write == number, "it is written once"
