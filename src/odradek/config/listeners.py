"""The addresses of ``listeners`` and ``advertised.listeners``: a list of NAME://HOST:PORT.

One of the listeners is the inter-broker listener (`inter_broker_listener`). Brokers send their
requests to each other there.

A Kafka file may have listeners that are not for clients, such as a KRaft controller's, which are
named in ``controller.listener.names``. They are ignored. A listener whose protocol is not PLAINTEXT
is refused, because its clients would wait for a handshake to which the broker never responds.
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
    """A listener's name in upper case, its host ("" is every interface) and port (0 is any)."""

    name: str
    host: str
    port: int


def listeners(config: BrokerConfig) -> tuple[ListenerAddress, ...]:
    """Return the addresses to listen on. Raise INVALID_CONFIG if one is wrong or there is none."""
    found = _addresses(config, "listeners")
    if not found:
        reason = "it has no listener for clients"
        raise invalid_value("listeners", config.get_str("listeners"), reason)
    return found


def advertised_listeners(config: BrokerConfig) -> tuple[ListenerAddress, ...]:
    """Return the advertised addresses. Empty when ``advertised.listeners`` is unset."""
    found = _addresses(config, "advertised.listeners")
    for address in found:
        if address.host in ("", "0.0.0.0", "::"):  # noqa: S104 - refused, not bound
            raise invalid_value(
                "advertised.listeners",
                config.get_str("advertised.listeners"),
                "it must not be an address that means every interface",
            )
    return found


def inter_broker_listener(config: BrokerConfig) -> str:
    """Return the name of the listener for requests of brokers, by Kafka's rules.

    It is ``inter.broker.listener.name``, or else the name of ``security.inter.broker.protocol``.

    Raises:
        KafkaError: INVALID_CONFIG. Both configs are set, or this broker does not advertise the
            listener, or the listener belongs to a KRaft controller.
    """
    key, protocol_key = "inter.broker.listener.name", "security.inter.broker.protocol"
    name = config.get_str(key).strip().upper()
    if not name:
        key, name = protocol_key, config.get_str(protocol_key)
    elif config.explicit(protocol_key):
        raise invalid_value(key, name, f"only one of it and {protocol_key} may be set")
    if name in _controller_listeners(config):
        raise invalid_value(key, name, "it must not be in controller.listener.names")
    names = [address.name for address in listeners(config)]
    advertised = {address.name for address in advertised_listeners(config)}
    served = [each for each in names if not advertised or each in advertised]
    if name not in served:
        config_name = "advertised.listeners" if advertised else "listeners"
        reason = f"{config_name} has no listener of this name, only {', '.join(served)}"
        raise invalid_value(key, name, reason)
    return name


def sets_inter_broker_listener(config: BrokerConfig) -> bool:
    """Return whether one of the configs of `inter_broker_listener` is set."""
    return bool(config.get_str("inter.broker.listener.name").strip()) or config.explicit(
        "security.inter.broker.protocol"
    )


def security_protocol(config: BrokerConfig, listener: str) -> str | None:
    """Return the protocol of a listener name in ``listener.security.protocol.map``, or None."""
    return _protocols(config).get(listener)


def _controller_listeners(config: BrokerConfig) -> set[str]:
    text = config.initial_text("controller.listener.names")
    return {name.strip().upper() for name in text.split(",") if name.strip()}


def _addresses(config: BrokerConfig, key: str) -> tuple[ListenerAddress, ...]:
    protocols = _protocols(config)
    skipped = _controller_listeners(config)
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
            reason = f"{text} has the protocol {protocol or 'UNKNOWN'}, only PLAINTEXT is served"
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
