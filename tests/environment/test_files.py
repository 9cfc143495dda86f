"""The operating system's files: modes of new ones, and whole writes."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.environment import file_system_sync
from odradek.environment.files import (
    Files,
    PortableFiles,
    RealFiles,
    create_file,
    make_directories,
    make_directory,
    read_file,
    unlink_if_exists,
    write_file,
    write_new_file,
)

FILES: Files = RealFiles()


@pytest.fixture(autouse=True)
def permissive_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_directories_are_private_and_existing_ones_keep_their_mode(tmp_path: Path) -> None:
    existing = tmp_path / "existing"
    existing.mkdir(mode=0o755)
    existing.chmod(0o755)
    make_directories(FILES, str(existing / "a" / "b"))
    make_directories(FILES, str(existing / "a" / "b"))
    make_directory(FILES, str(existing / "a" / "c"))
    make_directory(FILES, str(existing / "a" / "c"))
    assert mode(existing) == 0o755
    assert {mode(existing / each) for each in ("a", "a/b", "a/c")} == {0o700}


def test_a_file_with_the_name_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directories(FILES, str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        make_directories(FILES, str(tmp_path / "file" / "below"))


@pytest.mark.parametrize("sync", [False, True])
def test_files_are_written_completely_and_privately(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "file"
    data = os.urandom(3 * 1_048_576)
    write_file(FILES, str(path), data, sync=sync)
    write_new_file(FILES, str(tmp_path / "new"), b"new", sync=sync)
    create_file(FILES, str(tmp_path / "empty"))
    assert read_file(FILES, str(path)) == data
    assert {each.name: mode(each) for each in tmp_path.iterdir()} == {
        "file": 0o600,
        "new": 0o600,
        "empty": 0o600,
    }
    assert unlink_if_exists(FILES, str(path))
    assert not unlink_if_exists(FILES, str(path))


def test_creating_an_existing_file_does_not_change_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    path.chmod(0o640)
    create_file(FILES, str(path))
    assert (path.read_bytes(), mode(path)) == (b"content", 0o640)


def test_the_portable_file_system_lacks_nowait_and_sendfile() -> None:
    files: Files = PortableFiles()
    assert (files.nowait, files.sends_files) == (None, False)


def test_a_lock_excludes_every_other_broker_until_it_is_released(tmp_path: Path) -> None:
    path, link = str(tmp_path / ".lock"), str(tmp_path / "link")
    lock = FILES.lock(path)
    Path(link).symlink_to(path)
    for name in (path, link):
        with pytest.raises(BlockingIOError):
            FILES.lock(name)
    lock.release()
    lock.release()
    second = FILES.lock(path)
    second.release()


def test_the_time_of_the_last_change_is_copied_to_the_nanosecond(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.touch()
    target.touch()
    os.utime(source, ns=(1, 1_700_000_000_123_456_789))
    FILES.copy_modified(str(source), str(target))
    assert target.stat().st_mtime_ns == source.stat().st_mtime_ns
    assert FILES.modified_ms(str(target)) == 1_700_000_000_123


def test_the_usable_space_is_a_part_of_the_whole(tmp_path: Path) -> None:
    space = FILES.space(str(tmp_path))
    assert 0 < space.usable_bytes <= space.total_bytes


def test_a_tree_is_removed_but_not_what_its_links_name(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (tmp_path / "tree" / "inner" / "empty").mkdir(parents=True)
    kept.mkdir()
    for file in (kept / "file", tmp_path / "tree" / "log", tmp_path / "tree" / "inner" / "index"):
        file.touch()
    (tmp_path / "tree" / "link").symlink_to(kept, target_is_directory=True)
    (tmp_path / "tree" / "inner" / "link").symlink_to(kept / "file")
    FILES.remove_tree(str(tmp_path / "tree"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kept"]
    with pytest.raises(FileNotFoundError):
        FILES.remove_tree(str(tmp_path / "tree"))


def test_file_system_is_synced_also_without_syncfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FILES.sync(str(tmp_path))
    synced: list[str] = []
    monkeypatch.setattr(file_system_sync, "_syncfs", lambda: None)
    monkeypatch.setattr(os, "sync", lambda: synced.append("all"))
    FILES.sync(str(tmp_path))
    assert synced == ["all"]
    with pytest.raises(FileNotFoundError):
        FILES.sync(str(tmp_path / "missing"))


def test_error_of_a_sync_of_the_file_system_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(file_system_sync, "_syncfs", lambda: fail)
    with pytest.raises(OSError, match="nput/output"):
        FILES.sync(str(tmp_path))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_lack_of_space_in_an_fsync_is_an_io_error_which_is_never_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr("odradek.environment.files.sync_file_system", fail)
    path = tmp_path / "file"
    path.touch()
    with path.open("rb") as file, pytest.raises(OSError, match="fsync failed") as raised:
        FILES.fsync(file.fileno())
    assert raised.value.errno == errno.EIO
    for sync in (FILES.fsync_dir, FILES.sync):
        with pytest.raises(OSError, match="fsync failed") as raised:
            sync(str(tmp_path))
        assert raised.value.errno == errno.EIO
