"""Broker configs of followers, and of the lag at which a follower leaves the ISR."""

from __future__ import annotations

from odradek.config.definition import ConfigKey, ConfigType, Importance, at_least

_HIGH, _MEDIUM = Importance.HIGH, Importance.MEDIUM
_INT, _LONG = ConfigType.INT, ConfigType.LONG

REPLICATION_CONFIGS = [
    ConfigKey(
        "replica.lag.time.max.ms",
        _LONG,
        30_000,
        _HIGH,
        "Time after which a follower that has not caught up with the leader leaves the in-sync "
        "replicas, in milliseconds.",
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        _INT,
        1,
        _HIGH,
        "Bytes that a leader waits for before it responds to a follower in sync.",
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        _INT,
        500,
        _HIGH,
        "Longest time that a leader waits for replica.fetch.min.bytes, in milliseconds. It must be "
        "at most replica.lag.time.max.ms.",
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        _INT,
        1_048_576,
        _MEDIUM,
        "Bytes of one partition in a response to a follower. A larger batch is fetched whole.",
        at_least(0),
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        _INT,
        10_485_760,
        _MEDIUM,
        "Bytes of a response to a follower. A larger batch is fetched whole.",
        at_least(0),
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        _INT,
        1_000,
        _MEDIUM,
        "Time after which a follower fetches a partition again that had an error, in milliseconds.",
        at_least(0),
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        _INT,
        30_000,
        _HIGH,
        "Longest time that a follower waits for a response, in milliseconds. It must be at least "
        "replica.fetch.wait.max.ms.",
    ),
]
