"""The internal topics, with the configs that Kafka's coordinators give them."""

from __future__ import annotations

from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.metadata.topic_changes import NewTopic
from odradek.metadata.topics import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE


def internal_topic(config: BrokerConfig, name: str) -> NewTopic | None:
    """Return the internal topic to create when it is first needed, or None for other names."""
    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name,
            config.get_int("offsets.topic.num.partitions"),
            config.get_int("offsets.topic.replication.factor"),
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", _segment_bytes(config, "offsets.topic.segment.bytes")),
            ],
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.get_int("transaction.state.log.num.partitions"),
            config.get_int("transaction.state.log.replication.factor"),
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(config.get_int("transaction.state.log.min.isr"))),
                ("segment.bytes", _segment_bytes(config, "transaction.state.log.segment.bytes")),
                ("unclean.leader.election.enable", "false"),
            ],
        )
    return None


def too_few_brokers(topic: NewTopic, image: MetadataImage) -> KafkaError | None:
    """Return why an internal topic cannot be created in a cluster yet, or None.

    As in Kafka, its creation waits until there are brokers for all its replicas.
    """
    registered, needed = len(image.brokers), topic.replication_factor
    if topic.name not in INTERNAL_TOPICS or registered >= needed:
        return None
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"{topic.name} needs {needed} registered brokers, and {registered} are registered. Start "
        "more brokers, or set the topic's replication factor on all of them.",
    )


def _segment_bytes(config: BrokerConfig, name: str) -> str:
    # A topic's segment size has a lower bound, which these broker configs do not have.
    return str(max(config.get_int(name), 1_048_576))
