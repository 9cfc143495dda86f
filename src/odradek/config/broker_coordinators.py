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
    OneOf,
    UpdateMode,
    at_least,
)

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_INT, _LONG, _SHORT = ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_LIST, _STRING = ConfigType.LIST, ConfigType.STRING
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
        "group.consumer.session.timeout.ms",
        _INT,
        45_000,
        _MEDIUM,
        "How long a member of the consumer protocol may be silent.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms",
        _INT,
        45_000,
        _MEDIUM,
        "The shortest session time-out of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms",
        _INT,
        60_000,
        _MEDIUM,
        "The longest session time-out of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        _INT,
        5_000,
        _MEDIUM,
        "How often members of the consumer protocol are told to send heartbeats.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms",
        _INT,
        5_000,
        _MEDIUM,
        "The shortest heartbeat interval of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms",
        _INT,
        15_000,
        _MEDIUM,
        "The longest heartbeat interval of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.max.size",
        _INT,
        INT_MAX,
        _MEDIUM,
        "How many members a group of the consumer protocol may have.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        ["uniform", "range"],
        _MEDIUM,
        "The assignors that members may ask for; the first is the default.",
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        _MEDIUM,
        "Whether groups with members change between the protocols: up, down, both or not.",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), any_case=True),
    ),
    ConfigKey(
        "offset.metadata.max.bytes",
        _INT,
        4096,
        _HIGH,
        "The longest text that may be committed with an offset.",
    ),
    ConfigKey(
        "offsets.retention.minutes",
        _INT,
        10_080,
        _HIGH,
        "How long committed offsets are kept after their group has become empty, or, where members "
        "no longer read the topic, after their commit.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        _LONG,
        600_000,
        _HIGH,
        "How often it is looked for offsets past their retention.",
        at_least(1),
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
        "offsets.commit.timeout.ms",
        _INT,
        5_000,
        _HIGH,
        "The time after which a write of a coordinator that is not committed is answered with an "
        "error.",
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
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        _INT,
        5_242_880,
        _HIGH,
        "How many bytes of __transaction_state are read at once when it is loaded.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        _INT,
        900_000,
        _HIGH,
        "The longest time-out of transactions that a producer may ask for.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        _LOW,
        "How often transactions that are open for too long are looked for, to abort them.",
        at_least(1),
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        _HIGH,
        "How long a transactional id is remembered that begins no transaction.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        _LOW,
        "How often transactional ids are looked for that have expired.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        True,
        _LOW,
        "Whether the coordinator is asked before a transaction's first batch in a partition.",
        mode=_CLUSTER,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        _INT,
        100,
        _HIGH,
        "How long a batch waits for the producer's last transaction to be completed.",
        at_least(0),
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        _INT,
        20,
        _HIGH,
        "How often it is looked meanwhile whether that transaction is completed.",
        at_least(1),
    ),
]
