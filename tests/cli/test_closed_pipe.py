"""Commands whose output has no reader (`| head`) exit with 0 and without a message."""

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

# Without a buffer the first line finds the pipe closed, with a buffer the flush at the end does.
BUFFERS = pytest.mark.parametrize("unbuffered", ["", "1"])


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """The write end of a pipe whose read end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def run_into(closed_pipe: int, unbuffered: str, *arguments: str) -> tuple[int, str]:
    """Run a command with its output into the pipe. Return exit code and standard error."""
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
    _, stderr = run_into(closed_pipe, unbuffered, "--help")
    assert stderr == ""


def test_error_is_printed_although_the_output_has_no_reader(
    closed_pipe: int, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.log")
    code, stderr = run_into(closed_pipe, "", "log", "dump", missing)
    assert (code, stderr) == (1, f"odradek: {missing} does not exist. Check the path.\n")


def test_pipe_with_a_reader_is_not_reported_as_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a BrokenPipeError of another connection would end a command with exit code 0."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        gone_before_close = reader_is_gone()
        os.close(reading)
        gone_after_close = reader_is_gone()
        monkeypatch.undo()
    assert (gone_before_close, gone_after_close) == (False, True)


@BUFFERS
def test_output_that_cannot_be_written_is_one_line(unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        code, stderr = run_into(full.fileno(), unbuffered, "--help")
    assert code != 0
    assert stderr.count("\n") == 1
    assert "No space left on device" in stderr
