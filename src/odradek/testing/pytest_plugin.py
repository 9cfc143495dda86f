"""A pytest plugin: the `kafka` fixture is a broker that nobody has used yet.

One broker runs per test process (each xdist worker has its own, on its own port) and starts with
the first test that asks; it is reset around each test. A test that needs configs of its own makes a
`Broker`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import Broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """The broker of this test process, with whatever earlier tests left in it."""
    from odradek.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka(kafka_broker: Broker) -> Iterator[Broker]:
    """A broker without topics, groups or offsets: `kafka.bootstrap_servers`."""
    # Before, too: whoever used `kafka_broker` itself may have left something there.
    kafka_broker.reset()
    yield kafka_broker
    kafka_broker.reset()
