"""Completion of commands, options and names in the shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.cli.app import app

if TYPE_CHECKING:
    from odradek.testing import Broker

    from .conftest import Cli


def completed(line: str, bootstrap_servers: str = "127.0.0.1:1") -> list[str]:
    """Return the completions of the last word of `line`."""
    environment = {
        "_ODRADEK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "ODRADEK_BOOTSTRAP_SERVER": bootstrap_servers,
    }
    result = CliRunner().invoke(app, env=environment, prog_name="odradek")
    return result.stdout.split()


def test_commands_and_options_are_completed() -> None:
    assert completed("odradek top") == ["topic"]
    assert completed("odradek topic d") == ["describe", "delete"]
    assert completed("odradek consume t --off") == ["--offset"]


def test_options_of_serve_are_completed() -> None:
    offered = completed("odradek serve --")
    assert offered == ["--listen", "--data", "--config", "--set", "--log-level", "--help"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("odradek topic describe pa", ["pages"]),
        ("odradek consume ", ["pages", "visits"]),
        ("odradek group describe ", ["readers"]),
        ("odradek group delete re", ["readers"]),
        ("odradek config describe broker ", ["1", "default"]),
    ],
)
def test_existing_names_are_completed(cli: Cli, kafka: Broker, line: str, names: list[str]) -> None:
    for topic in ("pages", "visits"):
        cli.ok("topic", "create", topic)
    cli.ok("produce", "pages", input="x\n")
    cli.ok("consume", "pages", "-g", "readers", "-n", "1")
    found = completed(line, kafka.bootstrap_servers)
    assert [each for each in found if not each.startswith("__")] == names


def test_without_a_broker_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.cli.client.COMPLETION_TIMEOUT_S", 0.2)
    assert completed("odradek topic describe ") == []
