"""Regions of files: read, cut short, held open, probed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from odradek.log.files import UPDATE, OpenFile, RealFiles
from odradek.records import region as region_module
from odradek.records.region import PROBE_STEP_BYTES, FileRegion


@pytest.fixture(autouse=True)
def _probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a broker of this process was told to do without."""
    monkeypatch.setattr(FileRegion, "probes_residency", True)


def is_open(fd: int, held: os.stat_result) -> bool:
    """Whether `fd` still is that file: another thread may have been given the number anew."""
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


def open_file(path: Path) -> OpenFile:
    files = RealFiles()
    return OpenFile(files, files.open(str(path), UPDATE))


def test_reads_its_range_and_less_of_a_file_that_became_short(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(range(100)))
    region = FileRegion(open_file(path), 10, 50)
    assert len(region) == 50
    assert region.read() == bytes(range(10, 60))
    os.truncate(path, 20)
    assert region.read() == bytes(range(10, 20))


def test_holds_its_file_open_until_it_is_closed(tmp_path: Path) -> None:
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
        one.fileno()
    two.close()
    assert not is_open(fd, held)


def test_closed_on_another_thread_during_a_read_the_file_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    region = FileRegion(open_file(path), 0, 10)
    pread = os.pread

    def close_first(fd: int, length: int, position: int) -> bytes:
        region.close()
        return pread(fd, min(length, 4), position)

    monkeypatch.setattr(region_module.os, "pread", close_first)
    assert region.read() == b"0123456789"


def test_what_was_just_written_is_resident(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(100):  # short of memory, the system may have let it go by then
        path.write_bytes(bytes(3 * PROBE_STEP_BYTES))
        region = FileRegion(open_file(path), 5, 2 * PROBE_STEP_BYTES + 7)
        if region.resident() == len(region):
            return
    raise AssertionError("what was written is never resident")


def test_a_cold_page_ends_what_is_resident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(3 * PROBE_STEP_BYTES))
    region = FileRegion(open_file(path), 0, 3 * PROBE_STEP_BYTES)

    def cold_from(boundary: int):
        def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
            if position >= boundary:
                raise OSError(errno.EAGAIN, "would wait for the disk")
            return 1

        return preadv

    monkeypatch.setattr(region_module.os, "preadv", cold_from(PROBE_STEP_BYTES + 1))
    assert region.resident() == PROBE_STEP_BYTES
    monkeypatch.setattr(region_module.os, "preadv", cold_from(0))
    assert region.resident() == 0


def test_what_was_just_read_is_not_probed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100))
    probed: list[int] = []
    cold: list[int] = []

    def preadv(fd: int, buffers: object, position: int, flags: int) -> int:
        probed.append(position)
        if position in cold:
            raise OSError(errno.EAGAIN, "would wait for the disk")
        return 1

    monkeypatch.setattr(region_module, "_RWF_NOWAIT", 8)
    monkeypatch.setattr(region_module.os, "preadv", preadv)
    length = 2 * PROBE_STEP_BYTES + 7
    file = open_file(path)
    assert FileRegion(file, 5, length, begun=True).resident() == length
    assert probed == [5 + PROBE_STEP_BYTES, 5 + 2 * PROBE_STEP_BYTES, 5 + length - 1]
    probed.clear()
    assert FileRegion(file, 5, 10, begun=True).resident() == 10
    assert FileRegion(file, 5, 1, begun=True).resident() == 1
    assert probed == [14, 5]
    cold.append(14)
    assert FileRegion(file, 5, 10, begun=True).resident() == 0


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_file_system_that_cannot_tell_counts_as_resident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100))

    def preadv(*_: object) -> int:
        raise OSError(code, "cannot tell")

    monkeypatch.setattr(region_module.os, "preadv", preadv)
    assert FileRegion(open_file(path), 0, 100).resident() == 100


def test_without_rwf_nowait_all_counts_as_resident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100))
    monkeypatch.setattr(region_module, "_RWF_NOWAIT", None)
    assert FileRegion(open_file(path), 0, 100).resident() == 100


def test_a_process_told_to_do_without_rwf_nowait_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(100))

    def preadv(*_: object) -> int:
        raise AssertionError("probed")

    monkeypatch.setattr(region_module.os, "preadv", preadv)
    monkeypatch.setattr(FileRegion, "probes_residency", False)
    assert FileRegion(open_file(path), 0, 100).resident() == 100
