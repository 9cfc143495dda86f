"""The logs of a broker: reopened, locked, deleted, checkpointed, taken offline."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.files import BOOT_ID_FILE, RealFiles, machine_boot_id
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, TopicPartition, Uuid, uuid_to_string
from odradek.log.directories.closing import CLOSING_THREADS
from odradek.log.directories.directory_names import FILE_NAME_BYTES_MAX
from odradek.log.directories.log_manager import (
    LogDirectoryError,
    LogManager,
    parse_directory_name,
    renamed_directory,
)
from odradek.log.directories.offset_checkpoint_file import CLOSED_SUFFIX, OWN_MARK
from odradek.log.log_dir import LogDir
from odradek.log.state import checkpoints
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.programs import run_program
from tests.log.builders import (
    NOW_MS,
    TOPIC_ID,
    TP,
    append,
    offset_for_timestamp,
    open_log,
    open_manager,
    retain,
    values_of,
)

CONFIG = LogConfig(segment_bytes=2_000, file_delete_delay_ms=1_000)
FILES = RealFiles()


def test_clean_stop_and_start_keeps_all_logs(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for at in range(50):
        append(log, [b"%d" % at * 30], epoch=at // 20)
    log.delete_records(7)
    manager.close()
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text())["version"] == 0
    manager = open_manager(tmp_path, CONFIG)
    found = manager.get(TP)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset, found.high_watermark) == (7, 50, 50)
    assert (found.topic_id, found.latest_epoch, found.recovery_point) == (TOPIC_ID, 2, 50)
    assert values_of(found)[0] == b"7" * 30
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    manager.close()


LOGS = 140
TIMEOUT_S = 60


def fill(manager: LogManager) -> None:
    """Append to logs of three sizes without a flush."""
    for at in range(LOGS):
        log = manager.create(TopicPartition("many", at), TOPIC_ID, CONFIG)
        append(log, [b"acknowledged"], producer_id=1, producer_epoch=0, base_sequence=0)
        for number in range(at % 3 * 20):
            append(log, [b"%0100d" % number])


def stopped_without_time(root: Path, fsync_ms: int = 3) -> set[TopicPartition]:
    """Return a directory with more logs than could be synced, and the synced ones."""
    clock = ManualClock(NOW_MS)

    class SlowFiles(RealFiles):
        def fsync(self, _fd: int) -> None:  # type: ignore[override]
            clock.advance(fsync_ms)

    manager = open_manager(root, CONFIG, SlowFiles(), clock, boot_id="this boot")
    fill(manager)
    manager.close(within_ms=1_000)
    assert not (root / ".kafka_cleanshutdown").exists()
    path = root / (checkpoints.RECOVERY_POINT_FILE + CLOSED_SUFFIX)
    return {tp for tp, point in checkpoints.read_offsets(FILES, str(path)).items() if point}


def test_nothing_is_synced_after_the_deadline(tmp_path: Path) -> None:
    synced = stopped_without_time(tmp_path)
    # A log without indexes takes an fsync of its own and three of its directory and small files.
    assert 0 < len(synced) < 1_000 / 3 / 4 + CLOSING_THREADS


def assert_all_there(manager: LogManager) -> None:
    assert len(manager.all_logs()) == LOGS
    for log in manager.all_logs():
        more = [b"%0100d" % number for number in range(log.topic_partition.partition % 3 * 20)]
        assert values_of(log) == [b"acknowledged", *more]
        assert offset_for_timestamp(log, NOW_MS) is not None
        assert len(log.producers.producers[1].batches) == 1


def test_stop_without_time_to_sync_is_clean_until_the_machine_boots(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    synced = stopped_without_time(tmp_path)
    caplog.set_level(logging.INFO)
    manager = open_manager(tmp_path, CONFIG, boot_id="this boot")
    assert "was not closed" not in caplog.text
    assert_all_there(manager)
    known = {log.topic_partition for log in manager.all_logs() if log.recovery_point}
    assert known == synced, "what was not synced is not said to be"
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    points = checkpoints.read_offsets(FILES, str(tmp_path / checkpoints.RECOVERY_POINT_FILE))
    assert points.pop(OWN_MARK) == 0
    assert 0 not in points.values()


@pytest.mark.parametrize(
    "why", ["booted", "nothing tells", "killed since", "another broker", "torn", "no time"]
)
def test_stop_without_time_to_sync_is_recovered_after_another_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    stopped_without_time(tmp_path, 10_000 if why == "no time" else 3)
    left = re.search(r"no time to close (\d+) logs", caplog.text)
    assert (left is not None) == (why == "no time")
    assert left is None or int(left[1]) >= LOGS - CLOSING_THREADS
    boot_id = {"booted": "another boot", "nothing tells": ""}.get(why, "this boot")
    if why == "killed since":
        open_manager(tmp_path, CONFIG, boot_id=boot_id).close(clean=False)
    elif why == "another broker":
        (tmp_path / checkpoints.RECOVERY_POINT_FILE).write_text("0\n0\n")
    elif why == "torn":
        (tmp_path / checkpoints.CLOSED_UNSYNCED_FILE).write_text('{"version":0,"boo')
    caplog.set_level(logging.INFO)
    manager = open_manager(tmp_path, CONFIG, boot_id=boot_id)
    assert "was not closed" in caplog.text
    assert_all_there(manager)
    assert not (tmp_path / checkpoints.CLOSED_UNSYNCED_FILE).exists()
    manager.close(clean=False)


class HangingFiles(RealFiles):
    """From `hang` on every fsync waits for `resume`. The first one uses up all the time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._may_sync = threading.Event()
        self._may_sync.set()
        self._hanging = threading.Semaphore(0)

    def hang(self, takes_ms: int = 0) -> None:
        self._takes_ms = takes_ms
        self._may_sync.clear()

    def resume(self) -> None:
        self._may_sync.set()

    def wait_for_hanging(self) -> None:
        assert self._hanging.acquire(timeout=TIMEOUT_S)

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        if not self._may_sync.is_set():
            self._clock.advance(self._takes_ms)
            self._takes_ms = 0
            self._hanging.release()
            assert self._may_sync.wait(TIMEOUT_S)
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        self.fsync(fd)
        os.close(fd)


def contents(root: Path) -> dict[str, bytes]:
    """Return the content of all files except files of unfinished writes."""
    paths = (each for each in root.rglob("*") if each.is_file() and each.suffix != ".tmp")
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.parametrize("elsewhere", ["nothing", "a flush", "a checkpoint"])
def test_stop_while_every_fsync_hangs_is_clean_until_the_machine_boots(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, elsewhere: str
) -> None:
    """Threads that still wait change no file when they continue."""
    clock = ManualClock(NOW_MS)
    files = HangingFiles(clock)
    manager = open_manager(tmp_path, CONFIG, files, clock, boot_id="this boot")
    fill(manager)
    before = set(threading.enumerate())
    files.hang()
    work = {"a flush": manager.all_logs()[7].flush, "a checkpoint": manager.checkpoint}
    if elsewhere in work:
        threading.Thread(target=work[elsewhere], daemon=True).start()
        files.wait_for_hanging()
    caplog.set_level(logging.INFO)
    files.hang(takes_ms=200)
    manager.close(within_ms=200)
    assert f"no time to sync {LOGS} logs" in caplog.text
    stopped = contents(tmp_path)
    files.resume()
    for thread in set(threading.enumerate()) - before:
        thread.join(TIMEOUT_S)
    assert contents(tmp_path) == stopped
    manager = open_manager(tmp_path, CONFIG, boot_id="this boot")
    assert "was not closed" not in caplog.text
    assert_all_there(manager)
    assert not any(log.recovery_point for log in manager.all_logs())
    manager.close()


def test_stop_whose_last_syncs_hang_is_clean_until_the_machine_boots(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All logs are synced, but not the checkpoints, and the process ends."""
    files = HangingFiles(ManualClock(NOW_MS))
    manager = open_manager(tmp_path, CONFIG, files, boot_id="this boot")
    append(open_log(manager), [b"acknowledged"])
    manager.all_logs()[0].close()
    files.hang()
    closing = threading.Thread(target=manager.close, kwargs={"unlock": False}, daemon=True)
    closing.start()
    files.wait_for_hanging()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    copy = tmp_path.with_name("copy")
    shutil.copytree(tmp_path, copy, copy_function=shutil.copy2)
    caplog.set_level(logging.INFO)
    again = open_manager(copy, CONFIG, boot_id="this boot")
    assert "was not closed" not in caplog.text
    assert values_of(again.all_logs()[0]) == [b"acknowledged"]
    again.close()
    files.resume()
    closing.join(TIMEOUT_S)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / checkpoints.CLOSED_UNSYNCED_FILE).exists()
    with pytest.raises(LogDirectoryError, match="in use"):
        open_manager(tmp_path, CONFIG)
    manager.unlock()
    open_manager(tmp_path, CONFIG).close()


def test_boot_id_is_known_if_the_system_has_one() -> None:
    assert machine_boot_id() == machine_boot_id()
    assert bool(machine_boot_id()) == Path(BOOT_ID_FILE).exists()


def test_files_have_kafkas_names_and_contents(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append(log, [b"a"], producer_id=1, producer_epoch=0, base_sequence=0)
    manager.close()
    names = {path.name for path in (tmp_path / "topic-0").iterdir()}
    assert names == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "00000000000000000001.odradek-window",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    recovery_points = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert recovery_points == "0\n2\nodradek: 0 0\ntopic 0 1\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\ntopic 0 1\n"
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    metadata = (tmp_path / "topic-0" / "partition.metadata").read_text()
    assert metadata == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    properties = checkpoints.read_properties(FILES, str(tmp_path / "meta.properties"))
    assert properties is not None
    assert (properties["version"], properties["cluster.id"], properties["node.id"]) == (
        "1",
        "cluster",
        "1",
    )


def test_directory_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    with pytest.raises(LogDirectoryError, match="in use"):
        open_manager(tmp_path, CONFIG)
    program = f"""
        from odradek.environment.clock import SystemClock
        from odradek.config.log_config import LogConfig
        from odradek.log.directories.log_manager import LogManager
        LogManager([{str(tmp_path)!r}], LogConfig(), SystemClock()).load()
    """
    other = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "in use" in other.stderr.strip().splitlines()[-1]
    manager.close()
    open_manager(tmp_path, CONFIG).close()


def test_directory_of_another_cluster_or_node_is_refused(tmp_path: Path) -> None:
    open_manager(tmp_path, CONFIG).close()
    for cluster_id, node_id in (("other", 1), ("cluster", 2)):
        manager = LogManager([str(tmp_path)], CONFIG, ManualClock())
        with pytest.raises(LogDirectoryError, match="belongs to"):
            manager.load(cluster_id, node_id)
    manager = LogManager([str(tmp_path)], CONFIG, ManualClock())
    manager.load(None, 1)
    assert manager.cluster_id == "cluster"
    manager.close()


def test_directory_keeps_its_id(tmp_path: Path) -> None:
    open_manager(tmp_path, CONFIG).close()
    manager = open_manager(tmp_path, CONFIG)
    properties = checkpoints.read_properties(FILES, str(tmp_path / "meta.properties"))
    assert properties is not None
    [(path, directory_id)] = manager.directory_ids.items()
    assert (path, uuid_to_string(directory_id)) == (str(tmp_path), properties["directory.id"])
    manager.close()


def test_directory_without_an_id_is_opened_and_one_with_a_wrong_id_refused(tmp_path: Path) -> None:
    """Versions of Kafka before 3.7 wrote no id."""
    open_manager(tmp_path, CONFIG).close()
    path = tmp_path / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if "directory.id" not in line]
    path.write_text("\n".join(lines))
    manager = open_manager(tmp_path, CONFIG)
    assert manager.directory_ids == {}
    manager.close()
    path.write_text("\n".join([*lines, "directory.id=short"]))
    with pytest.raises(LogDirectoryError, match=r"directory\.id"):
        open_manager(tmp_path, CONFIG)


def test_recreated_partition_has_no_stale_data(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    manager = open_manager(tmp_path, CONFIG, clock=clock)
    append(open_log(manager), [b"old"])
    append(open_log(manager), [b"old"])
    open_log(manager).delete_records(1)
    manager.checkpoint()
    manager.delete(TP)
    assert manager.get(TP) is None
    other_id = Uuid(bytes(16))
    log = manager.create(TP, other_id)
    append(log, [b"new"])
    assert values_of(log) == [b"new"]
    manager.close(clean=False)
    manager = open_manager(tmp_path, CONFIG, clock=clock)
    found = manager.get(TP)
    assert found is not None
    assert (found.log_start_offset, values_of(found), found.topic_id) == (0, [b"new"], other_id)
    manager.maintain(clock.time_ms())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["topic-0"]
    manager.close()


def test_deletion_is_unfinished_while_a_directory_is_offline(tmp_path: Path) -> None:
    """The directory may have logs of the topic. The next start finds and deletes them."""
    manager = LogManager([str(tmp_path / "a"), str(tmp_path / "b")], CONFIG, ManualClock(NOW_MS))
    manager.load("cluster", 1)
    assert not manager.delete(TP)
    manager.log_dirs[1].fail(OSError(errno.EIO, "Input/output error"), "a test")
    assert manager.delete(TP)
    with pytest.raises(KafkaError):
        manager.sync_directories()
    manager.close(clean=False)


def test_deleted_files_stay_for_the_delay_and_regions_longer(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    manager = open_manager(tmp_path, CONFIG, clock=clock)
    log = open_log(manager)
    append(log, [b"held"])
    region = log.read(0, 1_000, 1, min_one_message=True).region
    manager.delete(TP)
    assert len([path for path in tmp_path.iterdir() if path.name.endswith("-delete")]) == 1
    clock.advance(1_000)
    manager.maintain(clock.time_ms())
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert region is not None and b"held" in region.read()
    region.close()
    with pytest.raises(KafkaError):
        log.read(0, 1_000, 1, min_one_message=True)
    manager.close()


@pytest.mark.parametrize("fault", ["fail_fsync", "fail_pwrite"])
def test_io_error_takes_the_directory_offline_permanently(tmp_path: Path, fault: str) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    failed: list[LogDir] = []
    manager.on_dir_failure(failed.append)
    log = open_log(manager)
    append(log, [b"a"])
    setattr(files, fault, OSError(errno.EIO, "input/output error"))
    fsyncs = files.fsyncs
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            append(log, [b"b"])
            log.flush()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        log.read(0, 100, 1, min_one_message=True)
    assert manager.create(TopicPartition("other", 0), TOPIC_ID).log_dir is log.log_dir
    assert failed == [log.log_dir]
    assert files.fsyncs <= fsyncs + 1, "a failed fsync is never tried again"
    manager.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_flush_is_due_after_flush_messages(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, LogConfig(flush_messages=3), files)
    log = open_log(manager)
    assert not append(log, [b"1"]).must_flush
    assert not append(log, [b"2"]).must_flush
    assert append(log, [b"3"]).must_flush
    log.flush()
    assert log.recovery_point == 3
    fsyncs = files.fsyncs
    log.flush()
    assert files.fsyncs == fsyncs, "what is on the disk is not synced again"
    assert not append(log, [b"4"]).must_flush
    manager.close()


def test_flush_interval_is_kept_by_maintain(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    files = FaultyFiles()
    manager = open_manager(tmp_path, LogConfig(flush_ms=5_000), files, clock=clock)
    log = open_log(manager)
    append(log, [b"a"])
    manager.maintain(clock.time_ms())
    path = log.segments.active.file.path
    assert (log.recovery_point, path in files._synced) == (0, False)
    clock.advance(5_000)
    manager.maintain(clock.time_ms())
    assert (log.recovery_point, path in files._synced) == (1, True)
    log.roll(NOW_MS)
    manager.maintain(clock.time_ms())
    assert "topic 0 1" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    manager.close()


def test_f6_l6_high_watermarks_are_written_every_five_seconds(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    manager = open_manager(tmp_path, LogConfig(), clock=clock)
    path = tmp_path / "replication-offset-checkpoint"
    append(open_log(manager), [b"a"])
    clock.advance(4_999)
    manager.maintain(clock.time_ms())
    assert not path.exists()
    clock.advance(1)
    manager.maintain(clock.time_ms())
    assert path.read_text() == "0\n1\ntopic 0 1\n"
    recovery_points = tmp_path / "recovery-point-offset-checkpoint"
    assert "topic 0 0\n" in recovery_points.read_text(), "written for the new log"
    append(open_log(manager), [b"b"])
    clock.advance(5_000)
    manager.maintain(clock.time_ms())
    assert path.read_text() == "0\n1\ntopic 0 2\n"
    append(open_log(manager), [b"c"])
    manager.close(clean=False)
    manager = open_manager(tmp_path, LogConfig(), clock=clock)
    found = open_log(manager)
    assert (found.log_end_offset, found.high_watermark) == (3, 2)
    manager.close()


def test_rolled_segments_are_flushed_by_maintain(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append(log, [b"a"])
    log.roll(NOW_MS)
    append(log, [b"b"])
    manager.maintain(NOW_MS)
    assert log.recovery_point == 1
    manager.close()


def test_retention_by_time_deletes_whole_old_segments_then_the_active_one(
    tmp_path: Path,
) -> None:
    config = LogConfig(retention_ms=10_000, segment_ms=1_000, file_delete_delay_ms=0)
    clock = ManualClock(NOW_MS)
    manager = open_manager(tmp_path, config, clock=clock)
    log = open_log(manager)
    for at in range(5):
        append(log, [b"x"], timestamp_ms=NOW_MS + at * 3_000, now_ms=NOW_MS + at * 3_000)
    assert retain(manager, NOW_MS + 13_000) == 1
    assert (log.log_start_offset, log.segments.bases) == (1, [1, 2, 3, 4])
    log.high_watermark = 3
    assert retain(manager, NOW_MS + 10**6) == 2, "only below the high watermark"
    log.high_watermark = 5
    assert retain(manager, NOW_MS + 10**6) == 2
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (5, 5, [5])
    append(log, [b"y"])
    manager.maintain(NOW_MS + 10**6)
    assert not list((tmp_path / "topic-0").glob("*.deleted"))
    manager.close()
    manager = open_manager(tmp_path, config, clock=clock)
    assert values_of(open_log(manager)) == [b"y"]
    manager.close()


def test_offsets_continue_after_all_records_were_deleted_and_a_restart(
    tmp_path: Path,
) -> None:
    manager = open_manager(tmp_path, LogConfig(retention_ms=1))
    log = open_log(manager)
    append(log, [b"x", b"y"], timestamp_ms=1)
    retain(manager, NOW_MS)
    manager.close(clean=False)
    manager = open_manager(tmp_path, CONFIG)
    assert append(open_log(manager), [b"z"]).first_offset == 2
    manager.close()


def test_deleted_records_stay_deleted_when_the_broker_is_killed(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append(log, [b"x"] * 5)
    manager.maintain(NOW_MS)
    log.delete_records(3)
    manager.maintain(NOW_MS)
    manager.close(clean=False)
    manager = open_manager(tmp_path, CONFIG)
    assert open_log(manager).log_start_offset == 3
    manager.close()


def test_retention_of_a_log_without_files_reads_nothing(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    manager.load_for_retention(NOW_MS + 10**12)
    assert retain(manager, NOW_MS + 10**12) == 0
    assert not log.log_dir.offline


def test_retention_by_size_keeps_at_least_that_much(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig(segment_bytes=1_000, retention_bytes=3_000))
    log = open_log(manager)
    for _ in range(20):
        append(log, [b"x" * 400])
    assert retain(manager, NOW_MS) > 0
    assert 3_000 <= log.size_bytes < 4_000
    assert log.log_start_offset == log.segments.bases[0] > 0
    manager.close()


def test_segments_of_deleted_records_go_with_the_next_retention_pass(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for _ in range(3):
        append(log, [b"x"])
        log.roll(NOW_MS)
    with pytest.raises(KafkaError) as caught:
        log.delete_records(4)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.delete_records(2)
    with pytest.raises(KafkaError):
        log.read(1, 100, 3, min_one_message=True)
    assert retain(manager, NOW_MS) == 2
    assert log.segments.bases == [2, 3]
    log.delete_records(3)
    retain(manager, NOW_MS)
    assert (log.segments.bases, log.log_start_offset) == ([3], 3)
    manager.close()


@pytest.mark.parametrize("content", ["", "0\n0\n"])
def test_cleaner_checkpoint_without_entries_is_read_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    path = tmp_path / checkpoints.CLEANER_OFFSET_FILE
    path.write_text(content)
    manager = open_manager(tmp_path, CONFIG)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
    manager.close()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (checkpoints.CLEANER_OFFSET_FILE, "0\n"),
        (checkpoints.CLEANER_OFFSET_FILE, "0\n1\n"),
        (checkpoints.RECOVERY_POINT_FILE, ""),
        (checkpoints.LOG_START_FILE, ""),
        (checkpoints.HIGH_WATERMARK_FILE, ""),
    ],
)
def test_torn_checkpoint_is_reported_with_its_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    open_manager(tmp_path, CONFIG).close()
    assert f"{tmp_path / name}" in caplog.text


def test_unreadable_checkpoints_are_ignored_and_the_logs_checked(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    append(open_log(manager), [b"a"])
    manager.close()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).write_bytes(b"0\n7\ntop")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    manager = open_manager(tmp_path, CONFIG)
    assert values_of(open_log(manager)) == [b"a"]
    manager.close()


def test_logs_are_spread_over_the_online_directories(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("a", "b")]
    files = FaultyFiles()
    manager = LogManager([str(root) for root in roots], CONFIG, ManualClock(NOW_MS), files=files)
    manager.load("cluster", 1)
    partitions = [TopicPartition("t", at) for at in range(6)]
    logs = [manager.create(tp, TOPIC_ID) for tp in partitions]
    assert [log.log_dir.path for log in logs] == [str(root) for root in roots] * 3
    for log in logs:
        append(log, [b"x"])
    files.fail_fsync = OSError(errno.EIO, "input/output error")
    with pytest.raises(KafkaError):
        logs[0].flush()
    logs[1].flush()
    append(logs[1], [b"y"])
    assert manager.create(TopicPartition("t", 9), TOPIC_ID).log_dir is logs[1].log_dir
    manager.close()
    assert [(root / ".kafka_cleanshutdown").exists() for root in roots] == [False, True]
    manager = LogManager([str(root) for root in roots], CONFIG, ManualClock(NOW_MS))
    manager.load("cluster", 1)
    assert len(manager.all_logs()) == 6
    manager.close()


def open_two(root: Path, files: FaultyFiles | None = None) -> LogManager:
    """Open a manager of the log directories ``a`` and ``b`` below `root`."""
    paths = [str(root / name) for name in ("a", "b")]
    manager = LogManager(paths, CONFIG, ManualClock(NOW_MS), files=files)
    manager.load("cluster", 1)
    return manager


@pytest.mark.parametrize("topic_id_is_known", [True, False])
def test_partition_with_directories_in_two_log_directories_is_refused(
    tmp_path: Path, topic_id_is_known: bool
) -> None:
    """As in Kafka. Nothing is changed, and the start succeeds after one of them was removed."""
    manager = open_two(tmp_path)
    append(open_log(manager), [b"acknowledged"])
    manager.close()
    shutil.copytree(tmp_path / "a" / "topic-0", tmp_path / "b" / "topic-0")
    if not topic_id_is_known:
        (tmp_path / "b" / "topic-0" / "partition.metadata").unlink()
    before = contents(tmp_path)
    with pytest.raises(LogDirectoryError) as refused:
        open_two(tmp_path)
    assert str(tmp_path / "a" / "topic-0") in str(refused.value)
    assert str(tmp_path / "b" / "topic-0") in str(refused.value)
    assert contents(tmp_path) == before
    shutil.rmtree(tmp_path / "a" / "topic-0")
    manager = open_two(tmp_path)
    assert values_of(open_log(manager)) == [b"acknowledged"]
    assert open_log(manager).log_dir.path == str(tmp_path / "b")
    manager.close()


def test_file_with_the_name_of_a_partition_is_no_second_directory(tmp_path: Path) -> None:
    manager = open_two(tmp_path)
    append(open_log(manager), [b"acknowledged"])
    manager.close()
    (tmp_path / "b" / "topic-0").write_text("a note of the operator")
    manager = open_two(tmp_path)
    assert values_of(open_log(manager)) == [b"acknowledged"]
    manager.close()


def test_unfinished_copy_of_a_replica_is_kept_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka copies a replica to ``topic-0.<uuid>-future``. Two copies are refused, as in Kafka."""
    manager = open_two(tmp_path)
    append(open_log(manager), [b"acknowledged"])
    manager.close()
    copies = [tmp_path / "b" / f"topic-0.{digit * 32}-future" for digit in "01"]
    shutil.copytree(tmp_path / "a" / "topic-0", copies[0])
    before = contents(copies[0])
    manager = open_two(tmp_path)
    assert values_of(open_log(manager)) == [b"acknowledged"]
    manager.close()
    assert contents(copies[0]) == before
    assert f"{copies[0]} is an unfinished copy of topic-0" in caplog.text
    shutil.copytree(copies[0], copies[1])
    with pytest.raises(LogDirectoryError, match="partition topic-0 has 2 directories"):
        open_two(tmp_path)


def test_logs_of_two_topics_of_one_name_are_both_opened(tmp_path: Path) -> None:
    """The metadata decides which one is used: see `TopicDeletions.settle_conflicts`."""
    manager = open_two(tmp_path)
    append(open_log(manager), [b"old"])
    manager.close()
    (tmp_path / "a").rename(tmp_path / "old")
    manager = open_two(tmp_path)
    append(manager.create(TP, Uuid(bytes(16))), [b"new"])
    manager.close()
    (tmp_path / "a" / "topic-0").rename(tmp_path / "b" / "topic-0")
    (tmp_path / "old" / "topic-0").rename(tmp_path / "a" / "topic-0")
    manager = open_two(tmp_path)
    assert manager.get(TP) is None
    old, new = manager.conflicting_logs()[TP]
    assert set(manager.all_logs()) == {old, new}
    assert [values_of(log) for log in (old, new)] == [[b"old"], [b"new"]]
    manager.use(old)
    assert manager.get(TP) is old
    assert manager.delete(TP)
    manager.use(new)
    assert manager.get(TP) is new
    assert manager.conflicting_logs() == {}
    manager.close()
    assert (tmp_path / "b" / "topic-0").exists()
    assert not (tmp_path / "a" / "topic-0").exists()


def test_power_cut_after_a_flush_keeps_a_new_log_directory(tmp_path: Path, seed: int) -> None:
    """The same holds for its name and for the names of its parent directories."""
    for each in range(20):
        files = FaultyFiles(loses_names=True)
        root = tmp_path / str(each) / "new" / "data"
        manager = open_manager(root, CONFIG, files)
        append(open_log(manager), [b"acknowledged"])
        open_log(manager).flush()
        manager.close(clean=False)
        files.crash(tmp_path / str(each), random.Random(seed + each))
        manager = open_manager(root, CONFIG, files)
        assert values_of(open_log(manager)) == [b"acknowledged"]
        manager.close()


def test_names_of_directories() -> None:
    assert parse_directory_name("a-b-3") == TopicPartition("a-b", 3)
    for name in ("a", "a-", "a-b", "a-1-delete", "a-0.x-stray", "__cluster_metadata-0"):
        assert parse_directory_name(name) is None
    long_name = renamed_directory(TopicPartition("t" * 249, 123), ZERO_UUID, "-delete")
    assert len(long_name) <= FILE_NAME_BYTES_MAX and long_name.endswith("-delete")


def test_two_thousand_partitions_need_no_more_files_than_the_limit(tmp_path: Path) -> None:
    """In a process of its own, under ``ulimit -n 1024``."""
    program = f"""
        import os, resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        from pathlib import Path
        from odradek.config.log_config import LogConfig
        from odradek.ids import TopicPartition
        from tests.log.builders import NOW_MS, TOPIC_ID, append, open_manager, values_of
        root = Path({str(tmp_path)!r})
        partitions = [TopicPartition("many", at) for at in range(2_000)]
        manager = open_manager(root, LogConfig())
        for round in range(2):
            for tp in partitions:
                append(manager.create(tp, TOPIC_ID), [b"%d %d" % (tp.partition, round)])
        assert len(os.listdir("/proc/self/fd")) < 600, len(os.listdir("/proc/self/fd"))
        for tp in partitions:
            values = values_of(manager.get(tp))
            assert values == [b"%d 0" % tp.partition, b"%d 1" % tp.partition], values
        assert len(os.listdir("/proc/self/fd")) < 600
        manager.close(clean=False)
        print("all there")
    """
    result = run_program(program)
    assert result.stdout == "all there\n", result.stderr


def test_full_disk_cuts_the_partial_write_and_appends_succeed_with_space(tmp_path: Path) -> None:
    """In a process of its own, whose files may not grow past RLIMIT_FSIZE."""
    program = f"""
        import resource
        from pathlib import Path
        from odradek.config.log_config import LogConfig
        from odradek.errors import ErrorCode, KafkaError
        from tests.log.builders import append, open_log, open_manager, values_of
        root = Path({str(tmp_path)!r})
        manager = open_manager(root, LogConfig())
        log = open_log(manager)
        written = []
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        def fill():
            for at in range(100):
                append(log, [b"%03d" % at * 100])
                written.append(b"%03d" % at * 100)
        for _ in range(2):
            try:
                fill()
            except KafkaError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR, error
            else:
                raise AssertionError("the disk was not full")
            assert values_of(log) == written, "reads go on"
            path = root / "topic-0" / "00000000000000000000.log"
            assert path.stat().st_size == log.segments.active.size, "the partial write is cut off"
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        assert not log.log_dir.offline
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        fill()
        manager.close()
        manager = open_manager(root, LogConfig())
        assert values_of(open_log(manager)) == written
        manager.close()
        print(len(written) > 100)
    """
    result = run_program(program)
    assert result.stdout == "True\n", result.stderr


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_checkpoints_are_written_later_after_a_full_disk(tmp_path: Path, code: int) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    log = open_log(manager)
    append(log, [b"a"])
    log.roll(NOW_MS)
    log.flush()

    def scarce(path: str, flags: int) -> int:
        if "checkpoint" in path:
            raise OSError(code, "none left", path)
        return FaultyFiles.open(files, path, flags)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "open", scarce)
        manager.checkpoint()
    assert not log.log_dir.offline
    assert manager.flushed_offset(log) == 0
    manager.maintain(NOW_MS)
    assert manager.flushed_offset(log) == 1
    manager.close()


def test_full_disk_is_reported_once_until_it_has_space_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    reported: list[LogDir] = []
    manager.on_dir_full(reported.append)
    log = open_log(manager)
    append(log, [b"a"])
    files.space_left = 0
    for _ in range(2):
        with pytest.raises(KafkaError):
            append(log, [b"b"])
    assert reported == [log.log_dir]
    assert log.log_dir.is_full and not log.log_dir.offline
    log.log_dir.space_freed()
    with pytest.raises(KafkaError):
        append(log, [b"b"])
    assert len(reported) == 2
    files.space_left = None
    assert append(log, [b"b"]).first_offset == 1
    manager.close()


def test_lack_of_descriptors_is_not_a_full_disk(tmp_path: Path) -> None:
    files = FaultyFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    log = open_log(manager)
    append(log, [b"a"])
    files.fail_pwrite = OSError(errno.EMFILE, "none left")
    with pytest.raises(KafkaError):
        append(log, [b"b"])
    assert not log.log_dir.is_full and not log.log_dir.offline
    files.fail_pwrite = None
    manager.close()
