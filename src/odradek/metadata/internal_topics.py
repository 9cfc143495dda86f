"""The internal topics, with the configs that Kafka's coordinators give them."""

from __future__ import annotations

from odradek.config.broker import BrokerConfig
from odradek.metadata.topic_changes import NewTopic
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE


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


def _segment_bytes(config: BrokerConfig, name: str) -> str:
    # A topic's segment size has a lower bound, which these broker configs do not have.
    return str(max(config.get_int(name), 1_048_576))
