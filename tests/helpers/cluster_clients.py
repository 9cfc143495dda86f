"""Clients of librdkafka for tests of clusters, and waits for a state of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from odradek.testing import Cluster
from odradek.testing.barriers import LOOK_AGAIN_S

LIMIT_S = 60.0
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500}


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition is still false"
        time.sleep(LOOK_AGAIN_S)


def produce(
    cluster: Cluster,
    *values: str,
    topic: str = "t",
    idempotent: bool = True,
    timeout_s: float = LIMIT_S,
) -> None:
    """Produce to partition 0 with acks=all. Raise if a record is not committed."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "enable.idempotence": idempotent,
        "acks": "all",
        "message.timeout.ms": int(timeout_s * 1000),
    }
    producer = Producer({**settings, **QUIET})
    errors: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(timeout_s + LIMIT_S) == 0
    if errors:
        raise KafkaException(errors[0])


def read(cluster: Cluster, topic: str = "t") -> list[str]:
    """Return the values of partition 0."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    consumer = Consumer({**settings, "enable.partition.eof": True, **QUIET})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values = []
    while (message := consumer.poll(LIMIT_S)) is not None and message.error() is None:
        values.append(message.value().decode())
    assert message is not None, "nothing was read within the limit"
    consumer.close()
    return values


def leader(cluster: Cluster, topic: str = "t") -> int:
    found = cluster.leader_of(topic)
    assert found is not None
    return found


def plain_follower(cluster: Cluster) -> int:
    """Return a broker that neither leads partition 0 nor is the controller."""
    others = (leader(cluster), cluster.controller())
    return next(each for each in cluster.broker_ids if each not in others)
