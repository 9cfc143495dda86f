"""Broker configs: consumer groups and their offsets, producer ids, transactions.

Some defaults differ from Kafka's if a single node is the whole cluster: the internal topics have
one replica and a min ISR of 1. With ``zookeeper.connect`` they have Kafka's defaults
(`CLUSTER_DEFAULTS`). A group's first rebalance does not wait for more members (Kafka: 3,000 ms).
Values that are set take effect.
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

CLUSTER_DEFAULTS = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}
"""The defaults of a broker with ``zookeeper.connect`` that differ from the tables."""

GROUP_CONFIGS = [
    ConfigKey(
        "group.min.session.timeout.ms",
        _INT,
        6_000,
        _MEDIUM,
        "Minimum session timeout that a member may request.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        _INT,
        1_800_000,
        _MEDIUM,
        "Maximum session timeout that a member may request.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        _INT,
        0,
        _MEDIUM,
        "Time that an empty group waits for more members before its first rebalance. Kafka's "
        "default is 3000.",
    ),
    ConfigKey(
        "group.max.size",
        _INT,
        INT_MAX,
        _MEDIUM,
        "Maximum number of members of a group.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.session.timeout.ms",
        _INT,
        45_000,
        _MEDIUM,
        "Time without a heartbeat after which a member of the consumer protocol is removed.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms",
        _INT,
        45_000,
        _MEDIUM,
        "Minimum session timeout of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms",
        _INT,
        60_000,
        _MEDIUM,
        "Maximum session timeout of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        _INT,
        5_000,
        _MEDIUM,
        "Interval at which members of the consumer protocol shall send heartbeats.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms",
        _INT,
        5_000,
        _MEDIUM,
        "Minimum heartbeat interval of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms",
        _INT,
        15_000,
        _MEDIUM,
        "Maximum heartbeat interval of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.max.size",
        _INT,
        INT_MAX,
        _MEDIUM,
        "Maximum number of members of a group of the consumer protocol.",
        at_least(1),
    ),
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        ["uniform", "range"],
        _MEDIUM,
        "Assignors that members may request. The first one is the default.",
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        _MEDIUM,
        "Direction in which groups with members may change between the protocols.",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), any_case=True),
    ),
    ConfigKey(
        "offset.metadata.max.bytes",
        _INT,
        4096,
        _HIGH,
        "Maximum size of the metadata text committed with an offset.",
    ),
    ConfigKey(
        "offsets.retention.minutes",
        _INT,
        10_080,
        _HIGH,
        "Time for which committed offsets are kept after their group has become empty, or after "
        "their commit when no member subscribes to the topic.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        _LONG,
        600_000,
        _HIGH,
        "Interval between checks for offsets past their retention.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.topic.num.partitions",
        _INT,
        50,
        _HIGH,
        "Number of partitions of __consumer_offsets. Do not change it once the topic exists.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        _SHORT,
        1,
        _HIGH,
        "Number of replicas of __consumer_offsets. The default with zookeeper.connect is 3, as in "
        "Kafka. The topic is created when that many brokers are registered.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        _INT,
        104_857_600,
        _HIGH,
        "Segment size of __consumer_offsets.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.commit.timeout.ms",
        _INT,
        5_000,
        _HIGH,
        "Time after which a coordinator's write that is not committed fails with an error.",
        at_least(1),
    ),
    ConfigKey(
        "offsets.topic.compression.codec",
        _INT,
        0,
        _HIGH,
        "Number of the codec of the batches in __consumer_offsets. 0 is no compression.",
    ),
]

PRODUCER_CONFIGS = [
    ConfigKey(
        "producer.id.expiration.ms",
        _INT,
        86_400_000,
        _LOW,
        "Time after its last write for which a partition keeps the state of a producer.",
        at_least(1),
        _CLUSTER,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        _INT,
        50,
        _HIGH,
        "Number of partitions of __transaction_state.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        _SHORT,
        1,
        _HIGH,
        "Number of replicas of __transaction_state. The default with zookeeper.connect is 3, as in "
        "Kafka. The topic is created when that many brokers are registered.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        _INT,
        1,
        _HIGH,
        "The min.insync.replicas of __transaction_state. The default with zookeeper.connect is 2, "
        "as in Kafka.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        _INT,
        104_857_600,
        _HIGH,
        "Segment size of __transaction_state.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        _INT,
        5_242_880,
        _HIGH,
        "Bytes of __transaction_state per read while it is loaded.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        _INT,
        900_000,
        _HIGH,
        "Maximum transaction timeout that a producer may request.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10_000,
        _LOW,
        "Interval between checks for transactions past their timeout, to abort them.",
        at_least(1),
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _INT,
        604_800_000,
        _HIGH,
        "Time without a transaction after which a transactional id is removed.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3_600_000,
        _LOW,
        "Interval between checks for expired transactional ids.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        ConfigType.BOOLEAN,
        True,
        _LOW,
        "Whether the coordinator verifies a transaction before its first batch in a partition.",
        mode=_CLUSTER,
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms",
        _INT,
        100,
        _HIGH,
        "Time that a batch waits for the producer's previous transaction to complete.",
        at_least(0),
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms",
        _INT,
        20,
        _HIGH,
        "Interval between checks that the previous transaction has completed.",
        at_least(1),
    ),
]
