"""`odradek config` on groups, which librdkafka does not support."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conftest import Cli


def test_configs_of_groups_are_altered_and_shown(cli: Cli) -> None:
    key = "consumer.session.timeout.ms"
    assert cli.json("config", "describe", "group", "readers") == []
    cli.ok("config", "alter", "group", "readers", "--set", f"{key}=50000")
    [row] = cli.json("config", "describe", "group", "readers")
    assert (row["config"], row["value"], row["source"]) == (key, "50000", "group")
    cli.ok("config", "alter", "group", "readers", "--delete", key)
    assert cli.json("config", "describe", "group", "readers") == []
    refused = cli("config", "alter", "group", "readers", "--set", "no.such.config=1")
    assert "no.such.config" in str(refused.exception)
