"""Broker configs of a cluster: its ZooKeeper, liveness of brokers, and elections.

The configs of ZooKeeper are those of Kafka 3.9, its last release with ZooKeeper.
"""

from __future__ import annotations

from odradek.config.definition import ConfigKey, ConfigType, Importance, at_least

_HIGH, _MEDIUM = Importance.HIGH, Importance.MEDIUM
_INT, _LONG, _BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN

CLUSTER_CONFIGS = [
    ConfigKey(
        "zookeeper.connect",
        ConfigType.STRING,
        None,
        _HIGH,
        "ZooKeeper of the cluster: HOST:PORT, several separated by commas, then the path below "
        "which the cluster keeps its data, such as /odradek. If unset, the broker is a cluster of "
        "its own and needs no ZooKeeper.",
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        _INT,
        18_000,
        _HIGH,
        "Time after which ZooKeeper ends the session of a broker that it does not hear, in "
        "milliseconds. Other brokers then take over its leaderships.",
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        _INT,
        None,
        _HIGH,
        "Time in which a start must connect to ZooKeeper, in milliseconds. If unset, "
        "zookeeper.session.timeout.ms.",
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        _INT,
        9_000,
        _MEDIUM,
        "Time after which the controller of a cluster takes the leadership from a broker that has "
        "not polled it, in milliseconds.",
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        _BOOLEAN,
        True,
        _MEDIUM,
        "Whether a broker of a cluster hands over its leaderships before it stops.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        True,
        _HIGH,
        "Whether the controller of a cluster returns leaderships to the first replicas.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        _LONG,
        300,
        _HIGH,
        "Interval between the checks of auto.leader.rebalance.enable.",
        at_least(1),
    ),
    ConfigKey(
        "unclean.leader.election.interval.ms",
        _LONG,
        300_000,
        _MEDIUM,
        "Interval between attempts to elect leaders of partitions that have none, in milliseconds.",
        at_least(1),
        internal=True,
    ),
]
