"""Broker configs: the id of the node, its listeners, and the limits of its connections."""

from __future__ import annotations

from odradek.config.definition import (
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    one_of,
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
        "Id of this broker in its cluster.",
        at_least(0),
    ),
    ConfigKey(
        "broker.id",
        _INT,
        -1,
        _HIGH,
        "The older name of node.id. -1 uses node.id.",
    ),
    ConfigKey(
        "broker.rack",
        _STRING,
        None,
        _MEDIUM,
        "Rack or availability zone of the broker, which clients receive as metadata.",
    ),
    ConfigKey(
        "listeners",
        _STRING,
        "PLAINTEXT://:9092",
        _HIGH,
        "Addresses to listen on: NAME://HOST:PORT, separated by commas. An empty host is every "
        "interface, port 0 any free port.",
    ),
    ConfigKey(
        "advertised.listeners",
        _STRING,
        None,
        _HIGH,
        "Addresses that clients receive, in the form of listeners. If unset, each client "
        "receives the address that it connected to. Set it when addresses are translated between "
        "clients and the broker (NAT, containers, port forwards).",
    ),
    ConfigKey(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        _LOW,
        "Security protocol of each listener name: NAME:PROTOCOL, separated by commas. Only "
        "PLAINTEXT is served.",
        mode=_PER_BROKER,
    ),
    ConfigKey(
        "inter.broker.listener.name",
        _STRING,
        None,
        _MEDIUM,
        "Name of the listener on which brokers send requests to this broker. It must be in "
        "listeners, and in advertised.listeners if that is set. If unset, it is the name of "
        "security.inter.broker.protocol. Only one of the two may be set.",
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        _MEDIUM,
        "Security protocol between brokers, and the name of their listener unless "
        "inter.broker.listener.name is set. Only PLAINTEXT is served.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "request.timeout.ms",
        _INT,
        30_000,
        _HIGH,
        "Time after which a broker ends the connection to another broker that has not responded "
        "to a request, in milliseconds.",
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms",
        _LONG,
        10_000,
        _MEDIUM,
        "Time within which a connection to another broker has to be ready, in milliseconds. It "
        "doubles with each failure, up to socket.connection.setup.timeout.max.ms.",
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms",
        _LONG,
        30_000,
        _MEDIUM,
        "Maximum of socket.connection.setup.timeout.ms after failures, in milliseconds.",
    ),
    ConfigKey(
        "socket.request.max.bytes",
        _INT,
        104_857_600,
        _HIGH,
        "Maximum size of a request. A connection that announces a larger one is closed.",
        at_least(1),
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        _INT,
        50,
        _MEDIUM,
        "Maximum number of connections that wait to be accepted. The system may allow fewer.",
        at_least(1),
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        _INT,
        102_400,
        _HIGH,
        "SO_SNDBUF of the connections. -1 leaves it to the system. If unset, it is 614400. A "
        "larger value serves distant consumers faster and costs more CPU time for near consumers.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        _INT,
        102_400,
        _HIGH,
        "SO_RCVBUF of the connections. -1 leaves it to the system, which tunes it. So does "
        "an unset value. In Kafka an unset value is 102400.",
    ),
    ConfigKey(
        "max.connections",
        _INT,
        INT_MAX,
        _MEDIUM,
        "Maximum number of connections. Others wait in the accept queue until one closes. If the "
        "brokers of a cluster have a listener of their own, its connections replace idle ones of "
        "clients.",
        at_least(0),
        _CLUSTER,
    ),
    ConfigKey(
        "max.connections.per.ip",
        _INT,
        INT_MAX,
        _MEDIUM,
        "Maximum number of connections from one address.",
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
        "Time without traffic after which a connection is closed. -1 for never.",
    ),
    ConfigKey(
        "queued.max.request.bytes",
        _LONG,
        -1,
        _MEDIUM,
        "Bytes of requests in memory above which the broker stops reading. -1 is the broker's "
        "own default, 512 MiB.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        _INT,
        57_671_680,
        _MEDIUM,
        "Maximum size of a Fetch response. A larger first batch is still sent whole.",
        at_least(1024),
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        1000,
        _MEDIUM,
        "Maximum number of fetch sessions.",
        at_least(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        _INT,
        2000,
        _MEDIUM,
        "Maximum number of partitions in a DescribeTopicPartitions response.",
        at_least(1),
    ),
    ConfigKey(
        "quota.window.num",
        _INT,
        11,
        _LOW,
        "Number of samples over which the rate of a client with a quota is measured.",
        at_least(1),
    ),
    ConfigKey(
        "quota.window.size.seconds",
        _INT,
        1,
        _LOW,
        "Length of a sample of quota.window.num.",
        at_least(1),
    ),
]
