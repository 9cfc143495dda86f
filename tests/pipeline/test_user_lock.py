"""The lock that one user's processes take before they download packages."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.user_lock import user_lock

NAME = "packages.lock"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory, which does not exist yet."""
    path = tmp_path / "home" / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that a planted symlink points to."""
    path = tmp_path / "victim"
    path.write_text("data")
    return path


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_lock_is_private_and_excludes_others_while_it_is_held(cache: Path) -> None:
    path = cache / "odradek" / NAME
    with user_lock(NAME):
        assert mode_of(path.parent) == 0o700
        assert mode_of(path) == 0o600
        with path.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_symlink_planted_in_the_shared_temporary_directory_is_not_followed(
    cache: Path, victim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock was /tmp/odradek-packages-UID.lock, and opening it truncated a symlink's target."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    for name in (NAME, "odradek", f"odradek-packages-{os.getuid()}.lock"):
        (shared / name).symlink_to(victim)
    before = sorted(shared.iterdir())
    with user_lock(NAME):
        assert sorted(shared.iterdir()) == before
    assert victim.read_text() == "data"


def test_symlink_in_place_of_the_lock_is_refused(cache: Path, victim: Path) -> None:
    (cache / "odradek").mkdir(parents=True)
    (cache / "odradek" / NAME).symlink_to(victim)
    with pytest.raises(PipelineError, match=f"{NAME} cannot be opened"), user_lock(NAME):
        pass
    assert victim.read_text() == "data"


def test_symlink_in_place_of_the_directory_is_refused(cache: Path, tmp_path: Path) -> None:
    cache.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (cache / "odradek").symlink_to(elsewhere)
    with pytest.raises(PipelineError, match="cannot be opened"), user_lock(NAME):
        pass
    assert list(elsewhere.iterdir()) == []


def test_directory_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "odradek").mkdir(parents=True)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(PipelineError, match="belongs to another user"), user_lock(NAME):
        pass
    assert list((cache / "odradek").iterdir()) == []


def test_directory_that_others_could_read_is_closed_to_them(cache: Path) -> None:
    (cache / "odradek").mkdir(parents=True)
    (cache / "odradek").chmod(0o755)
    with user_lock(NAME):
        assert mode_of(cache / "odradek") == 0o700


def test_file_of_an_earlier_lock_keeps_its_content(cache: Path) -> None:
    (cache / "odradek").mkdir(parents=True)
    (cache / "odradek" / NAME).write_text("data")
    with user_lock(NAME):
        pass
    assert (cache / "odradek" / NAME).read_text() == "data"


def test_relative_cache_directory_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    with user_lock(NAME):
        assert (tmp_path / ".cache" / "odradek" / NAME).exists()
