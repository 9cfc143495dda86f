"""Broker configs: who the node is, where it listens, and the limits of its connections."""

from __future__ import annotations

from odradek.config.definition import (
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
)

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_INT, _LONG, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_CLUSTER, _PER_BROKER = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER
INT_MAX = 2**31 - 1

NETWORK_CONFIGS = [
    ConfigKey(
        "node.id",
        _INT,
        1,
        _HIGH,
        "The id of this broker in its cluster.",
        at_least(0),
    ),
    ConfigKey(
        "broker.id",
        _INT,
        -1,
        _HIGH,
        "The older name of node.id; -1 when node.id says it.",
    ),
    ConfigKey(
        "broker.rack",
        _STRING,
        None,
        _MEDIUM,
        "Where the broker stands (a rack, a zone): clients are told so.",
    ),
    ConfigKey(
        "listeners",
        _STRING,
        "PLAINTEXT://:9092",
        _HIGH,
        "The addresses to listen on: NAME://HOST:PORT, separated by commas. An empty host is every "
        "interface, port 0 any free port.",
    ),
    ConfigKey(
        "advertised.listeners",
        _STRING,
        None,
        _HIGH,
        "The addresses that clients are told, in the form of listeners. Unset: each client is "
        "told the address at which its own connection arrived, which is right unless something "
        "between translates addresses (NAT, containers, port forwards).",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        _LOW,
        "Which security protocol each listener's name stands for: NAME:PROTOCOL, separated by "
        "commas. PLAINTEXT is the one that is served.",
        mode=_PER_BROKER,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        _INT,
        104_857_600,
        _HIGH,
        "The largest request; a connection that announces a larger one is closed.",
        at_least(1),
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        _INT,
        50,
        _MEDIUM,
        "How many connections may wait to be accepted; the system may allow fewer.",
        at_least(1),
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        _INT,
        102_400,
        _HIGH,
        "SO_SNDBUF of the connections; -1 leaves it to the system. As long as it is not set it is "
        "614400. A larger one serves consumers far away faster, at more CPU for those nearby.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        _INT,
        102_400,
        _HIGH,
        "SO_RCVBUF of the connections. Unset, as -1, leaves it to the system, which tunes it; "
        "Kafka sets its default.",
    ),
    ConfigKey(
        "max.connections",
        _INT,
        INT_MAX,
        _MEDIUM,
        "How many connections there may be at a time; a further one is closed at once.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "max.connections.per.ip",
        _INT,
        INT_MAX,
        _MEDIUM,
        "How many connections one address may have at a time.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        _STRING,
        "",
        _MEDIUM,
        "Exceptions from max.connections.per.ip: ADDRESS:COUNT, separated by commas.",
        mode=_CLUSTER,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _LONG,
        600_000,
        _MEDIUM,
        "A connection without a request for so long is closed; -1 for never.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _LONG,
        -1,
        _MEDIUM,
        "How many bytes of requests may be in memory before no more are read; -1 for the "
        "broker's own default.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        _INT,
        57_671_680,
        _MEDIUM,
        "The most bytes one fetch is answered with; a larger first batch is still sent whole.",
        at_least(1024),
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        _MEDIUM,
        "How many fetch sessions are kept at a time.",
        at_least(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _INT,
        2000,
        _MEDIUM,
        "How many partitions one DescribeTopicPartitions is answered with.",
        at_least(1),
    ),
    ConfigKey(
        "quota.window.num",
        _INT,
        11,
        _LOW,
        "Over how many samples the rate of a client with a quota is taken.",
        at_least(1),
    ),
    ConfigKey(
        "quota.window.size.seconds",
        _INT,
        1,
        _LOW,
        "How long each of these samples is.",
        at_least(1),
    ),
]
