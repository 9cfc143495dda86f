"""Local files: nothing is overwritten, and no directory moves into another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.pipeline.sinks.local_files import LocalFiles

FILES = LocalFiles()


def test_created_file_is_whole_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "new" / "1.json"
    FILES.create_text(str(path), "first")
    with pytest.raises(FileExistsError):
        FILES.create_text(str(path), "second")
    assert FILES.read_text(str(path)) == "first"
    assert FILES.list_names(str(path.parent)) == ["1.json"]
    FILES.replace_text(str(path), "third")
    assert path.read_text() == "third"
    assert FILES.list_names(str(path.parent)) == ["1.json"]


def test_created_file_has_the_mode_of_an_ordinary_file(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    FILES.create_text(f"{tmp_path}/1", "text")
    assert (tmp_path / "1").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_directory_never_moves_into_or_over_another_one(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    with pytest.raises(FileExistsError):
        FILES.rename_directory(f"{tmp_path}/old", f"{tmp_path}/new")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        FILES.rename_directory(f"{tmp_path}/old", f"{tmp_path}/file")
    assert FILES.list_names(f"{tmp_path}/new") == ["new"]
    with pytest.raises(FileNotFoundError):
        FILES.rename_directory(f"{tmp_path}/old", f"{tmp_path}/deep/er")
    FILES.make_directory(f"{tmp_path}/deep")
    FILES.rename_directory(f"{tmp_path}/old", f"{tmp_path}/deep/er")
    assert FILES.list_names(f"{tmp_path}/deep/er") == ["old"]
    with pytest.raises(FileNotFoundError):
        FILES.rename_directory(f"{tmp_path}/old", f"{tmp_path}/deep/second")


def test_file_never_moves_over_another_one_and_not_without_its_source(tmp_path: Path) -> None:
    FILES.create_text(f"{tmp_path}/a", "a")
    FILES.create_text(f"{tmp_path}/b", "b")
    with pytest.raises(FileExistsError):
        FILES.move_file(f"{tmp_path}/a", f"{tmp_path}/b")
    assert (tmp_path / "b").read_text() == "b"
    with pytest.raises(FileNotFoundError):
        FILES.move_file(f"{tmp_path}/a", f"{tmp_path}/c/d")
    FILES.move_file(f"{tmp_path}/a", f"{tmp_path}/d")
    assert (tmp_path / "d").read_text() == "a"
    with pytest.raises(FileNotFoundError):
        FILES.move_file(f"{tmp_path}/a", f"{tmp_path}/e")


def test_missing_paths_are_empty_and_deleted_already(tmp_path: Path) -> None:
    assert FILES.list_names(f"{tmp_path}/x") == []
    assert not FILES.exists(f"{tmp_path}/x")
    FILES.delete(f"{tmp_path}/x")
    FILES.create_text(f"{tmp_path}/d/e/f", "")
    FILES.delete(f"{tmp_path}/d")
    assert not FILES.exists(f"{tmp_path}/d")
