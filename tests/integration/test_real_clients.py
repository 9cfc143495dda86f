"""Round trips of other projects' clients, with every compression and with idempotence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.testing import Broker

confluent_kafka = pytest.importorskip("confluent_kafka")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"a", b"", b"b" * 5000, "ünïcode".encode(), b"c"]
TIMEOUT_S = 120
HEADERS = [("h", b"1"), ("h", b""), ("n", None)]


def confluent_produce(broker: Broker, **options: Any) -> list[int]:
    """Send VALUES with keys and headers, and a tombstone. Return their offsets."""
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, **options}
    )
    for number, value in enumerate([*VALUES, None]):
        producer.produce(
            "t", value, str(number).encode(), partition=0, headers=HEADERS, on_delivery=delivered
        )
    assert producer.flush(TIMEOUT_S) == 0
    return offsets


def confluent_consume(broker: Broker, count: int, offset: int = 0) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, offset)])
        messages = consumer.consume(count, TIMEOUT_S)
        assert [message.error() for message in messages] == [None] * count
        return messages  # type: ignore[no-any-return]
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka_round_trip(broker: Broker, codec: str, idempotent: bool) -> None:
    broker.create_topic("t")
    options = {"compression.type": codec, "enable.idempotence": idempotent}
    assert confluent_produce(broker, **options) == list(range(6))
    messages = confluent_consume(broker, 6)
    assert [message.value() for message in messages] == [*VALUES, None]
    assert [message.key() for message in messages] == [b"%d" % n for n in range(6)]
    assert messages[0].headers() == HEADERS
    assert [message.offset() for message in confluent_consume(broker, 2, 4)] == [4, 5]


def test_first_send_creates_a_missing_topic(broker: Broker) -> None:
    assert confluent_produce(broker) == list(range(6))


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_round_trip(broker: Broker, codec: str) -> None:
    kafka = pytest.importorskip("kafka")
    broker.create_topic("t")
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        request_timeout_ms=TIMEOUT_S * 1000,
        bootstrap_timeout_ms=TIMEOUT_S * 1000,
        max_block_ms=TIMEOUT_S * 1000,
        delivery_timeout_ms=2 * TIMEOUT_S * 1000,
    )
    for value in [*VALUES, None]:
        producer.send("t", value, b"k", headers=[("h", b"1")])
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        consumer_timeout_ms=TIMEOUT_S * 1000,
        request_timeout_ms=TIMEOUT_S * 1000,
        bootstrap_timeout_ms=TIMEOUT_S * 1000,
    )
    consumer.assign([kafka.TopicPartition("t", 0)])
    consumer.seek_to_beginning()
    got = [next(consumer) for _ in range(6)]
    consumer.close()
    assert [record.value for record in got] == [*VALUES, None]
    assert got[0].headers == [("h", b"1")]


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_round_trip(broker: Broker, codec: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")
    broker.create_topic("t")

    async def main() -> list[Any]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            request_timeout_ms=TIMEOUT_S * 1000,
        ) as producer:
            for value in [*VALUES, None]:
                await producer.send_and_wait("t", value, b"k")
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=TIMEOUT_S * 1000
        ) as consumer:
            partition = aiokafka.TopicPartition("t", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await consumer.getone()).value for _ in range(6)]

    assert asyncio.run(asyncio.wait_for(main(), TIMEOUT_S)) == [*VALUES, None]


def test_large_message_within_the_limits(broker: Broker) -> None:
    broker.create_topic("t", config={"max.message.bytes": 5_000_000})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 4_000_000}
    )
    producer.produce("t", bytes(3_000_000), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    (message,) = confluent_consume(broker, 1)
    assert len(message.value()) == 3_000_000


def test_seek_by_time(broker: Broker) -> None:
    broker.create_topic("t")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for hour in range(1, 6):
        producer.produce("t", b"x", partition=0, timestamp=1_700_000_000_000 + hour * 3_600_000)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"}
    )
    try:
        requested = confluent_kafka.TopicPartition("t", 0, 1_700_000_000_000 + 3 * 3_600_000 - 5)
        (found,) = consumer.offsets_for_times([requested], TIMEOUT_S)
        assert found.offset == 2
        assert consumer.get_watermark_offsets(requested, TIMEOUT_S) == (0, 5)
    finally:
        consumer.close()
