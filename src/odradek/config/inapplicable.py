"""Broker configs of Kafka, now or in older versions, that have no effect here, with the reason.

A Kafka ``server.properties`` is accepted unchanged. These keys are listed once at the start,
separate from unknown keys, which are probably misspelt. Kafka's thread pool sizes can be altered at
run time, and tools do that. So `KEPT_CONFIGS` are configs like all others, except that they have no
effect.
"""

from __future__ import annotations

from odradek.config.definition import ConfigKey, ConfigType, Importance, UpdateMode, at_least

_KRAFT = "there is no KRaft quorum: the node keeps its own metadata"
_ZOOKEEPER = "belongs to Kafka's ZooKeeper mode"
_ZOOKEEPER_CLIENT = "connections to ZooKeeper have neither TLS nor other settings"
_TLS = "only PLAINTEXT listeners are served"
_AUTH = "clients are not authenticated"
_TIERED = "there is no tiered storage"
_SHARE = "share groups are not served"
_NO_REFRESH = "regular expressions are resolved at the first heartbeat after a change of topics"
_STREAMS = "streams groups are not served"
_TWO_PHASE = "transactions cannot be prepared from outside (KIP-939)"
_THREADS = "one event loop serves requests, without a pool of this kind"
_FETCHERS = "a follower has three connections to each leader"
_FETCH_FROM_LEADER = "consumers fetch from leaders"
_RECEIVE_BUFFERS = "the operating system tunes the receive buffers of followers"
_RELEASES = "brokers agree on versions by ApiVersions and features"
_NO_MOVES = "replicas are not moved between log directories"
_METRICS = "Kafka's metrics reporters are Java classes"
_PLUGIN = "is the name of a Java class"
_QUOTAS = "only the byte rates of clients are enforced as quotas"
_INTERNAL = "tunes the internals of Kafka's own implementation"
_TOGETHER = "log start offsets are checkpointed together with the recovery points"
_OLD = "removed from Kafka in an earlier version"

_FAMILIES: dict[str, str] = {
    "controller.": _KRAFT,
    "metadata.": _KRAFT,
    "internal.metadata.": _KRAFT,
    "zookeeper.": _ZOOKEEPER_CLIENT,
    "ssl.": _TLS,
    "sasl.": _AUTH,
    "listener.name.": _AUTH,
    "password.encoder.": _TLS,
    "delegation.token.": _AUTH,
    "security.": _AUTH,
    "remote.": _TIERED,
    "share.": _SHARE,
    "group.share.": _SHARE,
    "group.streams.": _STREAMS,
    "group.coordinator.": _INTERNAL,
    "replication.quota.": _QUOTAS,
    "quota.": _OLD,
    "alter.log.dirs.replication.quota.": _NO_MOVES,
    "metrics.": _METRICS,
    "kafka.metrics.": _METRICS,
    "kafka.csv.": _METRICS,
    "telemetry.": _METRICS,
    "config.providers": _PLUGIN,
    "controlled.shutdown.": _OLD,
    "leader.imbalance.per.broker.": _OLD,
    "transaction.two.phase.": _TWO_PHASE,
    "unstable.": _INTERNAL,
}

_SINGLE: dict[str, str] = {
    "alter.config.policy.class.name": _PLUGIN,
    "create.topic.policy.class.name": _PLUGIN,
    "authorizer.class.name": _AUTH,
    "principal.builder.class": _AUTH,
    "client.quota.callback.class": _PLUGIN,
    "connection.failed.authentication.delay.ms": _AUTH,
    "connections.max.reauth.ms": _AUTH,
    "max.connection.creation.rate": _QUOTAS,
    "num.replica.fetchers": _FETCHERS,
    "replica.selector.class": _FETCH_FROM_LEADER,
    "replica.socket.receive.buffer.bytes": _RECEIVE_BUFFERS,
    "num.replica.alter.log.dirs.threads": _NO_MOVES,
    "inter.broker.protocol.version": _RELEASES,
    "background.threads": _THREADS,
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "num.recovery.threads.per.data.dir": _THREADS,
    "queued.max.requests": _THREADS,
    "process.roles": _KRAFT,
    "early.start.listeners": _KRAFT,
    "broker.heartbeat.interval.ms": _KRAFT,
    "initial.broker.registration.timeout.ms": _KRAFT,
    "server.max.startup.time.ms": _KRAFT,
    "log.dir.failure.timeout.ms": _KRAFT,
    "log.local.retention.bytes": _TIERED,
    "log.local.retention.ms": _TIERED,
    "metric.reporters": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "producer.purgatory.purge.interval.requests": _INTERNAL,
    "fetch.purgatory.purge.interval.requests": _INTERNAL,
    "delete.records.purgatory.purge.interval.requests": _INTERNAL,
    "group.consumer.regex.refresh.interval.ms": _NO_REFRESH,
    "offsets.load.buffer.size": _INTERNAL,
    "log.flush.start.offset.checkpoint.interval.ms": _TOGETHER,
    "log.initial.task.delay.ms": _INTERNAL,
    "producer.id.expiration.check.interval.ms": _INTERNAL,
    "offsets.commit.required.acks": _OLD,
    "log.message.format.version": _OLD,
    "log.message.downconversion.enable": _OLD,
    "log.message.timestamp.difference.max.ms": _OLD,
    "host.name": _OLD,
    "port": _OLD,
    "advertised.host.name": _OLD,
    "advertised.port": _OLD,
    "broker.id.generation.enable": _ZOOKEEPER,
    "reserved.broker.max.id": _ZOOKEEPER,
    "control.plane.listener.name": _ZOOKEEPER,
    "confluent.support.metrics.enable": _OLD,
}


def _pool(name: str, default: int, at_least_one: bool = True) -> ConfigKey:
    return ConfigKey(
        name,
        ConfigType.INT,
        default,
        Importance.HIGH,
        f"Has no effect: {_SINGLE[name]}.",
        at_least(1) if at_least_one else None,
        UpdateMode.CLUSTER_WIDE,
    )


KEPT_CONFIGS = [
    _pool("background.threads", 10),
    _pool("num.io.threads", 8),
    _pool("num.network.threads", 3),
    _pool("num.recovery.threads.per.data.dir", 2),
    _pool("num.replica.fetchers", 1, at_least_one=False),
]
KEPT_NAMES = frozenset(key.name for key in KEPT_CONFIGS)


def inapplicable_reason(name: str) -> str | None:
    """Return why a config of Kafka has no effect here. None for a key that Kafka does not know."""
    single = _SINGLE.get(name)
    if single is not None:
        return single
    for prefix, reason in _FAMILIES.items():
        if name.startswith(prefix):
            return reason
    return None


def inapplicable_names() -> list[tuple[str, str]]:
    """Return each name, or prefix of names with ``*``, that is no config here, with its reason."""
    single = [(name, why) for name, why in _SINGLE.items() if name not in KEPT_NAMES]
    return [*single, *((f"{prefix}*", why) for prefix, why in _FAMILIES.items())]
