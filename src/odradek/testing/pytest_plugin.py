"""A pytest plugin with the fixtures `kafka`, a broker without topics, and `kafka_registry`.

One broker runs in each test process, so each xdist worker has a broker with its own port. It starts
with the first test that uses it, and is reset before and after each test. A test that needs other
configs creates a `Broker`. `kafka_registry` is a new schema registry on that broker for each test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import Broker
    from odradek.testing.registry import Registry


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """The broker of this test process, with the topics and groups that earlier tests left."""
    from odradek.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka(kafka_broker: Broker) -> Iterator[Broker]:
    """A broker without topics, groups or offsets. Its address is `kafka.bootstrap_servers`."""
    # Reset before the test too, because tests that use `kafka_broker` leave their topics.
    kafka_broker.reset()
    yield kafka_broker
    kafka_broker.reset()


@pytest.fixture
def kafka_registry(kafka: Broker) -> Iterator[Registry]:
    """A schema registry without schemas on the broker `kafka`. Its address is `url`."""
    from odradek.testing.registry import Registry

    with Registry(kafka) as registry:
        yield registry
