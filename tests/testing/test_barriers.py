"""`Broker.wait_...`: return when the state is reached, or raise with the last state."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

from odradek.testing import Broker, WaitTimeoutError

TIMEOUT_S = 120


def consumer_of(broker: Broker, group: str, topic: str, **options: object) -> Any:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )
    consumer.subscribe([topic])
    return consumer


def produce(broker: Broker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0


def test_group_is_stable_when_all_members_have_joined(kafka: Broker) -> None:
    kafka.create_topic("pages", partitions=3)
    consumers = [consumer_of(kafka, "readers", "pages") for _ in range(3)]
    try:

        def poll() -> None:
            for consumer in consumers:
                consumer.poll(0)

        kafka.wait_until_group_stable("readers", members=3, poll=poll, timeout_s=TIMEOUT_S)
        with pytest.raises(WaitTimeoutError, match=r"with 4 members; seen last: .* 3 members"):
            kafka.wait_until_group_stable("readers", members=4, timeout_s=0.01)
    finally:
        for consumer in consumers:
            consumer.close()
    kafka.wait_until_group_empty("readers", timeout_s=TIMEOUT_S)


def test_error_names_the_expected_state_and_the_last_state(kafka: Broker) -> None:
    expected = 'waited 0 s for group "nobody" to be stable with 2 members; seen last: no '
    with pytest.raises(WaitTimeoutError, match=re.escape(expected)):
        kafka.wait_until_group_stable("nobody", members=2, timeout_s=0)
    kafka.create_topic("pages")
    with pytest.raises(WaitTimeoutError, match=r"the topics \['pages'\]"):
        kafka.wait_for_topic("words", timeout_s=0)
    with pytest.raises(WaitTimeoutError, match=r"of pages-0; seen last: high watermark 0"):
        kafka.wait_for_high_watermark("pages", 1, timeout_s=0)
    with pytest.raises(WaitTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        kafka.wait_for_high_watermark("words", 1, timeout_s=0)


def test_wait_for_a_topic_that_another_client_creates(kafka: Broker) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("pages", b"1")
    kafka.wait_for_topic("pages", timeout_s=TIMEOUT_S)
    kafka.wait_for_high_watermark("pages", 1, timeout_s=TIMEOUT_S)
    assert producer.flush(TIMEOUT_S) == 0


def test_wait_for_a_committed_offset(kafka: Broker) -> None:
    kafka.create_topic("pages")
    produce(kafka, "pages", 3)
    consumer = consumer_of(kafka, "readers", "pages")
    try:
        assert len(consumer.consume(3, TIMEOUT_S)) == 3
        with pytest.raises(WaitTimeoutError, match="no committed offset"):
            kafka.wait_for_committed_offset("readers", "pages", 3, timeout_s=0)
        consumer.commit(offsets=[Position("pages", 0, 3)], asynchronous=True)
        kafka.wait_for_committed_offset("readers", "pages", 3, timeout_s=TIMEOUT_S)
    finally:
        consumer.close()


def test_open_transactions_are_counted(kafka: Broker) -> None:
    kafka.create_topic("pages")
    kafka.wait_for_open_transactions(0, timeout_s=0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "mover"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("pages", b"1")
    kafka.wait_for_open_transactions(1, timeout_s=TIMEOUT_S)
    with pytest.raises(WaitTimeoutError, match=r"seen last: 1 open transaction .*mover"):
        kafka.wait_for_open_transactions(0, timeout_s=0)
    producer.commit_transaction(TIMEOUT_S)
    kafka.wait_for_open_transactions(0, timeout_s=TIMEOUT_S)


def test_wait_until_accepts_any_condition_of_the_test(kafka: Broker) -> None:
    values = iter([0, 0, 7])
    assert kafka.wait_until(lambda: next(values), "a seven") == 7
    with pytest.raises(WaitTimeoutError, match="waited 0 s for rain: it returned 0"):
        kafka.wait_until(lambda: 0, "rain", timeout_s=0)
