"""Broker configs of the controller of a cluster: liveness of brokers, and elections."""

from __future__ import annotations

from odradek.config.definition import ConfigKey, ConfigType, Importance, at_least

_HIGH, _MEDIUM = Importance.HIGH, Importance.MEDIUM
_INT, _LONG, _BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN

CLUSTER_CONFIGS = [
    ConfigKey(
        "broker.session.timeout.ms",
        _INT,
        9_000,
        _MEDIUM,
        "Time after which the controller of a cluster takes the leadership from a broker that has "
        "not polled it, in milliseconds.",
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
