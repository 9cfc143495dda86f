"""Space reserved ahead of a growing file is invisible to readers, and is released."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment import allocation
from odradek.environment.allocation import allocate_ahead
from odradek.log.segments.log_segment import ALLOCATE_BYTES_MAX, ALLOCATE_FROM_BYTES
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import append, open_log, open_manager

BATCH = [bytes(300_000)]
BLOCKS_BYTES = 512
METADATA_BYTES = 65_536


class AllocatingFiles(FaultyFiles):
    """Files that record reservations, and the lengths to which files are truncated."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved: list[tuple[int, int]] = []
        self.cuts: list[tuple[str, int]] = []
        self.error: OSError | None = None

    def allocate(self, fd: int, position: int, length: int) -> bool:
        if self.error is not None:
            raise self.error
        self.reserved.append((position, length))
        return True

    def ftruncate(self, fd: int, length: int) -> None:
        self.cuts.append((Path(self._paths[fd]).name, length))
        super().ftruncate(fd, length)


def test_a_small_log_reserves_nothing(tmp_path: Path) -> None:
    files = AllocatingFiles()
    manager = open_manager(tmp_path, LogConfig(), files)
    append(open_log(manager), BATCH)
    assert files.reserved == []
    manager.close()


def test_a_log_reserves_as_much_as_it_has_and_no_more_than_the_limit(tmp_path: Path) -> None:
    files = AllocatingFiles()
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    while log.size_bytes < 2.5 * ALLOCATE_BYTES_MAX:
        append(log, BATCH)
    assert len(files.reserved) >= 4
    reached = 0
    for position, length in files.reserved:
        assert position > max(reached, ALLOCATE_FROM_BYTES)
        assert length == min(position, ALLOCATE_BYTES_MAX)
        reached = position + length
    manager.close()


def test_a_segment_releases_reserved_space_when_it_rolls(tmp_path: Path) -> None:
    files = AllocatingFiles()
    manager = open_manager(tmp_path, replace(LogConfig(), segment_bytes=2_000_000), files)
    log = open_log(manager)
    while len(log.segments) < 2:
        append(log, BATCH)
    rolled = log.segments[0]
    assert files.reserved
    assert ("00000000000000000000.log", rolled.size) in files.cuts
    manager.close()


def test_a_failed_reservation_is_not_an_error(tmp_path: Path) -> None:
    files = AllocatingFiles()
    files.error = OSError(errno.ENOSPC, "no space")
    manager = open_manager(tmp_path, LogConfig(), files)
    log = open_log(manager)
    while log.size_bytes < 2 * ALLOCATE_FROM_BYTES:
        append(log, BATCH)
    assert log.read(0, 100, log.log_end_offset, min_one_message=False).region is not None
    manager.close()


def test_recovery_releases_space_that_a_killed_broker_had_reserved(tmp_path: Path) -> None:
    manager = open_manager(tmp_path, LogConfig())
    log = open_log(manager)
    while log.size_bytes < 3 * ALLOCATE_FROM_BYTES:
        append(log, BATCH)
    file, size = Path(log.segments.active.file.path), log.size_bytes
    with file.open("r+b") as handle:
        allocate_ahead(handle.fileno(), size, ALLOCATE_BYTES_MAX)
    manager.close(clean=False)
    again = open_manager(tmp_path, LogConfig())
    assert open_log(again).size_bytes == size
    assert file.stat().st_size == size
    assert file.stat().st_blocks * BLOCKS_BYTES < size + METADATA_BYTES
    again.close()


def test_nothing_is_reserved_on_other_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    with (tmp_path / "file").open("wb") as file:
        device = (tmp_path / "file").stat().st_dev
        name = f"{device >> 8}:{device & 0xFF}"
        mounts.write_text(f"1 0 {name} / / rw - tmpfs none rw\n")
        monkeypatch.setattr(allocation, "_MOUNTS", mounts)
        allocation._gains.cache_clear()
        try:
            assert not allocate_ahead(file.fileno(), 0, ALLOCATE_FROM_BYTES)
            mounts.unlink()
            allocation._gains.cache_clear()
            assert not allocate_ahead(file.fileno(), 0, ALLOCATE_FROM_BYTES)
        finally:
            allocation._gains.cache_clear()
    assert (tmp_path / "file").stat().st_blocks == 0


def test_nothing_is_reserved_on_a_nearly_full_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "FREE_BYTES_MIN", 1 << 62)
    with (tmp_path / "file").open("wb") as file:
        assert not allocate_ahead(file.fileno(), 0, ALLOCATE_FROM_BYTES)
    assert (tmp_path / "file").stat().st_blocks == 0
