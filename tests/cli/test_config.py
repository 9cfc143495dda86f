"""`odradek config` against a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.cli.output import CommandError
from odradek.testing import Broker

from .conftest import Cli

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cli() -> Iterator[Cli]:
    """A command line for a separate broker, because some tests alter configs of all brokers."""
    with Broker() as broker:
        broker.create_topic("pages")
        yield Cli(broker.bootstrap_servers)


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        ("topic", "pages", "retention.ms", "1000000"),
        ("broker", "1", "log.cleaner.threads", "2"),
    ],
)
def test_altered_configs_are_shown_with_their_source_until_deleted(
    cli: Cli, kind: str, name: str, key: str, value: str
) -> None:
    if kind == "broker":
        name = broker_id(cli)
    before = cli.json("config", "describe", kind, name)
    assert key not in {row["config"] for row in before}
    assert "altered" in cli.ok("config", "alter", kind, name, "--set", f"{key}={value}")
    rows = {row["config"]: row for row in cli.json("config", "describe", kind, name)}
    assert (rows[key]["value"], rows[key]["source"]) == (value, kind)
    cli.ok("config", "alter", kind, name, "--delete", key)
    assert cli.json("config", "describe", kind, name) == before


def test_default_of_all_brokers_applies_to_a_broker_without_its_own_value(cli: Cli) -> None:
    key = "log.cleaner.threads"
    cli.ok("config", "alter", "broker", "default", "--set", f"{key}=2")
    [row] = cli.json("config", "describe", "broker", "default")
    assert (row["config"], row["value"], row["source"]) == (key, "2", "brokers")
    rows = {row["config"]: row for row in cli.json("config", "describe", "broker", broker_id(cli))}
    assert (rows[key]["value"], rows[key]["source"]) == ("2", "brokers")
    cli.ok("config", "alter", "broker", "default", "--delete", key)
    assert cli.json("config", "describe", "broker", "default") == []


def test_alter_reports_its_changes_in_json(cli: Cli) -> None:
    target = ("config", "alter", "topic", "pages")
    done = {"kind": "topic", "name": "pages"}
    altered = cli.json(*target, "--set", "retention.ms=1000")
    assert altered == {**done, "set": {"retention.ms": "1000"}, "deleted": []}
    altered = cli.json(*target, "--delete", "retention.ms")
    assert altered == {**done, "set": {}, "deleted": ["retention.ms"]}


def test_all_shows_defaults_too(cli: Cli) -> None:
    rows = {row["config"]: row for row in cli.json("config", "describe", "topic", "pages", "-a")}
    assert rows["cleanup.policy"] == {
        "config": "cleanup.policy",
        "value": "delete",
        "source": "default",
        "read_only": False,
    }
    assert "cleanup.policy" in cli.ok("config", "describe", "topic", "pages", "--all")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("alter", "topic", "pages"), "Nothing to alter"),
        (("alter", "topic", "pages", "--set", "retention.hours=1"), "retention.hours"),
        (("alter", "topic", "pages", "--set", "novalue"), "--set takes key=value"),
        (("describe", "topic", "none"), "Create it with `odradek topic create none`"),
        (("describe", "topic", ""), "must not be empty"),
        (("alter", "topic", "", "--set", "retention.ms=1"), "must not be empty"),
        (("describe", "broker", "77"), "Broker 77 does not exist"),
        (
            ("alter", "broker", "default", "--set", "log.dirs=/x"),
            "Broker 'default': INVALID_REQUEST",
        ),
    ],
)
def test_refusals_are_one_line(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    result = cli("config", *arguments)
    assert result.exit_code == 1
    if not isinstance(result.exception, CommandError):
        raise AssertionError("not a refusal") from result.exception
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def broker_id(cli: Cli) -> str:
    [topic] = cli.json("topic", "describe", "pages")
    return str(topic["partitions"][0]["leader"])
