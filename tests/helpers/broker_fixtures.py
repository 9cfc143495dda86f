"""Fixtures: a broker for each test, which starts in a few milliseconds, and a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.stopping import StopLimits
from odradek.testing import Broker
from testkit.wire import WireClient


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give brokers 40 seconds for each step of a stop, and for each response of the controller.

    With the default limits a stop skips steps on a slow machine, and a request does not wait for
    its topics. The tests must not depend on the speed of the machine.
    """
    patient = StopLimits(40e3, 41e3, 42e3, 43e3, 44e3)
    monkeypatch.setattr("odradek.broker.broker.STOP_LIMITS", patient)
    monkeypatch.setattr("odradek.testing.broker.STOP_LIMITS", patient)
    monkeypatch.setattr("odradek.broker.broker.BLOCK_WAIT_MS", 40e3)
    monkeypatch.setattr("odradek.broker.requests.auto_topic_creation_manager.WAIT_MS", 40e3)


@pytest.fixture
def config() -> dict[str, Any]:
    """The broker configs of the test, which a test may parametrize or override."""
    return {}


@pytest.fixture
def broker(config: dict[str, Any]) -> Iterator[Broker]:
    with Broker(config) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as connected:
        yield connected
