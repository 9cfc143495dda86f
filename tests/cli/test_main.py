"""The root command: its help, its errors and exit codes, and its imports."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from odradek import __version__
from odradek.cli.app import app

HEAVY = ("confluent_kafka", "pyspark", "rich.table", "uvloop", "odradek.broker", "odradek.protocol")


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in ("serve", "topic", "group", "produce", "consume", "pipeline", "demo"):
        assert command in result.stdout


def test_version_is_the_package_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.stdout.strip() == f"odradek {__version__}"


def test_help_imports_nothing_heavy() -> None:
    """`--help` is fast because only the commands import clients, broker and Spark."""
    code = (
        "import sys\n"
        "from odradek.cli.app import app\n"
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["group", "list"],
        ["consume", "t"],
        ["produce", "t"],
        ["txn", "list"],
        ["quota", "list"],
        ["config", "describe", "group", "g"],
    ],
)
def test_no_broker_is_one_clear_line(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The check comes before librdkafka, which would retry for 15 seconds."""
    monkeypatch.setattr("odradek.cli.client.START_PATIENCE_S", 0.0)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", None)
    result = CliRunner().invoke(app, [*arguments, "--bootstrap-server", "127.0.0.1:1"])
    assert result.exit_code == 1
    expected = "No broker responds at 127.0.0.1:1 (Connection refused). Start one with"
    assert str(result.exception).startswith(expected)


def test_a_refusal_is_one_line_and_exit_code_1() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "serve", "--set", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "odradek: --set takes key=value, not 'nonsense'.\n"


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["consume", "t", "--max", "-1"], "--max"),
        (["produce", "t", "--rate", "-1"], "--rate"),
        (["produce", "t", "--rate", "nan"], "--rate"),
        (["produce", "t", "--partition", "-2"], "--partition"),
        (["produce", "t", "--partition", "99999999999"], "--partition"),
        (["topic", "create", "t", "--partitions", "99999999999"], "--partitions"),
        (["topic", "create", "t", "--partitions", "many"], "--partitions"),
        (["topic", "create", "t", "--part", "1"], "--part"),
        (["topic", "creat"], "'creat'"),
        (["topic", "list", "--bootstrap-server", ""], "'' is not of the form HOST:PORT"),
        (["consume", "t", "--bootstrap-server", "broker:port"], "HOST:PORT"),
        (["txn", "list", "--bootstrap-server", ":9092,broker:99999"], "HOST:PORT"),
        (["demo", "--bootstrap-server", "two words"], "HOST:PORT"),
    ],
)
def test_an_invalid_command_line_shows_usage_with_exit_code_2(
    arguments: list[str], culprit: str
) -> None:
    """Scripts can distinguish it from an error of the broker, which has exit code 1."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: ")
    assert "--help' for help." in result.stderr
    assert culprit in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments", [["demo"], ["pipeline", "ingest", "--topics", "t", "--table-dir", "d"]]
)
def test_spark_that_is_not_installed_is_one_line(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "sys.argv[0] = 'odradek'\n"
        "from odradek.cli.main import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "pip install 'odradek[spark]'" in done.stderr
