"""The ZooKeeper of a cluster, as the configs of a broker name it.

`zookeeper.connect` has the form ``HOST:PORT,HOST:PORT/PATH``. kazoo is imported only when a store
is created, so a single broker never imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.config.definition import invalid_value
from odradek.config.listeners import PORT_MAX
from odradek.environment.environment import Environment
from odradek.metadata.store.interface import CHROOT_BYTES_MAX, MetadataStore

if TYPE_CHECKING:
    from odradek.broker.cluster_member import ClusterSettings

CONNECT = "zookeeper.connect"
DEFAULT_PORT = 2181
SESSIONS_OF_ID = 2
"""A start waits for so many session timeouts until the id of a killed process is free."""
ID_SLACK_MS = 2_000
"""ZooKeeper ends a session up to a tick after its timeout. A tick is 2 s by default."""


class ZooKeeperNames(NamedTuple):
    """The servers, ``HOST:PORT`` separated by commas, and the path of the cluster or nothing."""

    hosts: str
    chroot: str


class Cluster(NamedTuple):
    """The arguments of `BrokerServer` for a broker of a cluster."""

    create_store: Callable[[], MetadataStore]
    settings: ClusterSettings


def parse_connect(text: str) -> ZooKeeperNames:
    """Parse the value of `zookeeper.connect`.

    Raises:
        KafkaError: INVALID_CONFIG.
    """
    hosts, slash, path = text.strip().partition("/")
    chroot = slash + path.rstrip("/") if path.strip("/") else ""
    if "//" in chroot or len(chroot.encode()) > CHROOT_BYTES_MAX:
        reason = f"the path must have single slashes and at most {CHROOT_BYTES_MAX} bytes"
        raise invalid_value(CONNECT, text, reason)
    return ZooKeeperNames(
        ",".join(_server(text, each.strip()) for each in hosts.split(",")), chroot
    )


def _server(text: str, server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon:
        host, port = server, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        raise invalid_value(CONNECT, text, "it must be HOST:PORT[,HOST:PORT...][/PATH]")
    return f"{host}:{port}"


def _timeout_ms(config: BrokerConfig, name: str) -> int:
    timeout_ms = config.get_int(name)
    if timeout_ms <= 0:
        raise invalid_value(name, timeout_ms, "it must be positive")
    return timeout_ms


def cluster_on_zookeeper(config: BrokerConfig, environment: Environment) -> Cluster | None:
    """Return the cluster that the configs name. None: the broker is a cluster of its own.

    Raises:
        KafkaError: INVALID_CONFIG.
    """
    text = config.get_str(CONNECT)
    if not text:
        return None
    from odradek.broker.cluster_member import ClusterSettings

    names = parse_connect(text)
    session_timeout_ms = _timeout_ms(config, "zookeeper.session.timeout.ms")
    name = "zookeeper.connection.timeout.ms"
    connection_timeout_ms = (
        _timeout_ms(config, name) if config.explicit(name) else session_timeout_ms
    )

    def create_store() -> MetadataStore:
        from odradek.metadata.store.zookeeper import ZooKeeperStore
        from odradek.metadata.store.zookeeper_client import ZooKeeperAddress

        return ZooKeeperStore(
            ZooKeeperAddress(names.hosts, names.chroot),
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
            clock=environment.clock,
            timers=environment.timers,
            executors=environment.executors,
        )

    id_timeout_ms = SESSIONS_OF_ID * session_timeout_ms + ID_SLACK_MS
    servers = tuple(names.hosts.split(","))
    settings = ClusterSettings(
        names.chroot, id_timeout_ms, checks_own_address=True, zookeeper_servers=servers
    )
    return Cluster(create_store, settings)
