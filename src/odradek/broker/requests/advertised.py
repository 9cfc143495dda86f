"""The address that a client is told for this broker.

Deviation from Kafka, which advertises ``listeners`` or the machine's name: a client is told the
address at which its own connection arrived, unless ``advertised.listeners`` says another. It
reached us there, so it reaches us there again; only a translation of addresses in between (NAT,
containers, port forwards) needs the config.
"""

from __future__ import annotations

from typing import Protocol

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import advertised_listeners

_IPV4_MAPPED = "::ffff:"


class LocalEnd(Protocol):
    """What is asked of a connection."""

    @property
    def local_address(self) -> tuple[str, int]: ...

    @property
    def listener_name(self) -> str: ...


def advertised_address(config: BrokerConfig, connection: LocalEnd) -> tuple[str, int]:
    """Host and port under which this connection's client finds this broker."""
    if config.get("advertised.listeners"):
        for address in advertised_listeners(config):
            if address.name == connection.listener_name:
                return address.host, address.port
    host, port = connection.local_address[:2]
    return unwrapped(host), port


def unwrapped(host: str) -> str:
    """An IPv4 address that came as an IPv6 one (``::ffff:10.0.0.1``) in its own form."""
    if host.lower().startswith(_IPV4_MAPPED) and "." in host:
        return host[len(_IPV4_MAPPED) :]
    return host
