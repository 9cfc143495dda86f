"""`odradek log dump` on files that a real broker wrote, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from odradek.cli.app import app


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["log", "dump", *map(str, arguments)])


def entries(*arguments: object) -> list[dict[str, Any]]:
    result = dump(*arguments, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def directory(written: Path, tmp_path: Path) -> Path:
    """A copy of the partition's directory that a test may damage."""
    for path in written.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def file_of(directory: Path, suffix: str) -> Path:
    return sorted(directory.glob(f"*{suffix}"))[-1]


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_log_is_shown_batch_by_batch(directory: Path) -> None:
    found = entries(file_of(directory, ".log"))
    assert [(each["base_offset"], each["last_offset"]) for each in found] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
    ]
    assert [each["transactional"] for each in found] == [False, False, True, True]
    assert found[3]["marker"] == "abort"
    assert "records" not in found[0]


def test_records_are_shown_when_asked_for(directory: Path) -> None:
    first, second, *_ = entries(file_of(directory, ".log"), "--records")
    assert first["records"][0]["value"] == "one"
    assert first["records"][0]["headers"] == [{"key": "h", "value": "v"}]
    assert second["records"][0]["value_base64"] == "/w=="
    assert "value one" in dump(file_of(directory, ".log"), "-r").stdout


def test_all_files_of_a_directory_are_shown_without_errors(directory: Path) -> None:
    found = entries(directory)
    kinds = {Path(each["file"]).suffix for each in found}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    [aborted] = [each for each in found if each["file"].endswith(".txnindex")]
    assert (aborted["first_offset"], aborted["last_offset"]) == (2, 3)
    assert all("error" not in each for each in found)


@pytest.mark.parametrize(
    ("suffix", "position", "message"),
    [
        (".log", 70, "wrong CRC"),
        (".index", 7, "no batch begins at this position"),
        (".timeindex", 0, "larger timestamp"),
        (".txnindex", 9, "no abort marker of this producer"),
        (".snapshot", -1, "wrong CRC"),
    ],
)
def test_damage_is_found(directory: Path, suffix: str, position: int, message: str) -> None:
    path = file_of(directory, suffix)
    if suffix == ".timeindex":
        path.write_bytes(bytes(7) + b"\1" + path.read_bytes()[8:])
    else:
        damage(path, position)
    result = dump(path)
    assert result.exit_code == 1
    assert message in result.stdout
    assert "errors were found" in str(result.exception)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_torn_end_is_found(directory: Path, suffix: str) -> None:
    path = file_of(directory, suffix)
    path.write_bytes(path.read_bytes()[:-1])
    result = dump(path, "--json")
    assert result.exit_code == 1
    assert any("error" in json.loads(line) for line in result.stdout.splitlines())


def test_other_files_and_empty_directories_are_refused(directory: Path) -> None:
    other = directory / "other.txt"
    other.write_text("x")
    assert "other.txt is not a .log" in str(dump(other).exception)
    assert "does not exist" in str(dump(directory / "missing.log").exception)
    empty = directory / "empty"
    empty.mkdir()
    assert "no segment files" in str(dump(empty).exception)
