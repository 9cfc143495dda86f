"""Creation of topics with a third-party client."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 240.0


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic with librdkafka's admin client. Config names have underscores for dots."""
    new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "log_level": 3}
    )  # Must outlive its futures.
    for future in admin.create_topics([new]).values():
        future.result(DEADLINE_S)
