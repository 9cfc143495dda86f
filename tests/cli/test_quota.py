"""`odradek quota` against a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.testing import Broker

from .conftest import Cli

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cli() -> Iterator[Cli]:
    """A command line for a separate broker, because tests alter the default quotas."""
    with Broker() as broker:
        yield Cli(broker.bootstrap_servers)


def test_quotas_are_set_listed_and_deleted(cli: Cli) -> None:
    assert cli.json("quota", "list") == []
    rates = ("--quota", "producer_byte_rate=1000", "-q", "consumer_byte_rate=2000")
    assert "altered" in cli.ok("quota", "set", "client-id=app", *rates)
    cli.ok("quota", "set", "user=default", "-q", "producer_byte_rate=5")
    cli.ok("quota", "set", "user=alice", "client-id=app", "-q", "producer_byte_rate=7")
    assert [(r["entity"], r["quota"], r["value"]) for r in cli.json("quota", "list")] == [
        ("client-id=app", "consumer_byte_rate", 2000.0),
        ("client-id=app", "producer_byte_rate", 1000.0),
        ("user=alice client-id=app", "producer_byte_rate", 7.0),
        ("user=default", "producer_byte_rate", 5.0),
    ]
    cli.ok("quota", "delete", "client-id=app", "-q", "consumer_byte_rate")
    cli.ok("quota", "delete", "user=default")
    assert [r["entity"] for r in cli.json("quota", "list")] == [
        "client-id=app",
        "user=alice client-id=app",
    ]
    assert "user=alice" in cli.ok("quota", "list")


def test_set_and_delete_report_their_changes_in_json(cli: Cli) -> None:
    target = ("client-id=app", "user=alice")
    altered = cli.json("quota", "set", *target, "-q", "producer_byte_rate=7")
    entity = cli.json("quota", "list")[0]["entity"]
    assert altered == {"entity": entity, "set": {"producer_byte_rate": 7.0}, "deleted": []}
    altered = cli.json("quota", "delete", *target)
    assert altered == {"entity": entity, "set": {}, "deleted": ["producer_byte_rate"]}


def test_list_is_filtered_by_entity(cli: Cli) -> None:
    for entity in ("user=alice", "user=default", "client-id=app"):
        cli.ok("quota", "set", entity, "-q", "producer_byte_rate=1")

    def listed(*entities: str) -> list[str]:
        return [row["entity"] for row in cli.json("quota", "list", *entities)]

    assert listed("user") == ["user=alice", "user=default"]
    assert listed("user=alice") == ["user=alice"]
    assert listed("user=default") == ["user=default"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "user=alice"), "Nothing to set"),
        (("set", "alice", "-q", "producer_byte_rate=1"), "type=name"),
        (("set", "group=g", "-q", "producer_byte_rate=1"), "An entity is user="),
        (("set", "user=alice", "-q", "producer_byte_rate=fast"), "takes a number"),
        (("set", "user=alice", "-q", "no_such_rate=1"), "no_such_rate"),
        (
            ("set", "client-id=a", "client-id=b", "-q", "producer_byte_rate=1"),
            "more than one entity",
        ),
        (("delete", "client-id=a", "client-id=b"), "more than one entity"),
        (("delete", "user=alice"), "has no quotas"),
    ],
)
def test_refusals_are_one_line(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    result = cli("quota", *arguments)
    assert result.exit_code == 1
    assert message in str(result.exception)
