"""A broker of its own for each test: one starts in a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.testing import Broker
from tests.helpers.wire import WireClient


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
