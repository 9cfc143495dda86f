"""A start after a crash: truncated bytes, recovered segments, and untouched ones."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.files import RealFiles
from odradek.log.log_loader import LogLoader
from odradek.log.segments import log_segment as segment
from odradek.log.state import checkpoints
from tests.log.builders import NOW_MS, TP, append, open_log, open_manager, values_of

CONFIG = LogConfig(segment_bytes=1_500, index_interval_bytes=200)


def filled(root: Path, count: int, *, clean: bool) -> Path:
    """Return a directory with a log of `count` batches after a clean stop or a kill."""
    manager = open_manager(root, CONFIG)
    log = open_log(manager)
    for at in range(count):
        append(log, [b"%03d" % at * 30], producer_id=1, producer_epoch=0, base_sequence=at)
    manager.close(clean=clean)
    return root / str(TP)


def newest(directory: Path, suffix: str = ".log") -> Path:
    return max(directory.glob(f"*{suffix}"))


def test_f6_l6_torn_tail_is_cut_reported_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = filled(tmp_path, 20, clean=False)
    path = newest(directory)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:70])
    with caplog.at_level(logging.WARNING):
        manager = open_manager(tmp_path, CONFIG)
    assert f"cut 70 torn bytes after {len(whole)} valid bytes" in caplog.text
    log = open_log(manager)
    assert log.log_dir.torn_bytes_cut == 70
    assert (log.log_end_offset, path.read_bytes()) == (20, whole)
    assert append(log, [b"next"]).first_offset == 20
    manager.close()


class SyncedFiles(RealFiles):
    """Files that note the inodes of the synced files."""

    def __init__(self) -> None:
        self.synced: set[int] = set()

    def fsync(self, fd: int) -> None:
        self.synced.add(os.fstat(fd).st_ino)
        super().fsync(fd)


def test_f6_l6_cut_of_a_torn_tail_is_synced_although_all_records_were_flushed(
    tmp_path: Path,
) -> None:
    """No flush follows. After a clean stop and a power cut the torn bytes would be read."""
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append(log, [b"flushed"])
    log.flush()
    manager.close(clean=False)
    path = newest(tmp_path / str(TP))
    path.write_bytes(path.read_bytes() + b"torn")
    files = SyncedFiles()
    manager = open_manager(tmp_path, CONFIG, files)
    assert open_log(manager).log_dir.torn_bytes_cut == 4
    assert path.stat().st_ino in files.synced
    manager.close()


@pytest.mark.parametrize("damage", ["flip", "zeros", "offset"])
def test_invalid_batch_and_all_later_batches_are_cut(tmp_path: Path, damage: str) -> None:
    directory = filled(tmp_path, 40, clean=False)
    path = sorted(directory.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    size = 12 + int.from_bytes(data[8:12], "big")
    if damage == "flip":
        data[2 * size + 80] ^= 1
    elif damage == "zeros":
        data[2 * size :] = bytes(len(data) - 2 * size)
    else:
        data[2 * size : 2 * size + 8] = bytes(8)
    path.write_bytes(data)
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    end = int(path.stem) + 2
    assert log.log_end_offset == end
    assert values_of(log) == [b"%03d" % at * 30 for at in range(end)]
    assert sorted(directory.glob("*.log"))[-1] == path
    manager.close()


@pytest.mark.parametrize("at", [1, 4, 5, 11])
def test_batch_of_an_earlier_epoch_and_all_later_batches_are_cut(
    tmp_path: Path, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut brought truncated batches back behind new ones. `at` may begin a segment."""
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for number in range(14):
        append(log, [b"%03d" % number * 30], 12)
    positions = {
        header.base_offset: (segment.file.path, position)
        for segment in log.segments
        for position, header in segment.headers(0)
    }
    manager.close(clean=False)
    for number in range(at, 14):
        path, position = positions[number]
        with Path(path).open("r+b") as file:
            file.seek(position + 12)  # the leader epoch, which no CRC covers
            file.write((8).to_bytes(4, "big"))
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    assert values_of(log) == [b"%03d" % number * 30 for number in range(at)]
    assert log.epochs.entries() == [(12, 0)]
    assert f"the batch at offset {at} has leader epoch 8 after 12" in caplog.text
    append(log, [b"next"], 13)
    manager.close(clean=False)
    log = open_log(open_manager(tmp_path, CONFIG))
    assert values_of(log)[-1] == b"next"


def test_batches_without_a_leader_epoch_are_kept(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for epoch in (3, -1, 3, -1, 2):
        append(log, [b"value"], epoch)
    manager.close(clean=False)
    assert open_log(open_manager(tmp_path, CONFIG)).log_end_offset == 4


def test_only_segments_above_the_recovery_point_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for at in range(40):
        append(log, [b"%03d" % at * 30])
    manager.maintain(NOW_MS)
    expected = [log.segments.active.base_offset]
    manager.close(clean=False)
    read: list[int] = []
    real = LogLoader._recover_segment

    def recover_segment(*args):
        read.append(args[1].base_offset)
        return real(*args)

    monkeypatch.setattr(LogLoader, "_recover_segment", recover_segment)
    manager = open_manager(tmp_path, CONFIG)
    assert read == expected
    manager.close()


def test_a_damaged_header_below_the_recovery_point_removes_no_segment(tmp_path: Path) -> None:
    """The segment looks compacted, and as if it covered the offsets of the next ones."""
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for at in range(40):
        append(log, [b"%03d" % at * 30])
    manager.maintain(NOW_MS)
    manager.close(clean=False)
    paths = sorted((tmp_path / str(TP)).glob("*.log"))
    data = bytearray(paths[0].read_bytes())
    position = last = 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        position, last = position + size, position
    data[last + 23 : last + 27] = (1_000).to_bytes(4, "big")  # how far its offsets go
    paths[0].write_bytes(data)
    manager = open_manager(tmp_path, replace(CONFIG, cleanup_compact=True))
    assert open_log(manager).log_end_offset == 40
    assert sorted((tmp_path / str(TP)).glob("*.log")) == paths
    manager.close()


def test_clean_start_reads_no_batch_but_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 200, clean=True)
    batches: list[int] = []
    real = segment.LogSegment.headers

    def headers(self, position):
        for found in real(self, position):
            batches.append(found[0])
            yield found

    monkeypatch.setattr(segment.LogSegment, "headers", headers)
    manager = open_manager(tmp_path, CONFIG)
    assert open_log(manager).log_end_offset == 200
    assert len(batches) <= CONFIG.index_interval_bytes // 100 + 2
    manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_whole_window_is_known_after_a_start(tmp_path: Path, clean: bool) -> None:
    filled(tmp_path, 50, clean=clean)
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for at in range(45, 50):
        info = append(log, [b"%03d" % at * 30], producer_id=1, producer_epoch=0, base_sequence=at)
        assert (info.duplicate, info.first_offset) == (True, at)
    manager.close()


def test_window_is_rebuilt_from_the_log_if_only_kafkas_snapshot_exists(
    tmp_path: Path,
) -> None:
    directory = filled(tmp_path, 50, clean=True)
    for path in directory.glob("*.odradek-window"):
        path.unlink()
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for at in range(45, 50):
        assert append(
            log, [b"%03d" % at * 30], producer_id=1, producer_epoch=0, base_sequence=at
        ).duplicate
    manager.close()


def test_lost_or_damaged_indexes_are_rebuilt(tmp_path: Path) -> None:
    directory = filled(tmp_path, 60, clean=True)
    for at, path in enumerate(sorted(directory.glob("*index"))):
        if at % 3 == 0:
            path.unlink()
        elif at % 3 == 1:
            path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
        else:
            path.write_bytes(b"\xff" * 24)
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    for offset in range(60):
        assert values_of(log, offset)[0] == b"%03d" % offset * 30
    manager.close()


def test_unfinished_files_of_a_crash_are_removed(tmp_path: Path) -> None:
    directory = filled(tmp_path, 5, clean=False)
    strays = ["00000000000000000099.log.deleted", "leader-epoch-checkpoint.tmp", "x.cleaned"]
    for name in strays:
        (directory / name).write_bytes(b"x")
    manager = open_manager(tmp_path, CONFIG)
    assert not [name for name in strays if (directory / name).exists()]
    assert open_log(manager).log_end_offset == 5
    manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_indexes_without_their_segment_are_removed(tmp_path: Path, clean: bool) -> None:
    """A power cut may keep some of the renames of a removed segment."""
    manager = open_manager(tmp_path, CONFIG)
    append(open_log(manager), [b"value"])
    manager.close(clean=clean)
    orphans = [
        tmp_path / str(TP) / f"{99:020d}{suffix}"
        for suffix in (".index", ".timeindex", ".txnindex")
    ]
    for orphan in orphans:
        orphan.write_bytes(bytes(34))
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    assert not any(orphan.exists() for orphan in orphans)
    assert values_of(log) == [b"value"]
    manager.close()


def test_preallocated_indexes_of_a_stopped_kafka_are_understood(tmp_path: Path) -> None:
    directory = filled(tmp_path, 30, clean=True)
    for path in (newest(directory, ".index"), newest(directory, ".timeindex")):
        path.write_bytes(path.read_bytes() + bytes(240))
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    assert log.log_end_offset == 30
    append(log, [b"more" * 100])
    manager.close()
    assert len(newest(directory, ".index").read_bytes()) < 240


def test_offsets_of_deleted_records_are_not_used_again_after_a_crash(
    tmp_path: Path,
) -> None:
    manager = open_manager(tmp_path, CONFIG)
    log = open_log(manager)
    append(log, [b"x"] * 5)
    log.delete_records(5)
    manager.maintain(NOW_MS)
    manager.close(clean=False)
    newest(tmp_path / str(TP)).write_bytes(b"")
    for _ in range(2):
        manager = open_manager(tmp_path, CONFIG)
        log = open_log(manager)
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        manager.maintain(NOW_MS)
        manager.checkpoint()
        manager.close(clean=False)
    manager = open_manager(tmp_path, CONFIG)
    assert append(open_log(manager), [b"y"]).first_offset == 5
    manager.close()


def test_checkpoint_that_is_cut_in_its_last_number_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n1 0\n2 12\n")
    assert checkpoints.read_epochs(RealFiles(), str(path)) == [(1, 0), (2, 12)]
    path.write_text("0\n2\n1 0\n2 1")
    with pytest.raises(checkpoints.CorruptCheckpoint):
        checkpoints.read_epochs(RealFiles(), str(path))


def test_leader_epoch_checkpoint_that_kafka_created_with_no_bytes_has_no_entries(
    tmp_path: Path,
) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"")
    assert checkpoints.read_epochs(RealFiles(), str(path)) == []
