"""`odradek consume`: start offsets and invalid options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from .conftest import PATIENCE_S

if TYPE_CHECKING:
    from .conftest import Cli


@pytest.fixture
def five(cli: Cli) -> str:
    """A topic with the offsets 0 to 4 in its one partition."""
    cli.ok("topic", "create", "five")
    cli.ok("produce", "five", input="0\n1\n2\n3\n4\n")
    return "five"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-o", "99999999999999999999"], "--offset is at most"),
        (["-o", "-99999999999999999999"], "--offset is at most"),
        (["-t", "99999999999999999999"], "--from-time takes a time in ISO 8601"),
        (["-t", "²"], "--from-time takes a time in ISO 8601"),
        (["-t", ""], "--from-time takes a time in ISO 8601"),
        (["-g", ""], "--group: a group id must not be empty"),
        (["-g", "g", "-t", ""], "--from-time takes a time in ISO 8601"),
        (["-g", "g", "-o", "3"], "--group, --offset is beginning or end"),
        (["-g", "g", "-o", "middle"], "--offset is beginning, end or a number"),
    ],
)
def test_invalid_options_are_one_line(cli: Cli, five: str, arguments: list[str], line: str) -> None:
    result = cli("consume", five, *arguments)
    assert result.exit_code == 1
    assert line in str(result.exception)
    assert result.stdout == ""
    assert cli.json("group", "list") == []


@pytest.mark.parametrize(
    ("arguments", "option"),
    [(["-n", "-1"], "--max"), (["-p", "-1"], "--partition"), (["-p", str(2**31)], "--partition")],
)
def test_numbers_out_of_range_are_refused(
    cli: Cli, five: str, arguments: list[str], option: str
) -> None:
    result = cli("consume", five, *arguments)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


@pytest.mark.parametrize("offset", ["9", "9223372036854775807"])
def test_offset_after_the_end_starts_at_the_end_with_a_warning(
    cli: Cli, five: str, offset: str
) -> None:
    result = cli("consume", five, "-o", offset)
    assert (result.exit_code, result.stdout) == (0, "")
    [line] = result.stderr.splitlines()
    assert f"offset {offset} is out of range of partition 0 (0 to 5)" in line
    assert line.endswith("starting at its end, 5")


def test_offset_before_the_beginning_starts_there_with_a_warning(cli: Cli, five: str) -> None:
    _delete_before(cli, five, 3)
    result = cli("consume", five, "-o", "1")
    assert (result.exit_code, result.stdout.split()) == (0, ["3", "4"])
    assert "offset 1 is out of range of partition 0 (3 to 5): starting at its beginning, 3" in (
        result.stderr
    )


@pytest.mark.parametrize("offset", ["0", "4", "5"])
def test_offset_in_range_prints_no_warning(cli: Cli, five: str, offset: str) -> None:
    result = cli("consume", five, "-o", offset)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.split() == [str(each) for each in range(int(offset), 5)]


def test_partitions_that_have_the_offset_are_read_from_it(cli: Cli) -> None:
    cli.ok("topic", "create", "two", "-p", "2")
    cli.ok("produce", "two", "-p", "0", input="a\nb\nc\n")
    cli.ok("produce", "two", "-p", "1", input="d\n")
    result = cli("consume", "two", "-o", "2")
    assert (result.exit_code, result.stdout) == (0, "c\n")
    assert "out of range of partition 1 (0 to 1)" in result.stderr


def test_partition_named_twice_is_read_once(cli: Cli, five: str) -> None:
    assert cli.ok("consume", five, "-p", "0", "-p", "0").split() == ["0", "1", "2", "3", "4"]


def test_time_before_1970_is_the_beginning(cli: Cli, five: str) -> None:
    # One ms before 1970 would be -1, which a broker takes for the end of the partition.
    arguments = ["-t", "1969-12-31T23:59:59.999+00:00"]
    assert cli.ok("consume", five, *arguments).split() == ["0", "1", "2", "3", "4"]


def _delete_before(cli: Cli, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": cli.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(timeout=PATIENCE_S)
