"""`odradek topic` against a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import Cli


def test_created_topic_is_listed_with_its_partitions_and_records(cli: Cli) -> None:
    assert "created topic pages" in cli.ok("topic", "create", "pages", "-p", "3")
    cli.ok("produce", "pages", input="a\nb\nc\n")
    assert cli.json("topic", "list") == [
        {"topic": "pages", "partitions": 3, "replication_factor": 1, "records": 3}
    ]


def test_table_output_has_a_row_for_each_topic(cli: Cli) -> None:
    cli.ok("topic", "create", "one", "two")
    lines = cli.ok("topic", "list").splitlines()
    assert [line.split()[0] for line in lines if line.split()[:1] in (["one"], ["two"])] == [
        "one",
        "two",
    ]


def test_create_refuses_an_existing_topic_without_if_not_exists(cli: Cli) -> None:
    cli.ok("topic", "create", "pages")
    again = cli("topic", "create", "pages")
    assert again.exit_code == 1
    assert "already exists" in str(again.exception)
    cli.ok("topic", "create", "pages", "--if-not-exists")


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "nope"),
        ("alter", "nope", "--partitions", "3"),
        ("alter", "nope", "--config", "retention.ms=1"),
        ("alter", "nope", "--delete-config", "retention.ms"),
        ("delete", "nope"),
    ],
)
def test_missing_topic_is_named_with_the_command_that_creates_it(
    cli: Cli, arguments: tuple[str, ...]
) -> None:
    result = cli("topic", *arguments)
    assert result.exit_code == 1
    line = "Topic 'nope' does not exist. Create it with `odradek topic create nope`."
    assert str(result.exception) == line


def test_describe_shows_configs_and_offsets(cli: Cli) -> None:
    cli.ok("topic", "create", "pages", "-c", "retention.ms=1000000", "-c", "segment.bytes=2000000")
    cli.ok("produce", "pages", input="a\nb\n")
    [topic] = cli.json("topic", "describe", "pages")
    assert topic["configs"] == {"retention.ms": "1000000", "segment.bytes": "2000000"}
    assert [
        (row["partition"], row["start_offset"], row["end_offset"]) for row in topic["partitions"]
    ] == [(0, 0, 2)]
    assert "retention.ms=1000000" in cli.ok("topic", "describe", "pages")


def test_alter_sets_and_resets_configs_and_adds_partitions(cli: Cli) -> None:
    cli.ok("topic", "create", "pages", "-c", "retention.ms=1000000")
    cli.ok("topic", "alter", "pages", "-p", "4", "-c", "max.message.bytes=5000")
    cli.ok("topic", "alter", "pages", "--delete-config", "retention.ms")
    [topic] = cli.json("topic", "describe", "pages")
    assert topic["configs"] == {"max.message.bytes": "5000"}
    assert len(topic["partitions"]) == 4


def test_alter_refuses_an_unknown_config(cli: Cli) -> None:
    cli.ok("topic", "create", "pages")
    result = cli("topic", "alter", "pages", "-c", "retention.hours=1")
    assert result.exit_code == 1
    assert "retention.hours" in str(result.exception)


def test_deleted_topic_is_gone(cli: Cli) -> None:
    cli.ok("topic", "create", "pages")
    cli.ok("topic", "delete", "pages")
    assert cli.json("topic", "list") == []
    assert cli("topic", "delete", "pages").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["create", "t", "-p", "-5"], "--partitions"),
        (["create", "t", "-p", "99999999999"], "--partitions"),
        (["create", "t", "-r", "-5"], "--replication-factor"),
        (["create", "t", "-r", "99999"], "--replication-factor"),
        (["alter", "pages", "-p", "0"], "--partitions"),
        (["alter", "pages", "-p", "-5"], "--partitions"),
        (["alter", "pages", "-p", "99999999999"], "--partitions"),
    ],
)
def test_number_that_no_broker_takes_is_refused_by_its_option(
    cli: Cli, arguments: list[str], option: str
) -> None:
    cli.ok("topic", "create", "pages")
    result = cli("topic", *arguments)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


def test_minus_one_is_the_default_of_the_broker(cli: Cli) -> None:
    cli.ok("topic", "create", "pages", "-p", "-1", "-r", "-1")
    [topic] = cli.json("topic", "list")
    assert (topic["partitions"], topic["replication_factor"]) == (1, 1)


@pytest.mark.parametrize(
    "arguments",
    [["describe", ""], ["alter", "", "-p", "2"], ["alter", "", "-c", "retention.ms=1"]],
)
def test_empty_name_is_refused(cli: Cli, arguments: list[str]) -> None:
    result = cli("topic", *arguments)
    assert result.exit_code == 1
    assert str(result.exception).startswith("A topic name must not be empty.")


@pytest.mark.parametrize("name", ["nope", ""])
def test_config_that_does_not_exist_is_not_deleted(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", "pages", "-c", "retention.ms=1000000")
    result = cli(
        "topic", "alter", "pages", "--delete-config", name, "--delete-config", "retention.ms"
    )
    assert result.exit_code == 1
    assert str(result.exception).startswith(f"Topic 'pages' has no config {name!r}.")
    [topic] = cli.json("topic", "describe", "pages")
    assert topic["configs"] == {"retention.ms": "1000000"}
