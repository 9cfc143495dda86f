"""The address of a broker that a client is sent to.

Deviation from Kafka, which advertises ``listeners`` or the machine's name: without
``advertised.listeners`` this broker names the address at which the client's own connection
arrived. The client reached it there and can do so again. Only a translation of addresses on the
path (NAT, containers, port forwards) needs the config. The address of every other broker comes
from its registration, by the name of the client's listener.
"""

from __future__ import annotations

from typing import Protocol

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import advertised_listeners
from odradek.metadata.image import BrokerRegistration

_IPV4_MAPPED = "::ffff:"


class LocalEnd(Protocol):
    """The broker's end of a client's connection."""

    @property
    def local_address(self) -> tuple[str, int]: ...

    @property
    def listener_name(self) -> str: ...


def broker_address(
    config: BrokerConfig, connection: LocalEnd, broker: BrokerRegistration
) -> tuple[str, int] | None:
    """Return host and port of `broker` for the client of `connection`.

    Return None when the broker has no listener of the name that the client uses. Kafka leaves such
    a broker out of its responses.
    """
    if broker.id == config.node_id:
        return advertised_address(config, connection)
    for endpoint in broker.listeners:
        if endpoint.listener == connection.listener_name:
            return endpoint.host, endpoint.port
    return None


def advertised_address(config: BrokerConfig, connection: LocalEnd) -> tuple[str, int]:
    """Return host and port at which the client of `connection` reaches this broker."""
    if config.get("advertised.listeners"):
        for address in advertised_listeners(config):
            if address.name == connection.listener_name:
                return address.host, address.port
    host, port = connection.local_address[:2]
    return unwrapped(host), port


def unwrapped(host: str) -> str:
    """Return an IPv4 address that arrived as IPv6 (``::ffff:10.0.0.1``) in its own form."""
    if host.lower().startswith(_IPV4_MAPPED) and "." in host:
        return host[len(_IPV4_MAPPED) :]
    return host
