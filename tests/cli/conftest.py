"""Fixtures that run the command line in this process with a real broker."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from odradek.cli.app import app
from odradek.testing import Broker

PATIENCE_S = 120.0
LIMITS = ("REQUEST_TIMEOUT_S", "COMPLETION_TIMEOUT_S", "READ_TIMEOUT_S")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits of commands, because the test machine may be suspended."""
    importlib.import_module("odradek.cli.client")  # modules imported later copy its limits
    for name in [each for each in sys.modules if each.startswith("odradek.cli.")]:
        for limit in LIMITS:
            if hasattr(sys.modules[name], limit):
                monkeypatch.setattr(sys.modules[name], limit, PATIENCE_S)


class Cli:
    """`cli("topic", "list")` runs `odradek topic list` against the fixture's broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def __call__(self, *arguments: str, input: str | bytes | None = None) -> Result:
        command = [*arguments, "--bootstrap-server", self.bootstrap_servers]
        return CliRunner().invoke(app, command, input=input)

    def ok(self, *arguments: str, input: str | bytes | None = None) -> str:
        result = self(*arguments, input=input)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def json_lines(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok(*arguments, "--json").splitlines()]


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a partition with two non-transactional batches and an aborted one."""
    data = tmp_path_factory.mktemp("data")
    with Broker(data_dir=data) as broker:
        broker.create_topic("pages", config={"index.interval.bytes": 1})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        for value in (b"one", b"\xff"):
            producer.produce("pages", value, key=b"k", headers=[("h", b"v")])
            assert producer.flush(PATIENCE_S) == 0
        mover = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "mover"}
        )
        mover.init_transactions(PATIENCE_S)
        mover.begin_transaction()
        mover.produce("pages", b"aborted")
        assert mover.flush(PATIENCE_S) == 0
        mover.abort_transaction(PATIENCE_S)
    return data / "pages-0"


@pytest.fixture
def cli(kafka: Broker) -> Callable[..., Any]:
    return Cli(kafka.bootstrap_servers)
