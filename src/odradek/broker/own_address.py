"""The checks of the address that a broker advertises to the other brokers. They change nothing.

Other brokers connect to that address. If not even the broker itself can connect, they cannot
either, and a controller does not reach its own feed. But a broker also reaches itself at an address
that other hosts do not have, such as 127.0.0.1. This shows when another broker is registered.
`odradek.client.broker_channel` reports an address of another broker that cannot be reached.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging

from odradek.environment.network import Network
from odradek.ids import BrokerId
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import BrokerRegistration, Endpoint, MetadataImage

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0


async def check_own_address(network: Network, endpoint: Endpoint) -> None:
    """Log a warning if this broker cannot connect to one of its advertised addresses."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, _ = await network.connect(endpoint.host, endpoint.port, asyncio.Protocol)
    except TimeoutError:
        reason = f"no connection within {CONNECT_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:  # ValueError: the name of the host is malformed
        reason = str(error)
    else:
        transport.abort()
        return
    logger.warning(
        "this broker cannot connect to its own advertised address %s:%d of listener %s (%s). Other "
        "brokers and clients use this address. Correct advertised.listeners, or the name service "
        "and the firewall of this machine",
        endpoint.host,
        endpoint.port,
        endpoint.listener,
        reason,
    )


def address_conflict(own: Endpoint, other: Endpoint, other_id: BrokerId) -> str | None:
    """Return why other brokers do not reach this broker, with the remedy. None: it does not show.

    Args:
        own: The address of this broker.
        other: The address of another live broker, of the same listener.
        other_id: The other broker.
    """
    address = f"{own.host}:{own.port} of listener {own.listener}"
    if (own.host, own.port) == (other.host, other.port):
        return (
            f"this broker and broker {other_id} advertise the same address, {address}. Each of "
            "them connects to itself. Set advertised.listeners of each broker to an address of its "
            "own that the other hosts reach"
        )
    if is_loopback(own.host) and not is_loopback(other.host):
        return (
            f"this broker advertises {address}, which only its own host reaches, and broker "
            f"{other_id} is at {other.host}:{other.port}. Set advertised.listeners to an address "
            "that the other hosts reach"
        )
    return None


def is_loopback(host: str) -> bool:
    """Return whether a host is an address of its own machine. Names are not looked up.

    A machine may look its own name up as 127.0.1.1, and others correctly.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class AddressCheck:
    """Logs one warning for each registration of this broker whose address has a conflict.

    Args:
        node_id: This broker.
        listener: The name of the inter-broker listener.
    """

    def __init__(self, node_id: BrokerId, listener: str) -> None:
        self._node_id = node_id
        self._listener = listener
        self._reported_epoch: int | None = None

    def image_changed(self, delta: MetadataDelta, _old: MetadataImage, new: MetadataImage) -> None:
        """Compare the address of this broker with those of the live brokers of an image."""
        registration = new.brokers.get(self._node_id)
        if not delta.brokers.changed or registration is None:
            return
        own = self._endpoint(registration)
        if own is None or registration.epoch == self._reported_epoch:
            return
        for other in new.brokers.values():
            found = self._endpoint(other)
            if other.id == self._node_id or other.fenced or found is None:
                continue
            conflict = address_conflict(own, found, other.id)
            if conflict is not None:
                self._reported_epoch = registration.epoch
                logger.warning("broker %d may not be reached: %s", self._node_id, conflict)
                return

    def _endpoint(self, broker: BrokerRegistration) -> Endpoint | None:
        return next((each for each in broker.listeners if each.listener == self._listener), None)
