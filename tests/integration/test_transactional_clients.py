"""confluent-kafka's transactional producer and a read_committed consumer.

Committed records are read once and in order, aborted records never. A fenced producer can no longer
write.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.testing import Broker

confluent_kafka = pytest.importorskip("confluent_kafka")
TopicPartition = confluent_kafka.TopicPartition
KafkaError = confluent_kafka.KafkaError
TIMEOUT_S = 120


@pytest.fixture(params=[1, 2], ids=["version-1", "version-2"])
def level(request: pytest.FixtureRequest, broker: Broker) -> int:
    """transaction.version of the cluster. At either level, librdkafka uses version 1."""

    async def finalize(server: BrokerServer) -> None:
        changes = {"transaction.version": request.param}
        assert await server.services.controller.update_features(changes) is None

    broker.call(finalize)
    return int(request.param)


@pytest.fixture
def topic(broker: Broker, level: int) -> str:
    broker.create_topic("t", 2)
    return "t"


@pytest.fixture
def producers(broker: Broker) -> Iterator[Any]:
    """Function that makes initialized producers of the transactional id "x"."""
    made = []

    def make(**options: Any) -> Any:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": "x",
                "linger.ms": 0,
                **options,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        producer.purge()
    made.clear()
    gc.collect()


def send(producer: Any, topic: str, *values: str) -> None:
    """Send the records of one transaction, alternating between both partitions, and flush them."""
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % 2)
    producer.flush(TIMEOUT_S)


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> list[list[str]]:
    """Return the values in both partitions as a consumer with this isolation level reads them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[list[str]] = [[], []]
    ended = set()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in (0, 1)])
        while len(ended) < 2:
            [message] = consumer.consume(1, TIMEOUT_S)
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ended.add(message.partition())
            else:
                found[message.partition()].append(message.value().decode())
    finally:
        consumer.close()
    return found


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    broker: Broker, topic: str, producers: Any
) -> None:
    producer = producers()
    for number, committed in enumerate([True, False, True, False, True]):
        producer.begin_transaction()
        send(producer, topic, f"a{number}", f"b{number}", f"c{number}")
        if committed:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    expected = [
        [f"{letter}{number}" for number in (0, 2, 4) for letter in "ac"],
        ["b0", "b2", "b4"],
    ]
    assert read(broker, topic) == expected
    every = [f"{letter}{number}" for number in range(5) for letter in "ac"]
    assert read(broker, topic, "read_uncommitted")[0] == every


def test_open_transaction_and_later_records_are_not_read(
    broker: Broker, topic: str, producers: Any
) -> None:
    producer = producers()
    producer.begin_transaction()
    send(producer, topic, "a", "b")
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    plain.produce(topic, b"plain", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    assert read(broker, topic) == [[], []]
    producer.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [["a", "plain"], ["b"]]


def test_empty_transactions_may_be_ended(broker: Broker, topic: str, producers: Any) -> None:
    producer = producers()
    producer.begin_transaction()
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, topic, "a")
    producer.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [["a"], []]


def test_second_producer_fences_the_first_and_aborts_its_transaction(
    broker: Broker, topic: str, producers: Any
) -> None:
    first = producers()
    first.begin_transaction()
    send(first, topic, "lost", "lost")
    second = producers()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        first.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    send(second, topic, "kept")
    second.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [["kept"], []]


def described(broker: Broker) -> str:
    async def state(server: BrokerServer) -> str:
        return server.services.transactions.describe("x").state.kafka_name

    return broker.call(state)


def test_timed_out_transaction_is_aborted(broker: Broker, topic: str, producers: Any) -> None:
    producer = producers(**{"transaction.timeout.ms": 600_000})
    producer.begin_transaction()
    send(producer, topic, "late", "late")

    broker.advance(300)
    assert described(broker) == "Ongoing"
    broker.advance(301)
    broker.call(lambda server: server.services.transactions.completions.done())
    assert described(broker) == "CompleteAbort"
    assert read(broker, topic) == [[], []]
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError._FENCED
    again = producers()
    again.begin_transaction()
    send(again, topic, "on time")
    again.commit_transaction(TIMEOUT_S)
    assert read(broker, topic) == [["on time"], []]


def test_offsets_are_committed_with_the_transaction(
    broker: Broker, topic: str, producers: Any
) -> None:
    """Consume, transform and produce twice. The input of an aborted transaction is read again."""
    producer = producers()
    producer.begin_transaction()
    send(producer, topic, "1", "2", "3")
    producer.commit_transaction(TIMEOUT_S)
    broker.create_topic("out", 2)
    options = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    for committed in (False, True):
        consumer = confluent_kafka.Consumer(options)
        consumer.subscribe([topic])
        messages = []
        while len(messages) < 3:
            found = consumer.consume(3 - len(messages), TIMEOUT_S)
            assert found
            messages += [each for each in found if each.error() is None]
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value() * 2, partition=0)
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        if committed:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
        stored = {each.partition: each.offset for each in consumer.committed(offsets, TIMEOUT_S)}
        # Three records. The position includes the marker after the two records of partition 0.
        assert (min(stored.values()) > 0) is committed, stored
        consumer.close()
    assert sorted(read(broker, "out")[0]) == ["11", "22", "33"]


def test_restart_between_prepare_and_complete_commits(tmp_path: Any) -> None:
    """The broker stops when Prepare is durable, before the markers. The next broker writes them."""
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 2)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        send(producer, "t", "a", "b")

        async def hold(server: BrokerServer) -> None:
            completions = server.services.transactions.completions
            completions.begin = lambda *_: None  # type: ignore[method-assign]

        broker.call(hold)
        producer.commit_transaction(TIMEOUT_S)
        assert read(broker, "t") == [[], []]
        producer.purge()
    with Broker(data_dir=tmp_path) as broker:
        broker.call(lambda server: server.services.transactions.completions.done())
        assert read(broker, "t") == [["a"], ["b"]]
