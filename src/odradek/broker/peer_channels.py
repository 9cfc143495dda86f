"""Channels of this broker to the other brokers of its cluster, over the inter-broker listener.

There is one channel for each other broker. It is made with the first request to that broker. It is
closed when the broker leaves the image, is fenced, or has registered again, perhaps with another
address. Its requests fail then, and the caller looks for another broker. A broker that is fenced
leads nothing, so a request to it has to go elsewhere anyway. Without this, a request to a broker
that is suspended would wait for the whole request.timeout.ms.

Responses of one connection arrive in the order of the requests. Each purpose therefore has an
object of its own: a marker waits for the replicas of its partition, and must not delay a producer
whose transaction is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from odradek.client.broker_channel import BrokerChannel
from odradek.client.connection import ConnectionClosed
from odradek.ids import BrokerId
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import BrokerRegistration, MetadataImage
from odradek.protocol.codec import Message
from odradek.results import Result

R = TypeVar("R", bound=Message)

Connect = Callable[[str, int], BrokerChannel]
"""Returns a channel to a host and port. It is not connected yet."""


class _Peer(NamedTuple):
    channel: BrokerChannel
    broker_epoch: int


class PeerChannels:
    """The channels for one purpose. Owned by the event loop.

    Args:
        brokers: Returns the registered brokers of the newest image.
        listener: The name of the inter-broker listener.
        connect: Makes a channel.
    """

    def __init__(
        self,
        brokers: Callable[[], Mapping[BrokerId, BrokerRegistration]],
        listener: str,
        connect: Connect,
    ) -> None:
        self._brokers = brokers
        self._listener = listener
        self._connect = connect
        self._peers: dict[BrokerId, _Peer] = {}
        self._is_closed = False

    def send(self, broker: BrokerId, request: Message, response: type[R]) -> Result[R]:
        """Send a request to another broker.

        Returns:
            The result of `BrokerChannel.send`. It fails with `ConnectionClosed` if the broker is
            not registered, is fenced, or has no inter-broker listener.
        """
        channel = self._channel(broker)
        if channel is None:
            return Result.failed(ConnectionClosed(f"broker {broker} is not available"))
        return channel.send(request, response)

    def on_metadata(self, delta: MetadataDelta, _old: MetadataImage, new: MetadataImage) -> None:
        """Close the channels to brokers that are gone, and to former processes of a broker."""
        for broker in delta.brokers.changed:
            peer = self._peers.get(broker)
            if peer is not None and not _is_current(peer, new.brokers.get(broker)):
                del self._peers[broker]
                peer.channel.close()

    def close(self) -> None:
        """Close all channels. Later requests fail."""
        self._is_closed = True
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.channel.close()

    def _channel(self, broker: BrokerId) -> BrokerChannel | None:
        registration = self._brokers().get(broker)
        if self._is_closed or registration is None or registration.fenced:
            return None
        peer = self._peers.get(broker)
        if peer is not None and _is_current(peer, registration):
            return peer.channel
        for endpoint in registration.listeners:
            if endpoint.listener == self._listener:
                if peer is not None:
                    peer.channel.close()
                channel = self._connect(endpoint.host, endpoint.port)
                self._peers[broker] = _Peer(channel, registration.epoch)
                return channel
        return None


def _is_current(peer: _Peer, registration: BrokerRegistration | None) -> bool:
    """Return whether a channel leads to the process that is registered now."""
    return (
        registration is not None
        and not registration.fenced
        and registration.epoch == peer.broker_epoch
    )
