"""Commands whose output nobody reads any more (`| head`) end without a word, and with 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.cli.pipe import reader_is_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.testing import Broker

    from .conftest import Cli

# With and without a buffer: the pipe is found closed by the first line, or at the end.
BUFFERS = pytest.mark.parametrize("unbuffered", ["", "1"])


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """The end that is written to of a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def run_into(closed_pipe: int, unbuffered: str, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *arguments],
        stdout=closed_pipe,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    return done.returncode, done.stderr


@BUFFERS
@pytest.mark.parametrize(
    "command",
    [
        "consume t",
        "consume t --json",
        "topic list",
        "topic list --json",
        "topic describe t",
        "group describe readers",
        "group describe readers --json",
        "config describe topic t --all",
        "txn list",
    ],
)
def test_commands_that_print_end_quietly(
    cli: Cli, kafka: Broker, closed_pipe: int, unbuffered: str, command: str
) -> None:
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", input="one\ntwo\n")
    cli.ok("consume", "t", "-g", "readers")
    words = [*command.split(), "--bootstrap-server", kafka.bootstrap_servers]
    assert run_into(closed_pipe, unbuffered, *words) == (0, "")


@BUFFERS
@pytest.mark.parametrize("options", [(), ("--records",), ("--json",)])
def test_log_dump_ends_quietly(
    written: Path, closed_pipe: int, unbuffered: str, options: tuple[str, ...]
) -> None:
    assert run_into(closed_pipe, unbuffered, "log", "dump", str(written), *options) == (0, "")


@BUFFERS
def test_help_ends_quietly(closed_pipe: int, unbuffered: str) -> None:
    _, said = run_into(closed_pipe, unbuffered, "--help")
    assert said == ""


def test_refusal_is_told_although_nobody_reads_the_output(closed_pipe: int, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.log")
    code, said = run_into(closed_pipe, "", "log", "dump", missing)
    assert (code, said) == (1, f"odradek: no such file: {missing}\n")


def test_pipe_that_is_read_is_not_taken_for_a_closed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a BrokenPipeError of another connection would end a command as if all were well."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        there = reader_is_gone()
        os.close(reading)
        gone = reader_is_gone()
        monkeypatch.undo()
    assert (there, gone) == (False, True)


@BUFFERS
def test_output_that_cannot_be_written_is_one_line(unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = run_into(full.fileno(), unbuffered, "--help")
    assert code != 0
    assert said.count("\n") == 1
    assert "No space left on device" in said
