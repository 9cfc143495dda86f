"""Publication of metadata: dynamic configs that do not fit one broker of a cluster."""

from __future__ import annotations

import asyncio

import pytest

from odradek.config.broker import BrokerConfig
from odradek.ids import BrokerId
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.config_record import ConfigRecord

BROKER = 4
THREADS = "log.cleaner.threads"


def test_dynamic_config_that_does_not_fit_this_broker_leaves_the_others_in_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker must not stop: another one, with a larger buffer, has accepted the config."""
    config = BrokerConfig({"node.id": "1", "log.cleaner.dedupe.buffer.size": str(3 << 20)})
    publisher = MetadataPublisher(config, MetadataImage())
    applied: list[MetadataImage] = []
    publisher.subscribe(lambda _delta, _old, new: applied.append(new))
    delta = MetadataDelta(MetadataImage())
    for name, key, value in (
        ("", "min.insync.replicas", "2"),
        ("", THREADS, "8"),
        ("1", "message.max.bytes", "5000"),
        ("2", "message.max.bytes", "6000"),
    ):
        delta.replay(ConfigRecord(BROKER, name, key, value))
    image = delta.apply(MetadataProvenance(BrokerId(2), 1, 1))
    asyncio.run(publisher.publish(delta, image))
    assert applied == [image]
    assert config.get_int("min.insync.replicas") == 2
    assert config.get_int("message.max.bytes") == 5_000
    assert config.get_int(THREADS) == 1
    assert THREADS in caplog.text
