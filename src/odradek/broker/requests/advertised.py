"""Advertised addresses: the host and port of a broker in responses to a client.

Deviation from Kafka, which advertises ``listeners`` or the machine's name: without
``advertised.listeners`` this broker advertises the address that the client connected to. The client
has reached this address and can reach it again. The config is needed only if addresses are
translated on the path (NAT, containers, port forwards). The address of every other broker comes
from its registration, by the name of the client's listener. A broker registers the address of
``advertised.listeners``. Without that config it registers the address of ``listeners``, with the
name of the machine in place of an address that means every interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import advertised_listeners, security_protocol
from odradek.metadata.image import BrokerRegistration, Endpoint, SecurityProtocol

_IPV4_MAPPED = "::ffff:"
_EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104 - never bound here


class LocalEnd(Protocol):
    """The broker's end of a client's connection."""

    @property
    def local_address(self) -> tuple[str, int]: ...

    @property
    def listener_name(self) -> str: ...


class Listening(Protocol):
    """A listener with the address and the port that were bound."""

    @property
    def name(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


def registered_endpoints(
    config: BrokerConfig, listening: Sequence[Listening], host_name: str
) -> tuple[Endpoint, ...]:
    """Return the endpoints with which this broker registers.

    Args:
        config: The configs of the broker.
        listening: Its listeners.
        host_name: The name of the machine.
    """
    addresses = {each.name: (each.host, each.port) for each in listening}
    advertised = advertised_listeners(config)
    if advertised:
        addresses = {each.name: (each.host, each.port) for each in advertised}
    return tuple(
        Endpoint(
            name,
            host_name if host in _EVERY_INTERFACE else host,
            port,
            SecurityProtocol[security_protocol(config, name) or "PLAINTEXT"],
        )
        for name, (host, port) in addresses.items()
    )


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
