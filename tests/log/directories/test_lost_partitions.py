"""Partitions that a power cut or a loss of the metadata separates from their checkpoint entries."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.files import RealFiles
from odradek.ids import TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.state import checkpoints
from odradek.log.state.checkpoints import entry_name
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import (
    NOW_MS,
    TOPIC_ID,
    TP,
    append,
    open_log,
    open_manager,
    retain,
    values_of,
)

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
OTHER = TopicPartition("other", 0)
NEW_ID = Uuid(bytes(16))


def entries(root: Path) -> dict[str, dict[TopicPartition, int]]:
    names = (
        checkpoints.RECOVERY_POINT_FILE,
        checkpoints.LOG_START_FILE,
        checkpoints.HIGH_WATERMARK_FILE,
        checkpoints.CLEANER_OFFSET_FILE,
    )
    return {name: checkpoints.read_offsets(RealFiles(), str(root / name)) for name in names}


def with_offsets_everywhere(manager: LogManager) -> None:
    """Have an entry above 0 in each of the four checkpoints."""
    log = open_log(manager)
    for at in range(9):
        append(log, [b"%d" % at * 90])
    log.delete_records(5)
    manager.maintain(NOW_MS)
    manager.write_cleaned_offset(log, 6, log.truncations)


def test_entries_of_a_lost_directory_do_not_hide_records_of_its_successor(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    with_offsets_everywhere(manager)
    append(manager.create(OTHER, TOPIC_ID), [b"other"])
    manager.checkpoint()
    manager.close(clean=False)
    assert all(TP in found for found in entries(tmp_path).values())
    shutil.rmtree(tmp_path / str(TP))
    manager = open_manager(tmp_path, CONFIG)
    assert {name: found.get(TP) for name, found in entries(tmp_path).items()} == {
        checkpoints.RECOVERY_POINT_FILE: None,
        checkpoints.LOG_START_FILE: None,
        checkpoints.HIGH_WATERMARK_FILE: 0,
        checkpoints.CLEANER_OFFSET_FILE: None,
    }
    assert entries(tmp_path)[checkpoints.HIGH_WATERMARK_FILE][OTHER] == 1
    log = open_log(manager)
    assert manager.cleaned_offset(log) is None
    append(log, [b"new"])
    manager.close(clean=False)
    manager = open_manager(tmp_path, CONFIG)
    assert values_of(open_log(manager)) == [b"new"]
    assert open_log(manager).high_watermark == 0
    manager.close()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("synced", [False, True])
def test_entries_of_a_deleted_partition_do_not_hide_records_of_its_successor(
    tmp_path: Path, seed: int, synced: bool
) -> None:
    """The new partition is created before a thread has synced the deletion."""
    files = FaultyFiles(loses_names=True)
    manager = open_manager(tmp_path, CONFIG, files)
    with_offsets_everywhere(manager)
    manager.delete(TP)
    if synced:
        manager.sync_directories()
        assert not any(TP in found for found in entries(tmp_path).values())
    log = manager.create(TP, NEW_ID)
    append(log, [b"new"])
    if seed % 2:
        log.flush()
        manager.close(clean=False)
        files.crash(tmp_path, random.Random(seed))
    else:
        manager.close(clean=False)
    manager = open_manager(tmp_path, CONFIG, files)
    found = open_log(manager)
    assert (found.topic_id, found.log_start_offset, values_of(found)) == (NEW_ID, 0, [b"new"])
    assert manager.cleaned_offset(found) is None
    manager.close(clean=False)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("action", ["delete", "set aside", "stop"])
def test_power_cut_never_loses_the_entries_of_other_partitions(
    tmp_path: Path, seed: int, action: str
) -> None:
    """Deleted records would be served again, and gaps of compaction would count as lost data."""
    files = FaultyFiles(loses_names=True)
    manager = open_manager(tmp_path, CONFIG, files)
    other = manager.create(OTHER, TOPIC_ID)
    append(other, [b"x"])
    with_offsets_everywhere(manager)
    other.flush()
    before = {name: found[TP] for name, found in entries(tmp_path).items()}
    if action == "delete":
        manager.delete(OTHER)
        manager.close(clean=False)
    elif action == "set aside":
        manager.set_aside(OTHER)
        manager.close(clean=False)
    else:
        manager.close(within_ms=0)
    files.crash(tmp_path, random.Random(seed))
    manager = open_manager(tmp_path, CONFIG, files, boot_id="another boot")
    log = open_log(manager)
    assert (log.log_start_offset, manager.cleaned_offset(log)) == (5, 6)
    for name, offset in before.items():
        assert entries(tmp_path)[name][TP] >= offset
    manager.close(clean=False)


def test_logs_that_the_metadata_has_lost_are_not_subject_to_retention(tmp_path: Path) -> None:
    """The topic's own retention is lost with the metadata. The default one would delete records."""
    config = LogConfig(segment_bytes=400, retention_ms=1, file_delete_delay_ms=0)
    manager = open_manager(tmp_path, config)
    for at in range(9):
        append(open_log(manager), [b"%d" % at * 90], now_ms=NOW_MS - 10**6)
    manager.close()
    manager = open_manager(tmp_path, config)
    assert retain(manager, NOW_MS + 10**9) == 0
    log = manager.get(TP)
    assert log is not None
    assert (len(values_of(log)), list(manager.assigned_logs())) == (9, [None])
    manager.assign(TP)
    assert retain(manager, NOW_MS + 10**9) > 0
    manager.unassign([TP])
    assert list(manager.assigned_logs()) == [None]
    manager.close()


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("rolled", [True, False])
def test_offsets_of_records_that_retention_deleted_are_not_used_again_after_a_power_cut(
    tmp_path: Path, seed: int, rolled: bool
) -> None:
    """The cut keeps the new names of deleted segments, and loses the name of the empty one."""
    files = FaultyFiles(loses_names=True)
    config = LogConfig(segment_bytes=400, retention_ms=1, file_delete_delay_ms=0)
    manager = open_manager(tmp_path, config, files)
    for at in range(9):
        append(open_log(manager), [b"%d" % at * 90], now_ms=NOW_MS - 10**6)
    if rolled:
        open_log(manager).roll(NOW_MS)
    open_log(manager).flush()
    manager.checkpoint()
    assert retain(manager, NOW_MS + 10**9) > 1
    manager.close(clean=False)
    for number in range(2):
        files.crash(tmp_path, random.Random(seed + number))
        manager = open_manager(tmp_path, config, files)
        log = open_log(manager)
        assert log.log_end_offset == 9
        manager.close(clean=False)
    manager = open_manager(tmp_path, config, files)
    assert append(open_log(manager), [b"new"]).first_offset == 9
    manager.maintain(NOW_MS)
    assert not list((tmp_path / str(TP)).glob("*.deleted"))
    manager.close()


def test_deleted_segments_are_removed_after_the_log_start_is_on_the_disk(tmp_path: Path) -> None:
    files = FaultyFiles()
    config = LogConfig(segment_bytes=400, retention_ms=1, file_delete_delay_ms=0)
    manager = open_manager(tmp_path, config, files)
    for at in range(9):
        append(open_log(manager), [b"%d" % at * 90], now_ms=NOW_MS - 10**6)
    retain(manager, NOW_MS + 10**9)
    files.space_left = 0
    manager.maintain(NOW_MS)
    assert list((tmp_path / str(TP)).glob("*.deleted"))
    files.space_left = None
    manager.maintain(NOW_MS)
    assert not list((tmp_path / str(TP)).glob("*.deleted"))
    assert entries(tmp_path)[checkpoints.LOG_START_FILE] == {TP: 9}
    manager.close()


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("damage", ["torn", "missing"])
def test_damaged_topic_id_is_noted_unless_records_were_flushed(
    tmp_path: Path, damage: str, flushed: bool
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    append(manager.create(OTHER, TOPIC_ID), [b"other"])
    manager.checkpoint()
    for at in range(9):
        append(open_log(manager), [b"%d" % at * 90])
    if flushed:
        manager.maintain(NOW_MS)
    manager.close(clean=False)
    path = tmp_path / str(TP) / checkpoints.PARTITION_METADATA_FILE
    if damage == "torn":
        path.write_text("version: 0")
    else:
        path.unlink()
    manager = open_manager(tmp_path, CONFIG)
    assert open_log(manager).has_torn_topic_id is not flushed
    manager.close(clean=False)


def test_directory_of_an_old_kafka_without_topic_ids_is_used(tmp_path: Path) -> None:
    """Kafka before 2.8 wrote no ``partition.metadata``. Its recovery points may be unreadable."""
    manager = open_manager(tmp_path, CONFIG)
    append(open_log(manager), [b"x"])
    manager.close(clean=False)
    (tmp_path / str(TP) / checkpoints.PARTITION_METADATA_FILE).unlink()
    manager = open_manager(tmp_path, CONFIG)
    assert not open_log(manager).has_torn_topic_id
    manager.close(clean=False)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("maintained", [True, False])
def test_deleted_segments_that_a_power_cut_restores_in_part_hide_no_flushed_records(
    tmp_path: Path, seed: int, maintained: bool
) -> None:
    """The cut undoes the renames of some deleted segments. The offsets between them are no gap."""
    files = FaultyFiles(loses_names=True)
    config = LogConfig(segment_bytes=200, file_delete_delay_ms=0)
    manager = open_manager(tmp_path, config, files)
    for at in range(9):
        append(open_log(manager), [b"%d" % at * 90])
    open_log(manager).flush()
    open_log(manager).delete_records(5)
    assert retain(manager, NOW_MS) == 5
    if maintained:
        for log_dir in manager.log_dirs:
            manager._checkpoints[log_dir][checkpoints.LOG_START_FILE].write(
                lambda: {entry_name(TP): 5}
            )
            log_dir.remove_due(NOW_MS)
    manager.close(clean=False)
    files.crash(tmp_path, random.Random(seed))
    manager = open_manager(tmp_path, config, files)
    log = open_log(manager)
    start = log.log_start_offset
    assert (log.log_end_offset, start <= 5) == (9, True)
    assert values_of(log) == [b"%d" % at * 90 for at in range(start, 9)]
    manager.close()
