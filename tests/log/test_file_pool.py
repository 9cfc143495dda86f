"""The pool of open files counts descriptors that are held after their eviction."""

from __future__ import annotations

from pathlib import Path

from odradek.environment.files import READ_WRITE, RealFiles
from odradek.log.file_pool import FilePool, PooledFile


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
