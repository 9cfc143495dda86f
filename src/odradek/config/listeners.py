"""The addresses of ``listeners`` and ``advertised.listeners``: NAME://HOST:PORT, separated by
commas.

A Kafka file may have listeners that are not for clients (a KRaft controller's, named in
``controller.listener.names``): they are left out. A listener whose protocol is not PLAINTEXT is
refused, since clients on it would wait for a handshake that never comes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from odradek.config.broker import BrokerConfig
from odradek.config.definition import invalid_value
from odradek.errors import KafkaError

_ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", re.ASCII)
PORT_MAX = 65_535


class ListenerAddress(NamedTuple):
    """A listener's name in capitals, its host (empty: every interface) and port (0: any free
    one).
    """

    name: str
    host: str
    port: int


def listeners(config: BrokerConfig) -> tuple[ListenerAddress, ...]:
    """Where to listen; INVALID_CONFIG when it cannot be read, and when there is nothing left."""
    found = _addresses(config, "listeners")
    if not found:
        raise invalid_value("listeners", config.get_str("listeners"), "no listener for clients")
    return found


def advertised_listeners(config: BrokerConfig) -> tuple[ListenerAddress, ...]:
    """What clients are told, by listener; empty when ``advertised.listeners`` is unset."""
    found = _addresses(config, "advertised.listeners")
    for address in found:
        if address.host in ("", "0.0.0.0", "::"):  # noqa: S104 - refused, not bound
            raise invalid_value(
                "advertised.listeners",
                config.get_str("advertised.listeners"),
                "a client cannot connect to an address that means every interface",
            )
    return found


def _addresses(config: BrokerConfig, key: str) -> tuple[ListenerAddress, ...]:
    protocols = _protocols(config)
    skipped = {
        name.strip().upper() for name in config.given("controller.listener.names").split(",")
    }
    found: dict[str, ListenerAddress] = {}
    for text in config.get_list(key):
        address = _parse(config, key, text)
        if address.name in skipped:
            continue
        if address.name in found:
            raise invalid_value(
                key, config.get_str(key), "each listener must have a different name"
            )
        protocol = protocols.get(address.name)
        if protocol != "PLAINTEXT":
            reason = f"{text} is {protocol or 'of no known protocol'}: only PLAINTEXT is served"
            raise invalid_value(key, config.get_str(key), reason)
        found[address.name] = address
    return tuple(found.values())


def _parse(config: BrokerConfig, key: str, text: str) -> ListenerAddress:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 <= int(match[3]) <= PORT_MAX:
        raise _unreadable(config, key, text)
    return ListenerAddress(match[1].upper(), match[2], int(match[3]))


def _unreadable(config: BrokerConfig, key: str, text: str) -> KafkaError:
    return invalid_value(key, config.get_str(key), f"{text} is not of the form NAME://HOST:PORT")


def _protocols(config: BrokerConfig) -> dict[str, str]:
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for text in config.get_list(key):
        name, separator, protocol = text.rpartition(":")
        if not separator:
            raise invalid_value(
                key, config.get_str(key), f"{text} is not of the form NAME:PROTOCOL"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols
