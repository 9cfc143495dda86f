"""A broker of its own for each test: one starts in a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.testing import Broker
from tests.helpers.wire import WireClient


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is told to stop does not wait long for the disk and for clients. Here it does:
    what it does on the way must not depend on how fast the machine is.
    """
    monkeypatch.setattr("odradek.broker.broker.STOP_GRACE_S", 40.0)
    monkeypatch.setattr("odradek.broker.broker.STOP_CLOSED_MS", 40_000.0)


@pytest.fixture
def config() -> dict[str, Any]:
    """Broker configs of the test; a test parametrizes or overrides it."""
    return {}


@pytest.fixture
def broker(config: dict[str, Any]) -> Iterator[Broker]:
    with Broker(config) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as connected:
        yield connected
