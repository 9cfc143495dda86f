"""The pool of open files counts descriptors that are held after their eviction."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from odradek.environment.files import READ_WRITE, RealFiles
from odradek.log import file_pool
from odradek.log.file_pool import FilePool, PooledFile


class FewDescriptors(RealFiles):
    """A process that has `free` descriptors left."""

    free = 0

    def open(self, path: str, flags: int) -> int:
        if self.free <= 0:
            raise OSError(errno.EMFILE, "too many open files", path)
        self.free -= 1
        return super().open(path, flags)

    def close(self, fd: int) -> None:
        self.free += 1
        os.close(fd)


def test_files_that_are_held_after_their_eviction_crowd_the_pool(tmp_path: Path) -> None:
    pool = FilePool(RealFiles(), 4)
    files = [PooledFile(pool, str(tmp_path / str(n)), READ_WRITE) for n in range(10)]
    for file in files:
        file.open()
    assert (len(pool), len(pool._descriptors), pool.is_crowded) == (4, 4, False)
    held = [file.open() for file in files[:5]]
    assert len(pool) == 4
    held += [file.open() for file in files[5:]]
    assert (len(pool), len(pool._descriptors), pool.is_crowded) == (4, 10, True)
    held.clear()
    assert (len(pool._descriptors), pool.is_crowded) == (4, False)
    for file in files:
        file.retire()
    assert len(pool._descriptors) == 0


@pytest.mark.parametrize("count", [1, 3, 8])
def test_pool_closes_files_when_the_process_has_no_free_descriptor(
    tmp_path: Path, count: int
) -> None:
    system = FewDescriptors()
    system.free = count
    pool = FilePool(system, 100)
    files = [PooledFile(pool, str(tmp_path / str(n)), READ_WRITE) for n in range(2 * count)]
    for _ in range(2):
        for file in files:
            assert file.open().fd >= 0
    for file in files:
        file.retire()
    assert system.free == count


def test_file_cannot_be_opened_when_regions_hold_all_descriptors(tmp_path: Path) -> None:
    system = FewDescriptors()
    system.free = 2
    pool = FilePool(system, 100)
    files = [PooledFile(pool, str(tmp_path / str(n)), READ_WRITE) for n in range(3)]
    held = [file.open() for file in files[:2]]
    with pytest.raises(OSError, match="too many open files"):
        files[2].open()
    held.clear()
    assert files[2].open().fd >= 0


def test_pool_that_lacked_descriptors_grows_slowly(tmp_path: Path) -> None:
    """Otherwise it takes the descriptors that it has closed for other files."""
    pool = FilePool(RealFiles(), 128)
    files = [PooledFile(pool, str(tmp_path / str(n)), READ_WRITE) for n in range(20)]
    for file in files:
        file.open()
    pool.make_room()
    for size in (15, 17, 19, 20):
        for file in files:
            file.open()
        assert len(pool) == size
        pool.grow()
    for file in files:
        file.retire()


def test_large_pool_closes_a_limited_number_of_files_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop makes room for refused appends. 2,500 files would take 15 ms."""
    monkeypatch.setattr(file_pool, "EVICTED_MAX", 2)
    pool = FilePool(RealFiles(), 128)
    files = [PooledFile(pool, str(tmp_path / str(n)), READ_WRITE) for n in range(20)]
    for file in files:
        file.open()
    for size in (18, 16):
        pool.make_room()
        assert len(pool) == size
    for file in files:
        file.retire()


def test_an_eviction_skips_a_limited_number_of_used_files(tmp_path: Path) -> None:
    count = file_pool.SECOND_CHANCES_MAX + 10
    pool = FilePool(RealFiles(), count)
    files = [PooledFile(pool, str(tmp_path / str(n)), READ_WRITE) for n in range(count + 1)]
    for file in files:
        file.open()
    closed = [at for at, file in enumerate(files) if file.handle is None]
    assert closed == [file_pool.SECOND_CHANCES_MAX]
    assert sum(file.used for file in files[:-1]) == 10
    for file in files:
        file.retire()
    assert len(pool._descriptors) == 0
