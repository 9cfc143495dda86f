"""Topics, created and described with a third-party client."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 240.0
RETRIED = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, -137)
"""Errors of a request whose broker was killed: the topic may exist or not. -137 is librdkafka's
_DESTROY_BROKER, for which its Python binding has no name."""
BROKER_DEFAULT = -1
LOOK_AGAIN_S = 0.1


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic with librdkafka's admin client. Config names have underscores for dots.

    Its replication factor is the default of the brokers. The request is repeated if its broker was
    killed.
    """
    configs = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, partitions, BROKER_DEFAULT, config=configs)
    deadline = time.monotonic() + DEADLINE_S
    is_repeated = False
    while True:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
        (future,) = admin.create_topics([new]).values()
        try:
            future.result(DEADLINE_S)
        except KafkaException as error:
            code = error.args[0].code()
            if is_repeated and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code not in RETRIED or time.monotonic() > deadline:
                raise
        else:
            return
        is_repeated = True
        time.sleep(LOOK_AGAIN_S)


def leader(bootstrap: str, topic: str, partition: int = 0) -> str:
    """Return ``HOST:PORT`` of a partition's leader. Wait until it has one."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = admin.list_topics(topic, timeout=DEADLINE_S)
        partitions = found.topics[topic].partitions
        if partition in partitions and (by := found.brokers.get(partitions[partition].leader)):
            return f"{by.host}:{by.port}"
        assert time.monotonic() < deadline, f"{topic}-{partition} has no leader"
        time.sleep(LOOK_AGAIN_S)
