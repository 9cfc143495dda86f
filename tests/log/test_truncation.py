"""Truncations of several logs: content, readers, syncs, and crashes at each step."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.log_dir import LogDir
from odradek.log.residency import NotResident
from odradek.log.segments import log_segments
from odradek.log.segments.log_segment import LogSegment
from odradek.log.state import checkpoints
from odradek.log.truncation import LOGS_SYNCED_ALONE_MAX, LogTruncations, truncate_to
from odradek.log.unified_log import UnifiedLog
from odradek.records.record import iter_batches, iter_records
from tests.helpers.crashing_files import Crashed, CrashingFiles
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import (
    NOW_MS,
    TOPIC_ID,
    append,
    append_marker,
    append_transactional,
    batch_of,
    open_log,
    open_manager,
    read_all,
    retain,
    values_of,
)

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, file_delete_delay_ms=0)
BATCHES = 12


def value_of(offset: int, epoch: int) -> bytes:
    return b"%03d of %d " % (offset, epoch) * 8


def fill(log: UnifiedLog, count: int = BATCHES, epochs: int = 3) -> list[bytes]:
    """Append one batch for each offset. The epoch grows three times."""
    values = []
    for at in range(count):
        epoch = at * epochs // count
        values.append(value_of(at, epoch))
        options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": at}
        append(log, [values[-1]], epoch, **options)
    return values


def bytes_of(log: UnifiedLog) -> bytes:
    return b"".join(Path(segment.file.path).read_bytes() for segment in log.segments)


def opened(root: Path, files: FaultyFiles | None = None) -> LogManager:
    return open_manager(root, CONFIG, files)


@pytest.mark.parametrize("committed", [0, 12])
@pytest.mark.parametrize("offset", [1, 2, 3, 7, 11])
def test_log_ends_at_the_offset_and_continues_there(
    tmp_path: Path, offset: int, committed: int
) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    values = fill(log)
    log.high_watermark = committed
    truncate_to(log, offset)
    for _ in range(2):
        assert (log.log_end_offset, log.high_watermark) == (offset, min(committed, offset))
        assert values_of(log) == values[:offset]
        assert log.latest_epoch == (offset - 1) * 3 // BATCHES
        producer = log.producers.producers[1]
        assert producer.last_sequence == offset - 1
        manager.close(clean=False)
        manager = opened(tmp_path)
        log = open_log(manager)
    append(log, [b"next"], 9)
    assert values_of(log) == [*values[:offset], b"next"]
    manager.close()


@pytest.mark.parametrize("stop", ["kill", "clean"])
@pytest.mark.parametrize("offset", [0, 4])
def test_offset_below_the_log_leaves_an_empty_log_that_starts_there(
    tmp_path: Path, offset: int, stop: str
) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    log.delete_records(8)
    retain(manager, NOW_MS)
    assert log.segments.bases[0] > 4
    truncate_to(log, offset)
    for _ in range(2):
        offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark)
        assert offsets == (offset, offset, offset)
        assert (values_of(log), log.epochs.entries()) == ([], [])
        manager.close(clean=stop == "clean")
        manager = opened(tmp_path)
        log = open_log(manager)
    append(log, [b"next"], 9)
    assert values_of(log) == [b"next"]
    manager.close()


def test_offsets_are_those_of_the_truncated_log_before_the_truncation_is_carried_out(
    tmp_path: Path,
) -> None:
    """The checkpoints are written before the batches are removed."""
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    log.delete_records(5)
    truncations = LogTruncations()
    truncations.truncate_to(log, 3)
    assert (log.high_watermark, log.log_start_offset) == (3, 3)
    assert truncations.execute() == {}
    assert (log.high_watermark, log.log_start_offset, log.log_end_offset) == (3, 3, 3)
    manager.close()


def test_offset_inside_a_batch_removes_the_batch_and_lowers_all_offsets_to_its_begin(
    tmp_path: Path,
) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    for _ in range(4):
        append(log, [b"of a batch with three records"] * 3)
    log.delete_records(5)
    truncate_to(log, 5)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 3)
    manager.close()


def test_log_that_was_closed_after_the_preparation_is_not_changed(tmp_path: Path) -> None:
    """The partition was deleted in the meantime. The other logs are truncated."""
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    closed, log = (manager.create(TopicPartition("t", at), TOPIC_ID) for at in range(2))
    truncations = LogTruncations()
    for each in (closed, log):
        fill(each)
        truncations.truncate_to(each, 3)
    closed.close(clean=False)
    before = {path: path.read_bytes() for path in Path(closed.directory).iterdir()}
    assert truncations.execute() == {}
    assert {path: path.read_bytes() for path in Path(closed.directory).iterdir()} == before
    assert (log.log_end_offset, log.log_dir.offline) == (3, False)
    manager.close()


def test_read_at_an_offset_after_a_truncation_finds_the_new_batch(tmp_path: Path) -> None:
    """The log remembers the position of its end for the next read of a consumer."""
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    fill(log, 4)
    end = log.log_end_offset
    first = log.read_resident(0, 10**6, end, min_one_message=True).region
    assert first is not None
    first.close()
    truncate_to(log, 2)
    for at in range(2, 6):
        append(log, [b"longer than the batches before %d" % at * 9], 9)
    found = log.read_resident(end, 10**6, log.log_end_offset, min_one_message=True).region
    assert found is not None
    records = [record for each in iter_batches(found.read()) for record in iter_records(each)]
    assert [record.offset for record in records] == [4, 5]
    found.close()
    manager.close()


def test_region_below_the_high_watermark_keeps_its_bytes_after_an_unclean_election(
    tmp_path: Path,
) -> None:
    """Sendfile hands over pages of the file, so the file of the region must not change."""
    manager = opened(tmp_path)
    log = open_log(manager)
    values = fill(log, 4)
    info = log.read(0, 10**6, log.high_watermark, min_one_message=True)
    later = log.read(3, 10**6, log.high_watermark, min_one_message=True)
    truncate_to(log, 1)
    for _ in range(4):
        append(log, [b"of the new leader" * 5], 9)
    assert info.region is not None and later.region is not None
    for found, expected in ((info.region, values[:2]), (later.region, values[3:])):
        data = found.read()
        assert [r.value for b in iter_batches(data) for r in iter_records(b)] == expected
        found.close()
    assert not log.confirm(0, info)
    assert values_of(log) == [values[0], *[b"of the new leader" * 5] * 4]
    manager.close()


def test_aborted_transactions_are_truncated_with_a_copied_segment(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    for producer_id in (1, 2):
        append_transactional(log, [b"x"], producer_id, 0)
        append_marker(log, producer_id, committed=False)
    truncate_to(log, 3)
    assert log.segments.aborted_transactions(0, 10) == [(1, 0)]
    assert log.producers.ongoing == {2: 2}
    manager.close(clean=False)
    log = open_log(open_manager(tmp_path, LogConfig()))
    assert log.segments.aborted_transactions(0, 10) == [(1, 0)]
    append_marker(log, 2, committed=False)
    assert log.segments.aborted_transactions(0, 10) == [(1, 0), (2, 2)]


@pytest.mark.parametrize("start", [0, 4, 5, 12, 500])
@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_log_that_is_truncated_fully_starts_and_ends_at_the_offset(
    tmp_path: Path, start: int, stop: str
) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    log.delete_records(5)
    manager.maintain(NOW_MS)
    truncations = LogTruncations()
    truncations.truncate_fully_and_start_at(log, start)
    assert truncations.execute() == {}
    for _ in range(2):
        offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark)
        assert offsets == (start, start, start)
        assert (log.epochs.entries(), len(log.producers)) == ([], 0)
        assert log.recovery_point <= start
        manager.close(clean=stop == "clean")
        manager = opened(tmp_path)
        log = open_log(manager)
    assert append(log, [b"first"], 9).first_offset == start
    assert (values_of(log), log.epochs.entries()) == ([b"first"], [(9, start)])
    manager.close()


def test_empty_log_without_files_remembers_its_start(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    truncations = LogTruncations()
    truncations.truncate_fully_and_start_at(log, 77)
    assert truncations.execute() == {}
    manager.close(clean=False)
    log = open_log(opened(tmp_path))
    assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (77, 77, TOPIC_ID)


def test_offset_at_the_end_removes_epochs_without_a_record(tmp_path: Path) -> None:
    """This broker led epoch 7 without a record (``UnifiedLog.truncateTo``)."""
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log, 4, epochs=1)
    log.begin_leader_epoch(7)
    truncations = LogTruncations()
    assert not truncations.truncate_to(log, 4)
    assert (len(truncations), log.is_truncating) == (0, False)
    assert log.epochs.entries() == [(0, 0)]
    append(log, [b"of epoch 0"], 0)
    manager.close(clean=False)
    assert open_log(opened(tmp_path)).epochs.entries() == [(0, 0)]


@pytest.mark.parametrize("count", [1, LOGS_SYNCED_ALONE_MAX + 1, 40])
def test_logs_share_one_sync_and_one_write_of_the_checkpoints(tmp_path: Path, count: int) -> None:
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    logs = [manager.create(TopicPartition("t", at), TOPIC_ID) for at in range(count)]
    for log in logs:
        fill(log, 6)
        log.flush()
        log.high_watermark = 0
    manager.checkpoint()
    truncations = LogTruncations()
    for log in logs:
        truncations.truncate_to(log, 2)
        assert (log.is_truncating, log.log_end_offset) == (True, 6)
    replaced, fsyncs = files.replaced["recovery-point-offset-checkpoint"], files.fsyncs
    assert truncations.execute() == {}
    assert not any(log.is_truncating for log in logs)
    assert {log.log_end_offset for log in logs} == {2}
    assert files.replaced["recovery-point-offset-checkpoint"] == replaced + 1
    if count > LOGS_SYNCED_ALONE_MAX:
        assert files.syncs == 1
        assert files.fsyncs - fsyncs <= 4, "only the checkpoints are synced one by one"
    manager.close()


def test_flush_in_progress_does_not_raise_the_recovery_point(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    log.high_watermark = 0
    truncations = LogTruncations()
    truncations.truncate_to(log, 2)
    log.flush()
    assert log.recovery_point == 2
    assert log.flusher.checkpoint_offset <= 2
    assert truncations.execute() == {}
    log.flush()
    append(log, [b"x"], 9)
    log.flush()
    assert log.recovery_point == 3
    manager.close()


def test_truncating_log_takes_no_append_and_is_not_retained(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(segment_bytes=400, retention_ms=1))
    log = open_log(manager)
    fill(log)
    truncations = LogTruncations()
    truncations.truncate_to(log, 9)
    assert retain(manager, NOW_MS + 10**9) == 0
    with pytest.raises(AssertionError):
        log.append_as_follower(memoryview(b""), 9, now_ms=NOW_MS)
    assert truncations.execute() == {}
    assert retain(manager, NOW_MS + 10**9) > 0
    manager.close()


def test_full_disk_leaves_the_log_truncating_until_it_is_tried_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    log = open_log(manager)
    values = fill(log)
    truncations = LogTruncations()
    truncations.truncate_to(log, 7)
    files.space_left = 0
    failed = truncations.execute()
    assert [error.code for error in failed.values()] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert log.is_truncating and not log.log_dir.offline
    files.space_left = None
    assert truncations.execute() == {}
    assert values_of(log) == values[:7]
    manager.close()


def test_full_disk_in_a_truncation_is_reported(tmp_path: Path) -> None:
    """The broker may have been elected. It hands over the leadership that it cannot take over."""
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    log = open_log(manager)
    fill(log)
    full = []
    manager.on_dir_full(full.append)
    truncations = LogTruncations()
    truncations.truncate_to(log, 7)
    files.space_left = 0
    for _ in range(2):
        truncations.execute()
    assert full == [log.log_dir]
    manager.close(clean=False)


def test_segments_that_retention_deleted_stay_while_no_truncation_can_write_the_checkpoints(
    tmp_path: Path,
) -> None:
    """A power cut would lose the log start otherwise, and the log would start at offset 0 again."""
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    log, other = open_log(manager), manager.create(TopicPartition("other", 0), TOPIC_ID)
    fill(log)
    fill(other)
    log.flush()
    manager.checkpoint()
    log.delete_records(8)
    assert retain(manager, NOW_MS)
    truncations = LogTruncations()
    truncations.truncate_to(other, 7)
    files.space_left = 0
    assert truncations.execute()
    assert log.log_dir.checkpoint_due
    manager.maintain(NOW_MS)
    assert list(Path(log.directory).glob("*.expired.deleted"))
    files.space_left = None
    assert truncations.execute() == {}
    assert not log.log_dir.checkpoint_due
    manager.maintain(NOW_MS)
    assert not list(Path(log.directory).glob("*.expired.deleted"))
    manager.close()


def test_checkpoint_in_progress_covers_no_later_request(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log_dir = open_log(manager).log_dir
    first = log_dir.request_checkpoint()
    second = log_dir.request_checkpoint()
    log_dir.checkpoint_written(first)
    assert log_dir.checkpoint_due
    log_dir.checkpoint_written(second)
    log_dir.checkpoint_written(first)
    assert not log_dir.checkpoint_due
    manager.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_failed_sync_takes_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A lack of space in a sync is no exception, because the sync cannot be repeated."""
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    log = open_log(manager)
    fill(log)
    log.high_watermark = 7  # the segment is cut in place
    cut = log.cut

    def fail_after_the_checkpoints() -> None:
        files.fail_fsync = OSError(code, os.strerror(code))
        cut()

    monkeypatch.setattr(log, "cut", fail_after_the_checkpoints)
    with pytest.raises(KafkaError):
        truncate_to(log, 7)
    assert log.log_dir.offline
    manager.close(clean=False)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("is_closed", [False, True])
def test_failed_sync_after_the_cut_fails_the_truncation_unless_the_log_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool, code: int
) -> None:
    """A partition that is deleted during the truncation does not take the directory offline."""
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    log = open_log(manager)
    fill(log)
    cut = UnifiedLog.cut

    def cut_with_later_errors(log: UnifiedLog) -> None:
        cut(log)
        files.fail_fsync = OSError(code, os.strerror(code))
        if is_closed:
            log.close(clean=False)

    monkeypatch.setattr(UnifiedLog, "cut", cut_with_later_errors)
    truncations = LogTruncations()
    truncations.truncate_to(log, 7)
    failed = truncations.execute()
    assert (log in failed, log.log_dir.offline) == (not is_closed, not is_closed)
    assert log.is_truncating == (not is_closed)
    manager.close(clean=False)


@pytest.mark.parametrize("readers", [False, True])
@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.parametrize("moment", ["before the cut", "in the cut", "after the cut"])
def test_log_that_is_deleted_during_its_truncation_does_not_take_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, fully: bool, readers: bool
) -> None:
    """The owner deletes it on another thread. The other logs are truncated."""
    manager = opened(tmp_path)
    deleted, log = (manager.create(TopicPartition("t", at), TOPIC_ID) for at in range(2))
    truncations = LogTruncations()
    for each in (deleted, log):
        values = fill(each)
        each.high_watermark = BATCHES if readers else 0
        if fully:
            truncations.truncate_fully_and_start_at(each, 7)
        else:
            truncations.truncate_to(each, 7)
    cut_segments = UnifiedLog._cut_segments

    def cut_and_delete(log: UnifiedLog, cut: Any) -> int:
        is_deleted = log is deleted and moment != "after the cut"
        if is_deleted and moment == "before the cut":
            manager.delete(log.topic_partition)
        end = cut_segments(log, cut)
        if is_deleted and moment == "in the cut":
            manager.delete(log.topic_partition)
            manager.create(log.topic_partition, Uuid(bytes(15) + b"2"))
            Path(log.directory).mkdir()
        return end

    cut = UnifiedLog.cut

    def cut_then_delete(log: UnifiedLog) -> None:
        cut(log)
        if log is deleted and moment == "after the cut":
            manager.delete(log.topic_partition)

    monkeypatch.setattr(UnifiedLog, "_cut_segments", cut_and_delete)
    monkeypatch.setattr(UnifiedLog, "cut", cut_then_delete)
    assert truncations.execute() == {}
    assert not log.log_dir.offline
    assert values_of(log) == ([] if fully else values[:7])
    if moment == "in the cut":
        assert list(Path(deleted.directory).iterdir()) == [], "it belongs to the new topic"
    manager.close()


class StoppedInARename(FaultyFiles):
    """Files that call `stop` after the first rename of a removed segment."""

    stop: Callable[[], object] | None = None

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        if self.stop is not None and target.endswith(".deleted"):
            stop, self.stop = self.stop, None
            stop()


@pytest.mark.parametrize("is_follower", [False, True])
def test_new_topic_of_the_same_name_has_no_files_before_the_truncation_of_the_old_one_ends(
    tmp_path: Path, is_follower: bool
) -> None:
    """The truncation renames files by path, and the segments of both logs have the same names.

    An append is refused until then, because the owner of the logs must not wait.
    """
    files = StoppedInARename()
    manager = opened(tmp_path, files)
    log = open_log(manager)
    fill(log)
    log.high_watermark = 2
    truncations = LogTruncations()
    truncations.truncate_to(log, 3)
    in_rename, refused = threading.Event(), threading.Event()

    def stop() -> None:
        in_rename.set()
        refused.wait()

    files.stop = stop
    thread = threading.Thread(target=truncations.execute)
    thread.start()
    try:
        in_rename.wait()
        manager.delete(log.topic_partition)
        new = manager.create(log.topic_partition, Uuid(bytes(15) + b"2"))
        with pytest.raises(KafkaError) as caught:
            if is_follower:
                batch = batch_of([b"x"])
                batch[12:16] = bytes(4)  # the leader epoch 0
                new.append_as_follower(memoryview(batch), 0, now_ms=NOW_MS)
            else:
                append(new, [b"x"])
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not new.on_disk and not new.log_end_offset and not new.log_dir.offline
        assert not Path(new.directory).exists()
    finally:
        refused.set()
        thread.join()
    values = fill(new)
    assert values_of(new) == values
    assert not list(Path(new.directory).glob("*.deleted"))
    manager.close()
    manager = opened(tmp_path)
    assert values_of(manager.create(log.topic_partition, Uuid(bytes(15) + b"2"))) == values
    manager.close()


def test_truncation_that_has_waited_for_a_flush_does_not_cut_a_closed_log(tmp_path: Path) -> None:
    """Another topic may have its name, and the segments of that topic the names of its files."""
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    manager.delete(log.topic_partition)
    with pytest.raises(KafkaError):
        log.flusher.truncate(lambda: pytest.fail("cut"))
    manager.close()


@pytest.mark.parametrize("fully", [False, True])
def test_read_at_each_moment_of_a_truncation_finds_the_segments_before_or_after_a_change(
    tmp_path: Path, fully: bool
) -> None:
    """The event loop reads while another thread removes segments: here at each opcode."""
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    log.high_watermark = 2
    truncations = LogTruncations()
    if fully:
        truncations.truncate_fully_and_start_at(log, 50)
    else:
        truncations.truncate_to(log, 3)
    reads = 0

    def read_at_each_opcode(frame: FrameType, event: str, _: object) -> Any:
        nonlocal reads
        if frame.f_code.co_filename != log_segments.__file__:
            return None
        frame.f_trace_opcodes = True
        sys.settrace(None)
        for offset in (0, 2, 5, 11):
            with contextlib.suppress(NotResident, KafkaError):
                log.read_resident(offset, 10**6, BATCHES, min_one_message=True, with_aborted=True)
            assert log.segments.from_offset(offset)
            reads += 1
        sys.settrace(read_at_each_opcode)
        return read_at_each_opcode

    before = sys.gettrace()
    sys.settrace(read_at_each_opcode)
    try:
        failed = truncations.execute()
    finally:
        sys.settrace(before)
    assert failed == {}
    assert reads > 20
    manager.close()


def test_truncation_in_an_offline_directory_fails(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    size = len(bytes_of(log))
    truncations = LogTruncations()
    truncations.truncate_to(log, 7)
    log.log_dir.fail(OSError(errno.EIO, "input/output error"), "another log")
    assert [error.code for error in truncations.execute().values()] == [
        ErrorCode.KAFKA_STORAGE_ERROR
    ]
    assert (log.is_truncating, log.log_end_offset, len(bytes_of(log))) == (True, BATCHES, size)
    manager.close(clean=False)


class StoppedWhileTruncating(FaultyFiles):
    """Files that call `stop` when a truncated log lists its producer files."""

    def __init__(self) -> None:
        super().__init__()
        self.stop: Callable[[], None] | None = None
        self.listings = 0

    def listdir(self, path: str) -> list[str]:
        if self.stop is not None and path.endswith("topic-0"):
            self.listings += 1  # the first one looks for an unfinished swap, before the cut
            if self.listings == 2:
                stop, self.stop = self.stop, None
                stop()
        return super().listdir(path)


@pytest.mark.parametrize("within_ms", [math.inf, 0])
def test_stop_during_a_truncation_leaves_the_log_as_a_crash_does(
    tmp_path: Path, within_ms: float
) -> None:
    """The segments are cut, and the producers still have the removed batches."""
    files = StoppedWhileTruncating()
    manager = opened(tmp_path, files)
    log = open_log(manager)
    values = fill(log, 5)
    log.high_watermark = 2
    truncations = LogTruncations()
    truncations.truncate_to(log, 2)
    files.stop = partial(manager.close, within_ms=within_ms)
    truncations.execute()
    assert files.stop is None and log.closed
    assert not (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
    assert not (tmp_path / checkpoints.CLOSED_UNSYNCED_FILE).exists()
    manager = opened(tmp_path)
    log = open_log(manager)
    assert values_of(log) == values[:2]
    retried = append(log, [b"retried"], 9, producer_id=1, producer_epoch=0, base_sequence=2)
    assert (retried.duplicate, retried.first_offset) == (False, 2)
    manager.close()


def test_log_whose_truncation_waits_for_space_is_not_closed_cleanly(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = opened(tmp_path, files)
    log, other = open_log(manager), manager.create(TopicPartition("other", 0), TOPIC_ID)
    values = fill(log)
    fill(other)
    truncations = LogTruncations()
    truncations.truncate_to(log, 7)
    files.space_left = 0
    assert truncations.execute()
    files.space_left = None
    manager.close()
    assert not (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
    manager = opened(tmp_path)
    assert values_of(open_log(manager)) == values
    assert values_of(manager.create(other.topic_partition, TOPIC_ID)) == values
    manager.close()


def crashed_in(
    manager: LogManager, files: CrashingFiles, offset: int, fully: bool, at: int
) -> bool:
    """Run a truncation that dies at its change `at`. Return False if it ended before."""
    log = open_log(manager)
    truncations = LogTruncations()
    if fully:
        truncations.truncate_fully_and_start_at(log, offset)
    else:
        truncations.truncate_to(log, offset)
    files.crash_at = at
    try:
        truncations.execute()
    except Crashed:
        return True
    finally:
        files.crash_at = None
    return False


@settings(max_examples=120, deadline=None)
@given(
    at=st.integers(0, 45),
    seed=st.none() | st.integers(0, 2**16),
    offset=st.integers(0, 11),
    committed=st.booleans(),
    flushed=st.booleans(),
    fully=st.booleans(),
)
def test_crash_at_any_step_leaves_a_state_that_the_next_truncation_repairs(
    tmp_path_factory: pytest.TempPathFactory,
    at: int,
    seed: int | None,
    offset: int,
    committed: bool,
    flushed: bool,
    fully: bool,
) -> None:
    """A SIGKILL (no seed) or a power cut."""
    root = tmp_path_factory.mktemp("truncation")
    files = CrashingFiles()
    manager = opened(root, files)
    log = open_log(manager)
    values = fill(log)
    if flushed:
        log.flush()
        manager.checkpoint()
    if not committed:
        log.high_watermark = 0
    has_crashed = crashed_in(manager, files, offset, fully, at)
    manager.close(clean=False)
    if seed is not None:
        files.crash(root, random.Random(seed))
    manager = opened(root, files)
    log = open_log(manager)
    first, end = log.log_start_offset, log.log_end_offset
    found = [(record.offset, record.value) for record in read_all(log)]
    assert found == [(each, values[each]) for each in range(first, end)], "not the old batches"
    if not has_crashed:
        assert end <= offset, "the truncation is not on the disk"
    if not has_crashed and (flushed or seed is None):
        assert end == offset
    elif flushed and not fully:
        assert end >= offset, "a batch that stays was lost"
    if fully:
        truncations = LogTruncations()
        truncations.truncate_fully_and_start_at(log, offset)
        assert truncations.execute() == {}
    elif end > offset:
        truncate_to(log, offset)
    end = log.log_end_offset
    append(log, [b"of the new leader"], 9)
    log.flush()
    expected = [value for _, value in found if fully is False][: max(end - first, 0)]
    manager.close(clean=False)
    files.crash(root, random.Random(seed))
    log = open_log(opened(root, files))
    assert values_of(log) == [*expected, b"of the new leader"]
    assert log.epochs.entries()[-1] == (9, end)


def test_truncation_of_a_log_that_is_deleted_during_it_leaves_no_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new segment is not in the list yet when the log is closed."""
    manager = opened(tmp_path)
    log = open_log(manager)
    fill(log)
    truncations = LogTruncations()
    truncations.truncate_fully_and_start_at(log, 50)
    create_files = LogSegment.create_files

    def create_and_delete(segment: LogSegment) -> None:
        create_files(segment)
        manager.delete(log.topic_partition)

    monkeypatch.setattr(LogSegment, "create_files", create_and_delete)
    truncations.execute()
    assert log.closed
    assert len(manager.pool) == 0
    assert all(segment.deleted for segment in log.segments)
    manager.close()


def test_truncation_of_a_log_without_files_that_is_deleted_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = opened(tmp_path)
    log = open_log(manager)
    truncations = LogTruncations()
    truncations.truncate_fully_and_start_at(log, 5)
    prepare_directory = LogDir.prepare_directory

    def delete_before(log_dir: LogDir, topic_partition: TopicPartition) -> None:
        prepare_directory(log_dir, topic_partition)
        manager.delete(topic_partition)

    monkeypatch.setattr(LogDir, "prepare_directory", delete_before)
    truncations.execute()
    assert log.closed
    assert not Path(log.directory).exists()
    manager.close()
