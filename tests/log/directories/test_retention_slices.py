"""Retention in time slices: other work runs between the logs."""

from __future__ import annotations

import gc
import os
import time
import weakref
from itertools import pairwise
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.files import RealFiles
from odradek.ids import TopicPartition, Uuid
from odradek.log import old_segments
from odradek.log.directories.log_manager import LogManager
from odradek.log.old_segments import DELETED_SEGMENT_ELEMENTS, SEGMENTS_A_SLICE
from odradek.log.segments.log_segment import LogSegment
from odradek.log.truncation import LogTruncations
from odradek.log.unified_log import UnifiedLog
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS, run_to_completion
from tests.log.builders import NOW_MS, TOPIC_ID, append, open_manager, values_of


def test_retention_runs_in_time_slices(tmp_path: Path) -> None:
    """Segments of all partitions may expire at the same time."""
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    count = 5 * ELEMENTS_PER_SLICE // DELETED_SEGMENT_ELEMENTS
    logs = [manager.create(TopicPartition("t", each), TOPIC_ID) for each in range(count)]
    for each in range(ELEMENTS_PER_SLICE):
        manager.create(TopicPartition("empty", each), TOPIC_ID)
    for log in logs:
        append(log, [b"x"], timestamp_ms=1)
    seen = [0]
    work = manager.retain(NOW_MS)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(work)
            seen.append(sum(log.log_start_offset for log in logs))
    assert ended.value.value == count
    deleted = [after - before for before, after in pairwise(seen)]
    assert sum(deleted) == count
    assert max(deleted) * DELETED_SEGMENT_ELEMENTS <= ELEMENTS_PER_SLICE
    manager.close()


def test_slow_deletions_end_the_time_slice_before_their_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example on a file system that takes a millisecond to rename a file."""
    clock = ManualClock(NOW_MS)
    manager = open_manager(tmp_path, LogConfig(retention_ms=1), clock=clock)
    logs = [manager.create(TopicPartition("t", each), TOPIC_ID) for each in range(5)]
    for log in logs:
        append(log, [b"x"], timestamp_ms=1)
        log.roll(NOW_MS)
    discard = UnifiedLog.discard

    def slow(log: UnifiedLog, segment: LogSegment, *, expired: bool) -> None:
        clock.advance(2 * int(SLICE_MS))
        discard(log, segment, expired=expired)

    monkeypatch.setattr(UnifiedLog, "discard", slow)
    seen = [sum(log.log_start_offset for log in logs) for _ in manager.retain(NOW_MS)]
    assert seen == [1, 2, 3, 4]
    assert sum(log.log_start_offset for log in logs) == 5
    manager.close()


class CountedFiles(RealFiles):
    """Counts created and renamed files."""

    def __init__(self) -> None:
        self.created = self.renamed = 0

    def open(self, path: str, flags: int) -> int:
        self.created += bool(flags & os.O_CREAT) and not Path(path).exists()
        return super().open(path, flags)

    def replace(self, source: str, target: str) -> None:  # type: ignore[override]
        super().replace(source, target)
        self.renamed += 1


def test_retention_creates_few_files_in_a_time_slice(tmp_path: Path) -> None:
    """All segments have expired, so each log rolls. A new file may take a millisecond."""
    files = CountedFiles()
    manager = open_manager(tmp_path, LogConfig(retention_ms=1), files)
    for each in range(3):
        append(manager.create(TopicPartition("t", each), TOPIC_ID), [b"x"], timestamp_ms=1)
    manager.sync_new_logs()
    seen = [(files.created, files.renamed)]
    for _ in manager.retain(NOW_MS):
        seen.append((files.created, files.renamed))
    seen.append((files.created, files.renamed))
    slices = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(seen)]
    first_index, second_index, roll, deletion = (1, 0), (1, 0), (2, 0), (0, 3)
    assert slices == [first_index, second_index, roll, deletion] * 3
    manager.close()


def test_retention_of_a_log_with_old_appends_between_its_slices_ends(tmp_path: Path) -> None:
    """The new records have expired, too. The next pass deletes them from the new segment."""
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    log = manager.create(TopicPartition("t", 0), TOPIC_ID)
    append(log, [b"x"], timestamp_ms=1)
    work = manager.retain(NOW_MS)
    slices = 0
    for slices, _ in enumerate(work, 1):
        append(log, [b"%d" % slices], timestamp_ms=1)
    assert slices == 3
    assert (log.log_start_offset, len(log.segments)) == (3, 1)
    assert values_of(log) == [b"3"]
    manager.close()


def test_retention_keeps_a_segment_with_a_new_record_between_its_slices(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    log = manager.create(TopicPartition("t", 0), TOPIC_ID)
    append(log, [b"old"], timestamp_ms=NOW_MS - 2)
    work = manager.retain(NOW_MS)
    next(work)
    append(log, [b"new"], timestamp_ms=NOW_MS)
    assert run_to_completion(work) == 0
    assert (values_of(log), len(log.segments)) == ([b"old", b"new"], 1)
    manager.close()


@pytest.mark.parametrize("batches", [1, 4], ids=["small", "with reserved space"])
def test_retention_rolls_and_deletes_records_without_timestamps(
    tmp_path: Path, batches: int
) -> None:
    """The file has their age, and a roll changes it when it releases reserved space."""
    manager = open_manager(tmp_path, LogConfig(retention_ms=60_000))
    log = manager.create(TopicPartition("t", 0), TOPIC_ID)
    for _ in range(batches):
        append(log, [bytes(900_000)], timestamp_ms=-1)
    os.utime(log.segments.active.file.path, (1, 1))
    now_ms = int(time.time() * 1000)
    manager.load_for_retention(now_ms)
    assert run_to_completion(manager.retain(now_ms, wait=False)) == 1
    assert log.segments.bases == [batches]
    manager.close()


def filled(manager: LogManager, segments: int) -> UnifiedLog:
    """Return a log with that many segments, all of which have expired."""
    log = manager.create(TopicPartition("t", 0), TOPIC_ID)
    for _ in range(segments):
        append(log, [b"x"], timestamp_ms=1)
        log.roll(NOW_MS)
    return log


@pytest.mark.parametrize(
    "config",
    [LogConfig(retention_ms=1), LogConfig(retention_bytes=0), LogConfig(cleanup_delete=False)],
    ids=["time", "size", "log start"],
)
def test_one_log_with_many_expired_segments_takes_many_time_slices(
    tmp_path: Path, config: LogConfig
) -> None:
    manager = open_manager(tmp_path, config)
    count = 5 * SEGMENTS_A_SLICE + 1
    log = filled(manager, count)
    if not config.cleanup_delete:
        log.delete_records(log.log_end_offset)
    before = len(log.segments)
    left = []
    for _ in manager.retain(NOW_MS):
        left.append(len(log.segments))
    deleted = [a - b for a, b in pairwise([before, *left, len(log.segments)])]
    assert deleted == [SEGMENTS_A_SLICE] * 5 + [1]
    assert log.log_start_offset == log.log_end_offset == count
    manager.close()


@pytest.mark.parametrize("change", ["deletion", "truncation", "compaction", "loss"])
def test_retention_of_a_log_that_changes_between_its_slices_ends(
    tmp_path: Path, change: str
) -> None:
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    log = filled(manager, 2 * SEGMENTS_A_SLICE)
    work = manager.retain(NOW_MS)
    next(work)
    match change:
        case "deletion":
            manager.delete(log.topic_partition)
        case "truncation":
            log.prepare_truncation(log.log_end_offset - 1)
        case "compaction":
            manager.begin_cleaning(log.topic_partition)
        case "loss":
            manager.unassign([log.topic_partition])
    assert run_to_completion(work) == SEGMENTS_A_SLICE
    assert log.log_start_offset == SEGMENTS_A_SLICE
    assert not manager.log_dirs[0].offline
    manager.close(clean=False)


def test_retention_skips_logs_that_change_between_its_slices(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    in_a_slice = ELEMENTS_PER_SLICE // DELETED_SEGMENT_ELEMENTS
    keys = [TopicPartition("t", each) for each in range(in_a_slice + 5)]
    logs = [manager.create(each, TOPIC_ID) for each in keys]
    for log in logs:
        append(log, [b"x"], timestamp_ms=1)
        append(log, [b"y"], timestamp_ms=1)
    work = manager.retain(NOW_MS)
    next(work)
    deleted, truncated, cleaned, lost, other = logs[in_a_slice:]
    manager.delete(deleted.topic_partition)
    manager.create(deleted.topic_partition, Uuid(bytes(16)))
    LogTruncations().truncate_to(truncated, 1)
    manager.begin_cleaning(cleaned.topic_partition)
    manager.unassign([lost.topic_partition])
    assert run_to_completion(work) == in_a_slice + 1
    assert [log.log_start_offset for log in (truncated, cleaned, lost, other)] == [0, 0, 0, 2]
    assert not manager.log_dirs[0].offline
    manager.close(clean=False)


def test_assignments_are_looked_up_in_time_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = open_manager(tmp_path, LogConfig())
    for each in range(5 * ELEMENTS_PER_SLICE):
        manager.create(TopicPartition("t", each), TOPIC_ID)
    found: list[object] = []

    class Assigned(set[TopicPartition]):
        def __contains__(self, key: object) -> bool:
            found.append(key)
            return super().__contains__(key)

    monkeypatch.setattr(manager, "_assigned", Assigned(manager._assigned))
    next(manager.retain(NOW_MS))
    assert ELEMENTS_PER_SLICE <= len(set(found)) <= ELEMENTS_PER_SLICE + 1
    manager.close()


def test_deleted_logs_are_freed_when_the_pass_goes_on(tmp_path: Path) -> None:
    """Otherwise 10,000 of them are freed at its end, in one slice."""
    manager = open_manager(tmp_path, LogConfig())
    *deleted, last = (TopicPartition("t", each) for each in range(4))
    references = [weakref.ref(manager.create(each, TOPIC_ID)) for each in deleted]
    kept = manager.create(last, TOPIC_ID)
    passed = manager.assigned_logs()
    next(passed)
    for each in deleted:
        manager.delete(each)
    assert [next(passed) for _ in range(3)] == [None, None, kept]
    gc.collect()
    assert [each() for each in references] == [None] * 3
    manager.close()


def test_topic_that_is_created_while_a_thread_reads_for_retention_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = open_manager(tmp_path, LogConfig())

    class Assigned(set[TopicPartition]):
        """Creates another log at each lookup, as the event loop may."""

        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            manager.create(TopicPartition("new", len(self)), TOPIC_ID)
            return found

    monkeypatch.setattr(manager, "_assigned", Assigned())
    log = manager.create(TopicPartition("t", 0), TOPIC_ID)
    assert list(manager.assigned_logs()) == [log]
    manager.close()


def test_retention_counts_the_producers_that_may_expire(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    for number in range(2):
        log = manager.create(TopicPartition("t", number), TOPIC_ID)
        for producer in range(ELEMENTS_PER_SLICE):
            append(log, [b"x"], producer_id=producer, producer_epoch=0, base_sequence=0)
    assert len(list(manager.retain(NOW_MS))) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(old_segments, "PRODUCERS_EXPIRED_AN_ELEMENT", 1)
        assert len(list(manager.retain(NOW_MS))) == 1
    manager.close()
