"""The parts of a broker for requests between the brokers of a cluster, as the handlers see them.

A single broker imports this module, but none of the channels (`broker.requests.cluster_parts`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId

if TYPE_CHECKING:
    from odradek.broker.requests.auto_topic_creation_manager import AutoTopicCreationManager
    from odradek.broker.requests.embedded import EmbeddedRequests
    from odradek.broker.requests.follower_sessions import FollowerSessions
    from odradek.broker.requests.forwarded_bytes import ForwardedBytes
    from odradek.broker.transactions.transaction_peers import TransactionPeers
    from odradek.metadata.controller_channel import ControllerChannel, ControllerNode
    from odradek.metadata.image import MetadataImage
    from odradek.net.session import Session
    from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
    from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
    from odradek.protocol.messages.assign_replicas_to_dirs_request import (
        AssignReplicasToDirsRequest,
    )
    from odradek.protocol.messages.assign_replicas_to_dirs_response import (
        AssignReplicasToDirsResponse,
    )
    from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
    from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
    from odradek.protocol.messages.drain_broker_request import DrainBrokerRequest
    from odradek.protocol.messages.drain_broker_response import DrainBrokerResponse
    from odradek.protocol.messages.finish_deletions_request import FinishDeletionsRequest
    from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
    from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
    from odradek.protocol.messages.metadata_feed_response import MetadataFeedResponse
    from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
    from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
    from odradek.results import Result


class ControllerRequests(Protocol):
    """Requests of brokers that the active controller executes.

    The responses have the controller's errors. A controller that is deposed completes the results
    of requests that it has not executed with NOT_CONTROLLER.
    """

    def alter_partition(self, request: AlterPartitionRequest, /) -> Result[AlterPartitionResponse]:
        """Change ISRs. The request has the fields of version 3."""

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, /
    ) -> Result[BrokerHeartbeatResponse]:
        """Take the state of a broker, and report whether it may shut down."""

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, /
    ) -> Result[AssignReplicasToDirsResponse]:
        """Take the log directories of a broker's replicas."""

    def finish_deletions(
        self, request: FinishDeletionsRequest, /
    ) -> Result[FinishDeletionsResponse]:
        """Take the report that a broker has removed its logs of deleted topics."""

    def drain_broker(self, request: DrainBrokerRequest, /) -> Result[DrainBrokerResponse]:
        """Move the leaderships of a broker away, or permit them again."""

    def poll(self, request: MetadataFeedRequest, /) -> Result[MetadataFeedResponse]:
        """Return the changes of the metadata after a position, or wait for the next one."""

    def image_chunk(self, request: MetadataImageRequest, /) -> Result[MetadataImageResponse]:
        """Return a chunk of the whole metadata."""


class ClusterMembership(Protocol):
    """The state of the cluster that the requests of a broker need."""

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the active controller."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration. -1: it is not registered."""

    @property
    def controller_requests(self) -> ControllerRequests:
        """The requests that this broker executes while it is the active controller."""

    def controller(self) -> ControllerNode | None:
        """Return the active controller, or None while it is not known."""


@dataclass(frozen=True, slots=True)
class ClusterRequests:
    """A single broker has none of these parts.

    Attributes:
        listener: Name of the inter-broker listener.
        membership: The state of the cluster.
        channel: The channel for forwarded requests.
        block_channel: The channel for blocks of producer ids. A forwarded request may take seconds,
            and the requests of a channel are executed one after the other.
        embedded: Execution of requests that other brokers forward.
        follower_sessions: The fetch sessions of followers.
        creations: Topics that Metadata and FindCoordinator requests create.
        forwarded: The bytes of forwarded requests that wait for the controller.
        transaction_peers: Transactions whose coordinator or partitions other brokers lead.
    """

    listener: str
    membership: ClusterMembership
    channel: ControllerChannel
    block_channel: ControllerChannel
    embedded: EmbeddedRequests
    follower_sessions: FollowerSessions
    creations: AutoTopicCreationManager
    forwarded: ForwardedBytes
    transaction_peers: TransactionPeers

    @property
    def channels(self) -> tuple[ControllerChannel, ...]:
        """The channels to the controller."""
        return self.channel, self.block_channel

    def close(self) -> None:
        """Fail the requests to other brokers, and end the creation of topics."""
        for channel in self.channels:
            channel.close()
        self.transaction_peers.close()
        self.creations.close()

    def check_controller(self) -> None:
        """Raise NOT_CONTROLLER unless this broker is the active controller."""
        if not self.membership.is_controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This is not the controller.")


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> None:
    """Raise STALE_BROKER_EPOCH unless the broker is registered with this epoch.

    A request of an earlier process of a broker must not change anything.
    """
    broker = image.brokers.get(BrokerId(broker_id))
    if broker is None:
        reason = f"Broker {broker_id} is not registered."
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, reason)
    if broker.epoch != epoch:
        reason = f"Expected broker epoch {broker.epoch}, but got {epoch}."
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, reason)


def forwards(cluster: ClusterRequests | None, session: Session) -> ClusterRequests | None:
    """Return the cluster if a request has to be sent to another broker, the controller.

    A request in an envelope is executed or refused here. It is never sent on.

    Args:
        cluster: The cluster, or None in a single broker.
        session: The session of the request.
    """
    if cluster is None or cluster.membership.is_controller or session.is_forwarded:
        return None
    return cluster
