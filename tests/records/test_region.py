"""Regions of files: read, truncated, kept open, probed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from odradek.environment.files import UPDATE, OpenFile, RealFiles
from odradek.records.region import PROBE_STEP_BYTES, FileRegion


def is_open(fd: int, held: os.stat_result) -> bool:
    """Return whether `fd` still is that file. Another thread may have reused the number."""
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


class ProbedFiles(RealFiles):
    """Files whose `probe` decides the result of a read that must not wait for the disk."""

    nowait = 8

    def __init__(self, probe: Callable[[int], int]) -> None:
        self.probe = probe

    def preadv(  # type: ignore[override]
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int
    ) -> int:
        return self.probe(position) if flags else RealFiles.preadv(fd, buffers, position, flags)


class FilesWithoutNowait(ProbedFiles):
    """A system without RWF_NOWAIT."""

    nowait = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(lambda position: 1)


def open_file(path: Path, files: RealFiles | None = None) -> OpenFile:
    files = files or RealFiles()
    return OpenFile(files, files.open(str(path), UPDATE))


def test_region_reads_its_range_and_less_of_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(range(100)))
    region = FileRegion(open_file(path), 10, 50)
    assert len(region) == 50
    assert region.read() == bytes(range(10, 60))
    os.truncate(path, 20)
    assert region.read() == bytes(range(10, 20))


def test_region_keeps_its_file_open_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"still here")
    file = open_file(path)
    fd, held = file.fd, os.fstat(file.fd)
    one, two = FileRegion(file, 0, 5), FileRegion(file, 6, 4)
    del file
    path.unlink()
    one.close()
    one.close()
    assert two.read() == b"here"
    with pytest.raises(ValueError, match="closed"):
        one.read_piece(0, 1)
    two.close()
    assert not is_open(fd, held)


class ClosingFiles(RealFiles):
    """Files that close a region during a read."""

    region: FileRegion

    def pread(self, fd: int, length: int, position: int) -> bytes:  # type: ignore[override]
        self.region.close()
        return RealFiles.pread(fd, min(length, 4), position)


def test_file_stays_open_if_another_thread_closes_the_region_during_a_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    files = ClosingFiles()
    files.region = region = FileRegion(open_file(path, files), 0, 10)
    assert region.read() == b"0123456789"


def test_written_bytes_are_resident(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(100):  # short of memory, the system may have evicted it by then
        path.write_bytes(bytes(3 * PROBE_STEP_BYTES))
        region = FileRegion(open_file(path), 5, 2 * PROBE_STEP_BYTES + 7)
        if region.resident() == len(region):
            return
    raise AssertionError("written bytes are never resident")


def would_wait() -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, "would wait for the disk")


def test_a_cold_page_ends_the_resident_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(3 * PROBE_STEP_BYTES))

    def cold_from(boundary: int) -> ProbedFiles:
        def probe(position: int) -> int:
            if position >= boundary:
                raise would_wait()
            return 1

        return ProbedFiles(probe)

    length = 3 * PROBE_STEP_BYTES
    region = FileRegion(open_file(path, cold_from(PROBE_STEP_BYTES + 1)), 0, length)
    assert region.resident() == PROBE_STEP_BYTES
    assert FileRegion(open_file(path, cold_from(0)), 0, length).resident() == 0


def test_bytes_just_read_are_not_probed_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100))
    probed: list[int] = []
    cold: list[int] = []

    def probe(position: int) -> int:
        probed.append(position)
        if position in cold:
            raise would_wait()
        return 1

    length = 2 * PROBE_STEP_BYTES + 7
    file = open_file(path, ProbedFiles(probe))
    assert FileRegion(file, 5, length, begun=True).resident() == length
    assert probed == [5 + PROBE_STEP_BYTES, 5 + 2 * PROBE_STEP_BYTES, 5 + length - 1]
    probed.clear()
    assert FileRegion(file, 5, 10, begun=True).resident() == 10
    assert FileRegion(file, 5, 1, begun=True).resident() == 1
    assert probed == [14, 5]
    cold.append(14)
    assert FileRegion(file, 5, 10, begun=True).resident() == 0


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, None])
def test_only_touched_bytes_are_resident_without_nowait_support(
    tmp_path: Path, code: int | None
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100))

    def refuse(position: int) -> int:
        assert code is not None, "probed"
        raise OSError(code, "has no support")

    files = ProbedFiles(refuse) if code is not None else FilesWithoutNowait()
    region = FileRegion(open_file(path, files), 0, 100)
    assert region.resident() == 0
    region.touch(0, 60)
    assert region.resident() == 60
    region.touch(80, 20)
    assert region.resident() == 60, "there is a hole before the last piece"
    region.touch(60, 40)
    assert region.resident() == 100
