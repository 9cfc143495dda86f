"""Creation of the parts of a broker for requests between the brokers of a cluster.

Imported only by a broker of a cluster, because the channels would delay the start of a single one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek import __version__
from odradek.broker.peer_channels import PeerChannels
from odradek.broker.requests.auto_topic_creation_manager import AutoTopicCreationManager
from odradek.broker.requests.cluster import ClusterRequests
from odradek.broker.requests.embedded import EmbeddedRequests
from odradek.broker.requests.follower_sessions import FollowerSessions
from odradek.broker.requests.forwarded_bytes import ENVELOPE_BYTES_MAX, ForwardedBytes
from odradek.broker.transactions.transaction_peers import TransactionPeers
from odradek.client.broker_channel import BrokerChannel
from odradek.client.channel_state import ChannelSettings
from odradek.config.definition import invalid_value
from odradek.config.listeners import inter_broker_listener
from odradek.ids import BrokerId
from odradek.metadata.controller_channel import ControllerChannel, ControllerChannelSettings

if TYPE_CHECKING:
    from odradek.broker.requests.cluster import ClusterMembership
    from odradek.config.broker import BrokerConfig
    from odradek.environment.environment import Environment
    from odradek.metadata.image import MetadataImage

SOFTWARE = ("odradek-broker", __version__)
"""Name and version that a broker reports to another one in ApiVersions."""


class ImageSource(Protocol):
    """The publisher of this broker's metadata."""

    @property
    def image(self) -> MetadataImage: ...


def cluster_requests(
    config: BrokerConfig,
    environment: Environment,
    membership: ClusterMembership,
    metadata: ImageSource,
) -> ClusterRequests:
    """Return the parts of a broker of a cluster.

    Args:
        config: The configs of the broker.
        environment: The environment.
        membership: The state of the cluster.
        metadata: Has the newest image of this broker.

    Raises:
        KafkaError: INVALID_CONFIG. This broker has no inter-broker listener, or its largest request
            has no room for a forwarded one.
    """
    listener = inter_broker_listener(config)

    def channel(purpose: str) -> ControllerChannel:
        return ControllerChannel(
            membership.controller,
            environment,
            settings=ControllerChannelSettings(channel=channel_settings(config)),
            client_id=f"broker-{config.node_id}-{purpose}",
            software=SOFTWARE,
        )

    def image() -> MetadataImage:
        return metadata.image

    def peer_channels(purpose: str) -> PeerChannels:
        def connect(host: str, port: int) -> BrokerChannel:
            return BrokerChannel(
                host,
                port,
                environment,
                settings=channel_settings(config),
                client_id=f"broker-{config.node_id}-{purpose}",
                software=SOFTWARE,
            )

        return PeerChannels(lambda: image().brokers, listener, connect)

    sessions = FollowerSessions(environment.clock, environment.randomness.between)
    creations = AutoTopicCreationManager(environment.timers)
    key = "socket.request.max.bytes"
    forwarded = ForwardedBytes(config.get_int(key))
    if forwarded.request_bytes_max < ENVELOPE_BYTES_MAX:
        reason = f"a broker of a cluster needs at least {2 * ENVELOPE_BYTES_MAX}"
        raise invalid_value(key, config.get_int(key), reason)
    return ClusterRequests(
        listener,
        membership,
        channel("forwarding"),
        channel("producer-ids"),
        EmbeddedRequests(),
        sessions,
        creations,
        forwarded,
        TransactionPeers(BrokerId(config.node_id), image, peer_channels),
    )


def channel_settings(config: BrokerConfig) -> ChannelSettings:
    """Return the limits of a connection to another broker from Kafka's configs."""
    return ChannelSettings(
        request_timeout_ms=config.get_int("request.timeout.ms"),
        setup_timeout_ms=config.get_int("socket.connection.setup.timeout.ms"),
        setup_timeout_max_ms=config.get_int("socket.connection.setup.timeout.max.ms"),
    )
