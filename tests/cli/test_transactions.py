"""`odradek produce` in transactions, and `odradek consume` at both isolation levels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing import Broker

    from .conftest import Cli

LINES = "one\ntwo\nthree\n"


def consumed(cli: Cli, level: str) -> list[str]:
    return cli.ok("consume", "t", "--isolation-level", level).splitlines()


@pytest.mark.parametrize(
    ("commit_every", "transactions"), [("0", "1 transaction"), ("2", "2 transactions")]
)
def test_committed_lines_are_read_at_both_isolation_levels(
    cli: Cli, kafka: Broker, commit_every: str, transactions: str
) -> None:
    kafka.create_topic("t")
    arguments = ("--transactional-id", "x", "--commit-every", commit_every)
    result = cli("produce", "t", *arguments, input=LINES)
    assert result.exit_code == 0, result.exception
    assert f"3 records to t in {transactions}, committed" in result.stderr
    assert consumed(cli, "read_committed") == ["one", "two", "three"]
    kafka.wait_for_open_transactions(0)
    # Each transaction ends with a marker after its records.
    kafka.wait_for_high_watermark("t", 3 + int(transactions[0]))


def test_aborted_lines_are_read_only_in_read_uncommitted(cli: Cli, kafka: Broker) -> None:
    kafka.create_topic("t")
    cli.ok("produce", "t", "--transactional-id", "x", "--abort", input=LINES)
    cli.ok("produce", "t", "--transactional-id", "x", input="four\n")
    assert consumed(cli, "read_committed") == ["four"]
    assert consumed(cli, "read_uncommitted") == ["one", "two", "three", "four"]


def test_json_reports_the_transactions(cli: Cli, kafka: Broker) -> None:
    kafka.create_topic("t")
    arguments = ("--transactional-id", "x", "--commit-every", "2", "--json")
    sent = json.loads(cli.ok("produce", "t", *arguments, input=LINES))
    assert (sent["records"], sent["transactions"], sent["committed"]) == (3, 2, True)
    # There is a marker between the transactions.
    assert sent["partitions"] == [{"partition": 0, "first_offset": 0, "last_offset": 3}]
    sent = json.loads(cli.ok("produce", "t", *arguments, "--abort", input=LINES))
    assert (sent["transactions"], sent["committed"]) == (2, False)


def test_empty_input_begins_no_transaction(cli: Cli, kafka: Broker) -> None:
    kafka.create_topic("t")
    result = cli("produce", "t", "--transactional-id", "x", input="")
    assert "0 records to t in 0 transactions" in result.stderr


def test_invalid_options_of_transactions_are_refused(cli: Cli, kafka: Broker) -> None:
    kafka.create_topic("t")
    assert "need a --transactional-id" in str(cli("produce", "t", "--abort", input="").exception)
    refused = cli("consume", "t", "--isolation-level", "serializable")
    assert "read_committed, read_uncommitted" in str(refused.exception)
