"""Advertised addresses: the host and port of a broker in responses to a client.

Deviation from Kafka, which advertises ``listeners`` or the machine's name: without
``advertised.listeners`` this broker advertises the address that the client connected to. The client
has reached this address and can reach it again. The config is needed only if addresses are
translated on the path (NAT, containers, port forwards). The address of every other broker comes
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

    Return None if the broker has no listener with the name of the client's listener. Kafka leaves
    such a broker out of its responses.
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
    """Return an IPv4-mapped IPv6 address (``::ffff:10.0.0.1``) as an IPv4 address."""
    if host.lower().startswith(_IPV4_MAPPED) and "." in host:
        return host[len(_IPV4_MAPPED) :]
    return host
