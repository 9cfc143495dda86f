"""The commands that the demo prints run in the user's shell."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from odradek import __version__
from odradek.demo import events
from odradek.demo.commands import commands, program
from odradek.demo.run import ACCESS_LOG_LINE


def install(directory: Path) -> Path:
    """Create an executable script `odradek` in `directory`."""
    directory.mkdir(parents=True)
    script = directory / "odradek"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script of the running venv, in the current directory and not on the PATH."""
    script = install(tmp_path / "venv" / "bin")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setattr(sys, "argv", ["/somewhere/odradek/__main__.py", "demo"])
    return script


def test_program_outside_the_path_is_named_by_its_own_path(venv: Path) -> None:
    assert program() == "venv/bin/odradek"


def test_program_on_the_path_is_named_by_its_name(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(venv.parent))
    assert program() == "odradek"


def test_another_program_of_the_same_name_on_the_path_is_not_used(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(install(tmp_path / "other").parent))
    assert program() == "venv/bin/odradek"


def test_program_in_the_current_directory_is_named_with_a_slash(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(venv.parent)
    assert program() == "./odradek"


def test_program_in_another_directory_is_named_by_its_quoted_full_path(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "it's away"
    script = install(away)
    monkeypatch.chdir(venv.parent)
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    assert shlex.split(program()) == [str(script)]


def test_without_a_script_the_program_is_a_module(venv: Path) -> None:
    venv.unlink()
    assert program() == "venv/bin/python -m odradek"


def test_the_program_of_this_installation_runs() -> None:
    result = subprocess.run(f"{program()} --version", shell=True, capture_output=True, text=True)
    assert result.stdout == f"odradek {__version__}\n"


def test_directories_are_quoted(venv: Path) -> None:
    lines = [
        line for _, line in commands("t", Path("my out").absolute(), "--parser raw", "{}", None)
    ]
    assert lines[0] == "venv/bin/odradek serve --data 'my out/broker' &"
    ingest = next(line for line in lines if " pipeline ingest " in line)
    assert shlex.split(ingest)[5:7] == ["--table-dir", "my out/lake"]


def test_record_to_send_reaches_the_program_unchanged(venv: Path) -> None:
    for record in (events.ONE_MORE, ACCESS_LOG_LINE):
        lines = [line for _, line in commands("t", Path("out").absolute(), "", record, None)]
        (echo,) = [line.partition(" | ")[0] for line in lines if " produce " in line]
        sent = subprocess.run(echo, shell=True, capture_output=True, text=True, check=True)
        assert sent.stdout == f"{record}\n"


def test_broker_of_the_user_is_named_and_not_started(venv: Path) -> None:
    lines = [line for _, line in commands("t", Path("out").absolute(), "--parser raw", "{}", "h:1")]
    assert not any(" serve " in line for line in lines)
    assert all("--bootstrap-server h:1" in line for line in lines if " sql " not in line)
