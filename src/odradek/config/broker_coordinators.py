"""Broker configs: consumer groups and their offsets, producer ids, transactions.

Three defaults differ from Kafka's, as the node is the whole cluster: the internal topics have one
replica (Kafka: 3, with a min ISR of 2), and a group's first rebalance does not wait for more
members (Kafka: 3,000 ms). Values that are set are obeyed.
"""

from __future__ import annotations

from odradek.config.broker_network import INT_MAX
from odradek.config.definition import (
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
)

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_INT, _LONG, _SHORT = ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_CLUSTER = UpdateMode.CLUSTER_WIDE

GROUP_CONFIGS = [
    ConfigKey(
        "group.min.session.timeout.ms",
        _INT,
        6_000,
        _MEDIUM,
        "The shortest session time-out that a member may ask for.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        _INT,
        1_800_000,
        _MEDIUM,
        "The longest session time-out that a member may ask for.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        _INT,
        0,
        _MEDIUM,
        "How long an empty group waits for more members before its first rebalance. Kafka's own "
        "default is 3000.",
    ),
    ConfigKey(
        "group.max.size",
        _INT,
        INT_MAX,
        _MEDIUM,
        "How many members a group may have.",
        at_least(1),
    ),
    ConfigKey(
        "offset.metadata.max.bytes",
        _INT,
        4096,
        _HIGH,
        "The longest text that may be committed with an offset.",
    ),
    ConfigKey(
        "offsets.topic.num.partitions",
        _INT,
        50,
        _HIGH,
        "The partitions of __consumer_offsets; not to be changed once it exists.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        _SHORT,
        1,
        _HIGH,
        "The replicas of __consumer_offsets. Kafka's own default is 3.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        _INT,
        104_857_600,
        _HIGH,
        "The segment size of __consumer_offsets.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.topic.compression.codec",
        _INT,
        0,
        _HIGH,
        "The codec of the batches in __consumer_offsets, by its number; 0 is none.",
    ),
]

PRODUCER_CONFIGS = [
    ConfigKey(
        "producer.id.expiration.ms",
        _INT,
        86_400_000,
        _LOW,
        "How long a partition remembers a producer that no longer writes.",
        at_least(1),
        _CLUSTER,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        _INT,
        50,
        _HIGH,
        "The partitions of __transaction_state.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        _SHORT,
        1,
        _HIGH,
        "The replicas of __transaction_state. Kafka's own default is 3.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        _INT,
        1,
        _HIGH,
        "The min.insync.replicas of __transaction_state. Kafka's own default is 2.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _INT,
        104_857_600,
        _HIGH,
        "The segment size of __transaction_state.",
        at_least(1),
    ),
]
