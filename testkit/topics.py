"""Topics, created and described with a third-party client."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 240.0
BROKER_DEFAULT = -1
LOOK_AGAIN_S = 0.1


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic with librdkafka's admin client. Config names have underscores for dots.

    Its replication factor is the default of the brokers.
    """
    configs = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, partitions, BROKER_DEFAULT, config=configs)
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 3}
    )  # Must outlive its futures.
    for future in admin.create_topics([new]).values():
        future.result(DEADLINE_S)


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
