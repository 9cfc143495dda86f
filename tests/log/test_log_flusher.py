"""The coverage of a flush, and the recovery point that the checkpoint may have."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.errors import KafkaError
from odradek.ids import TopicPartition, Uuid
from odradek.log.state import checkpoints
from odradek.log.unified_log import UnifiedLog
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import (
    NOW_MS,
    TOPIC_ID,
    TP,
    append,
    batch_of,
    offset_for_timestamp,
    open_log,
    open_manager,
    retain,
    values_of,
)

SYNCED_AT_ONCE = LogConfig(flush_messages=1)


def roll_without_fsync(files: FaultyFiles, log: UnifiedLog) -> None:
    """Roll the log and append to it. Fail if that makes an fsync."""
    files.fail_fsync = OSError("an fsync on the owner's thread")
    log.roll(NOW_MS)
    append(log, [b"2"])
    assert files.fail_fsync is not None
    files.fail_fsync = None


def test_a_roll_waits_for_no_fsync(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, SYNCED_AT_ONCE, files)
    log = open_log(manager)
    append(log, [b"1"])
    log.flush()
    manager.maintain(NOW_MS)
    assert log.recovery_point == log.log_end_offset
    roll_without_fsync(files, log)
    manager.close()


def test_the_checkpoint_stays_before_a_rolled_segment_until_its_indexes_are_synced(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, SYNCED_AT_ONCE, files)
    log = open_log(manager)
    append(log, [b"1"])
    log.flush()
    assert (log.recovery_point, log.flusher.checkpoint_offset) == (1, 0), "inside of the active one"
    log.roll(NOW_MS)
    assert (log.recovery_point, log.flusher.checkpoint_offset) == (1, 0), "not synced"
    index = log.segments[0].path(".timeindex")
    assert index not in files._synced
    manager.maintain(NOW_MS)
    assert files._synced[index]
    assert (log.recovery_point, log.flusher.checkpoint_offset) == (1, 1)
    append(log, [b"2"])
    log.flush()
    manager.close()
    text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert f"{TP.topic} {TP.partition} 2" in text, "all of it is on the disk"


def test_a_flush_up_to_an_older_roll_leaves_the_newer_one_to_the_next(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(), FaultyFiles())
    log = open_log(manager)
    for value in (b"1", b"2", b"3"):
        append(log, [value])
        log.roll(NOW_MS)
    log.flush_to(1)
    assert (log.recovery_point, log.flusher.checkpoint_offset) == (1, 1)
    log.flush_to(3)
    assert (log.recovery_point, log.flusher.checkpoint_offset) == (3, 3)
    manager.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_after_an_unsynced_roll_loses_no_index(tmp_path: Path, seed: int) -> None:
    """All batches are on the disk, and the checkpoint was written, when the segment is rolled."""
    config = LogConfig(flush_messages=1, index_interval_bytes=0)
    files = FaultyFiles(loses_names=True)
    manager = open_manager(tmp_path, config, files)
    log = open_log(manager)
    for number in range(20):
        append(log, [b"%d" % number], timestamp_ms=NOW_MS + number)
    log.flush()
    manager.checkpoint()
    log.roll(NOW_MS)
    append(log, [b"20"], timestamp_ms=NOW_MS)
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    log = open_log(manager := open_manager(tmp_path, config, files))
    assert values_of(log)[:20] == [b"%d" % number for number in range(20)]
    assert log.segments[0].largest_timestamp() == NOW_MS + 19
    found = offset_for_timestamp(log, NOW_MS + 7)
    assert found is not None
    assert found.offset == 7
    manager.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_does_not_lose_the_first_file_of_a_log_alone(tmp_path: Path, seed: int) -> None:
    """Nothing was flushed. A log without its first records would hide them on this replica."""
    files = FaultyFiles(loses_names=True)
    log = open_log(manager := open_manager(tmp_path, LogConfig(), files))
    for number in range(3):
        append(log, [b"%d" % number])
        log.roll(NOW_MS)
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    log = open_log(manager := open_manager(tmp_path, LogConfig(), files))
    assert log.log_start_offset == 0
    assert values_of(log) == [b"0", b"1", b"2"][: log.log_end_offset]
    manager.close()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("maintained", [False, True])
def test_a_power_cut_after_retention_does_not_lose_the_first_file_of_the_rest_alone(
    tmp_path: Path, seed: int, restarts: bool, maintained: bool
) -> None:
    """Otherwise the log starts above records that retention has kept.

    A leader with such a log start would remove these records from the other replicas.
    """
    files = FaultyFiles(loses_names=True)
    log = open_log(manager := open_manager(tmp_path, LogConfig(), files))
    for number in range(5):
        append(log, [b"%d" % number])
        log.roll(NOW_MS)
        if restarts and not number:
            manager.maintain(NOW_MS)
    if restarts:
        manager.close(clean=False)  # a kill: it is not known which names are on the disk
        log = open_log(manager := open_manager(tmp_path, LogConfig(), files))
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records(2)
    if maintained:
        manager.maintain(NOW_MS)
        files.fail_fsync = OSError("an fsync on the owner's thread")
    assert retain(manager, NOW_MS) == 2
    assert bool(files.fail_fsync) == maintained
    files.fail_fsync = None
    if seed % 2:
        manager.checkpoint()
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    log = open_log(manager := open_manager(tmp_path, LogConfig(), files))
    assert log.log_start_offset <= 2
    all_values = [b"0", b"1", b"2", b"3", b"4"]
    assert values_of(log) == all_values[log.log_start_offset : log.log_end_offset]
    manager.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_leaves_no_hole_in_a_compacted_log(tmp_path: Path, seed: int) -> None:
    """Compaction leaves gaps only below the recovery point."""
    files, config = FaultyFiles(loses_names=True), LogConfig(cleanup_compact=True)
    log = open_log(manager := open_manager(tmp_path, config, files))
    for number in range(6):
        append(log, [b"%d" % number])
        log.roll(NOW_MS)
        if number < 2:
            manager.maintain(NOW_MS)
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    log = open_log(manager := open_manager(tmp_path, config, files))
    assert log.log_start_offset == 0
    assert log.log_end_offset >= 2
    assert values_of(log) == [b"%d" % number for number in range(log.log_end_offset)]
    manager.close()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("first", ["append", "maintenance", "append and maintenance"])
def test_a_power_cut_before_the_first_recovery_point_leaves_no_hole_in_a_compacted_log(
    tmp_path: Path, first: str, seed: int
) -> None:
    """The log has an entry of 0 in the checkpoint before it gets a second segment."""
    files, config = FaultyFiles(loses_names=True), LogConfig(cleanup_compact=True)
    manager = open_manager(tmp_path, config, files)
    other = manager.create(TopicPartition("other", 0), Uuid(bytes(range(1, 17))))
    append(other, [b"0"])
    other.roll(NOW_MS)
    append(other, [b"1"])
    log = open_log(manager)
    if "append" in first:
        append(log, [b"0"])
    if "maintenance" in first:
        manager.maintain(NOW_MS)
    for number in range(log.log_end_offset, 6):
        append(log, [b"%d" % number])
        log.roll(NOW_MS)
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    log = open_log(manager := open_manager(tmp_path, config, files))
    assert values_of(log) == [b"%d" % number for number in range(log.log_end_offset)]
    manager.close()


def compacted_copy(root: Path, *, of_whole_directory: bool) -> None:
    """Copy the log ``[0, 4, 6]`` without the records 2 and 3 below `root`, without checkpoints."""
    config = LogConfig(cleanup_compact=True)
    log = open_log(manager := open_manager(root / "origin", config))
    for number in range(0, 8, 2):
        append(log, [b"%d" % number, b"%d" % (number + 1)])
        log.roll(NOW_MS)
    assert log.segments.bases == [0, 2, 4, 6, 8]
    manager.close(clean=False)
    if not of_whole_directory:
        manager = open_manager(root / "copy", config)
        append(manager.create(TopicPartition("other", 0), Uuid(bytes(range(1, 17)))), [b"x"])
        open_log(manager)  # without files
        manager.checkpoint()
        manager.close(clean=False)
    shutil.copytree(root / "origin" / str(TP), root / "copy" / str(TP))
    for path in (root / "copy" / str(TP)).glob(f"{2:020}.*"):
        path.unlink()


def work_and_kill(root: Path, work: str) -> None:
    """Start three times, do some work and end as a kill does. Each start finds `compacted_copy`."""
    config = LogConfig(cleanup_compact=True)
    for partition in range(3):
        log = open_log(manager := open_manager(root, config))
        assert log.segments.bases == [0, 4, 6, 8]
        assert values_of(log) == [b"0", b"1", b"4", b"5", b"6", b"7"]
        if work == "checkpoint":
            manager.checkpoint()
        elif work == "maintenance":
            manager.maintain(NOW_MS)
            assert manager.flushed_offset(log) == 8
        elif work == "new log":
            added = manager.create(TopicPartition("added", partition), Uuid(bytes(range(2, 18))))
            append(added, [b"0"])
            added.roll(NOW_MS)
        manager.close(clean=False)


@pytest.mark.parametrize("of_whole_directory", [True, False])
@pytest.mark.parametrize("work", ["none", "checkpoint", "new log", "maintenance"])
def test_a_copied_directory_keeps_its_compacted_segments_after_kills(
    tmp_path: Path, work: str, *, of_whole_directory: bool
) -> None:
    """A checkpoint must not declare the gap lost data before a flush has reached its end."""
    compacted_copy(tmp_path, of_whole_directory=of_whole_directory)
    work_and_kill(tmp_path / "copy", work)


@pytest.mark.parametrize("recovery_point", [0, 2])
@pytest.mark.parametrize("work", ["none", "checkpoint", "maintenance"])
def test_a_directory_of_kafka_keeps_its_compacted_segments_after_kills(
    tmp_path: Path, work: str, recovery_point: int
) -> None:
    """Kafka leaves gaps above the recovery point of its checkpoint."""
    compacted_copy(tmp_path, of_whole_directory=True)
    points = tmp_path / "copy" / "recovery-point-offset-checkpoint"
    points.write_text(f"0\n1\n{TP.topic} {TP.partition} {recovery_point}\n")
    work_and_kill(tmp_path / "copy", work)


def test_a_start_after_a_crash_keeps_a_batch_that_a_leader_sent_from_far_away(
    tmp_path: Path,
) -> None:
    """The follower begins a segment above its log end, which looks like a lost segment."""
    config = LogConfig(cleanup_compact=True)
    log = open_log(manager := open_manager(tmp_path, config, FaultyFiles()))
    append(log, [b"0"])
    log.roll(NOW_MS)
    append(log, [b"1"])
    manager.maintain(NOW_MS)
    batch = batch_of([b"2"])
    batch[:8] = (2**33).to_bytes(8, "big")
    batch[12:16] = bytes(4)  # the leader epoch
    log.append_as_follower(memoryview(batch), 0, now_ms=NOW_MS)
    assert log.segments.bases == [0, 1, 2**33]
    manager.close(clean=False)
    log = open_log(manager := open_manager(tmp_path, config, FaultyFiles()))
    assert log.log_end_offset == 2**33 + 1
    manager.close()


class RecordedNames(FaultyFiles):
    """Files that record which names of directories are on the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_names: set[str] = set()

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self.synced_names |= {str(each) for each in Path(path).iterdir() if each.is_dir()}


def test_a_flush_covers_the_name_of_the_directory_of_the_log(tmp_path: Path) -> None:
    """A power cut must not remove a new partition as a whole."""
    files = RecordedNames()
    manager = open_manager(tmp_path, SYNCED_AT_ONCE, files)
    for number in range(3):
        log = manager.create(TopicPartition("new", number), TOPIC_ID)
        append(log, [b"acknowledged after this flush"])
        log.flush()
        assert log.directory in files.synced_names
    # After a kill the names are in the page cache, and it is unknown which ones were synced.
    manager.close(clean=False)
    files.synced_names.clear()
    manager = open_manager(tmp_path, SYNCED_AT_ONCE, files)
    log = manager.create(TopicPartition("new", 0), TOPIC_ID)
    append(log, [b"more"])
    log.flush()
    assert log.directory in files.synced_names
    manager.close()


@pytest.mark.parametrize("work", ["maintain", "sync_new_logs", "none"])
def test_names_of_a_new_log_are_synced_once_before_its_first_roll(
    tmp_path: Path, work: str
) -> None:
    """A thread does it, so that a roll rarely has to."""
    synced: list[str] = []

    class Files(FaultyFiles):
        def fsync_dir(self, path: str) -> None:
            super().fsync_dir(path)
            synced.append(path)

    manager = open_manager(tmp_path, LogConfig(), Files())
    log = open_log(manager)
    append(log, [b"1"])
    if work == "maintain":
        manager.maintain(NOW_MS)
    elif work == "sync_new_logs":
        manager.sync_new_logs()
    counts = []
    for _ in range(3):
        synced.clear()
        log.roll(NOW_MS)
        append(log, [b"2"])
        counts.append(synced.count(log.directory))
    assert counts == [1 if work == "none" else 0, 0, 0]
    log.delete_records(3)
    manager.maintain(NOW_MS)
    retain(manager, NOW_MS)
    assert len(log.segments) == 1
    synced.clear()
    log.roll(NOW_MS)
    assert synced.count(log.directory) == 0, "the maintenance has synced the new head"
    manager.close()


def test_first_roll_of_a_new_log_makes_no_fsync_after_the_sync_of_new_logs(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    append(log, [b"1"])
    manager.sync_new_logs()
    roll_without_fsync(files, log)
    manager.close()


def test_sync_of_new_logs_before_the_first_file_exists_does_not_count(tmp_path: Path) -> None:
    """A directory that was synced before the file was created does not have the file's name."""
    synced: list[str] = []

    class Files(FaultyFiles):
        def fsync_dir(self, path: str) -> None:
            super().fsync_dir(path)
            synced.append(path)

        def open(self, path: str, flags: int) -> int:
            if path.endswith("0.log") and flags & os.O_CREAT:
                manager.sync_new_logs()
            return super().open(path, flags)

    manager = open_manager(tmp_path, LogConfig(), Files())
    logs = [manager.create(TopicPartition("new", number), TOPIC_ID) for number in range(2)]
    for log in logs:
        append(log, [b"1"])
    assert synced.count(logs[0].directory) == 1, "when the second log was created"
    assert synced.count(logs[1].directory) == 0
    logs[1].roll(NOW_MS)
    assert synced.count(logs[1].directory) == 1
    manager.sync_new_logs()
    manager.close()


def test_sync_of_new_logs_skips_a_deleted_log(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(), FaultyFiles())
    logs = [manager.create(TopicPartition("new", number), TOPIC_ID) for number in range(2)]
    for log in logs:
        append(log, [b"1"])
    manager.delete(logs[0].topic_partition)
    manager.sync_new_logs()
    assert not logs[1].log_dir.offline
    manager.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_failed_sync_of_the_names_takes_the_directory_offline(tmp_path: Path, code: int) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    append(log, [b"1"])
    files.fail_fsync = OSError(code, "the fsync has failed")
    with pytest.raises(KafkaError):
        log.roll(NOW_MS)
    assert log.log_dir.offline
    manager.close(clean=False)


class NoDescriptor(FaultyFiles):
    """Has no free descriptor for the next file whose path has the suffix `suffix`."""

    suffix = ""

    def open(self, path: str, flags: int) -> int:
        if self.suffix and path.endswith(self.suffix):
            self.suffix = ""
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().open(path, flags)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_maintenance", [False, True])
def test_flush_without_a_free_descriptor_is_repeated_and_keeps_the_directory_online(
    tmp_path: Path, suffix: str, seed: int, is_maintenance: bool
) -> None:
    files = NoDescriptor(loses_names=True)
    manager = open_manager(tmp_path, LogConfig(segment_bytes=400), files)
    log = open_log(manager)
    values = [b"%d" % at * 90 for at in range(9)]
    for at, value in enumerate(values):
        append(log, [value], at // 3)
    files.suffix = suffix
    if is_maintenance:
        manager.maintain(NOW_MS)
    else:
        with pytest.raises(KafkaError):
            log.flush()
    assert not files.suffix
    assert not log.log_dir.offline
    assert not log.recovery_point
    log.flush()
    assert log.recovery_point == 9
    entries = log.epochs.entries()
    manager.checkpoint()
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    manager = open_manager(tmp_path, LogConfig(segment_bytes=400), files)
    log = open_log(manager)
    assert values_of(log) == values
    assert log.epochs.entries() == entries
    manager.close()


@pytest.mark.parametrize("suffix", [".snapshot", ".index", ".timeindex", ".log"])
@pytest.mark.parametrize("has_time", [False, True])
def test_log_that_is_closed_without_a_free_descriptor_is_recovered_at_the_next_start(
    tmp_path: Path, suffix: str, has_time: bool
) -> None:
    """The directory is not marked as closed."""
    files = NoDescriptor()
    manager = open_manager(tmp_path, LogConfig(segment_bytes=400), files, open_files_max=1)
    log = open_log(manager)
    values = [b"%d" % at * 90 for at in range(9)]
    for at, value in enumerate(values):
        append(log, [value], producer_id=1, producer_epoch=0, base_sequence=at)
    files.suffix = suffix
    manager.close(within_ms=60_000 if has_time else 0)
    failed = not files.suffix
    assert failed or suffix == ".log"
    assert not log.log_dir.offline
    if failed and suffix != ".log":  # the pool of these files tries again at once
        assert not (tmp_path / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
        assert not (tmp_path / checkpoints.CLOSED_UNSYNCED_FILE).exists()
    manager = open_manager(tmp_path, LogConfig(segment_bytes=400))
    log = open_log(manager)
    assert values_of(log) == values
    assert log.producers.producers[1].last_sequence == 8
    manager.close()


def test_flush_that_fails_is_due_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a lack of descriptors would delay it by another `flush.ms`."""
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    append(log, [b"1"])
    assert not log.flusher.flush_if_due(NOW_MS, 5_000)

    def fail(_: int) -> None:
        raise log.log_dir.io_failed(OSError(errno.EMFILE, "too many open files"), "flushing")

    with monkeypatch.context() as patched:
        patched.setattr(log.flusher, "flush_to", fail)
        with pytest.raises(KafkaError):
            log.flusher.flush_if_due(NOW_MS + 5_000, 5_000)
    log.flusher.flush_if_due(NOW_MS + 6_000, 5_000)
    assert log.recovery_point == 1
    manager.close()


def test_log_with_one_segment_keeps_its_checkpoint_entry_after_its_first_roll(
    tmp_path: Path,
) -> None:
    """It was loaded without an entry. A start with two segments must know of a gap."""
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    append(log, [b"1"])
    log.flusher.hide_recovery_point()
    manager.checkpoint()
    path = str(tmp_path / checkpoints.RECOVERY_POINT_FILE)
    assert TP not in checkpoints.read_offsets(FaultyFiles(), path)
    log.roll(NOW_MS)
    for _ in range(2):
        assert TP in checkpoints.read_offsets(FaultyFiles(), path)
        manager.checkpoint()
    manager.close()
