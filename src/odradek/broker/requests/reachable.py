"""Leaders and replicas of partitions as a client of one listener may see them.

A client cannot connect to a broker that has no listener with the name of the client's listener. The
rules are those of Kafka's ``KRaftMetadataCache``.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.metadata.image import NO_LEADER, MetadataImage


class ReachableBrokers:
    """The brokers of an image that have a listener. This broker always has it."""

    __slots__ = ("_online", "_registered", "_with_listener")

    def __init__(self, config: BrokerConfig, image: MetadataImage, listener: str) -> None:
        brokers = image.brokers.values()
        self._registered = {broker.id for broker in brokers}
        self._with_listener = {
            broker.id
            for broker in brokers
            if broker.id == config.node_id
            or any(endpoint.listener == listener for endpoint in broker.listeners)
        }
        self._online = {
            broker.id
            for broker in brokers
            if not broker.fenced and broker.id in self._with_listener
        }

    def leader(self, leader: BrokerId, *, names_listener: bool = True) -> tuple[int, ErrorCode]:
        """Return the leader that the client can use, or -1, and the error of the partition.

        Args:
            leader: The leader of the partition.
            names_listener: The client knows LISTENER_NOT_FOUND. It gets LEADER_NOT_AVAILABLE
                otherwise.
        """
        if leader in self._with_listener:
            return leader, ErrorCode.NONE
        if leader in self._registered and names_listener:
            return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE

    def offline(self, replicas: Iterable[BrokerId]) -> list[int]:
        """Return the replicas on brokers that are fenced, unknown or without the listener."""
        return [replica for replica in replicas if replica not in self._online]

    def usable(self, replicas: Iterable[BrokerId]) -> list[int]:
        """Return the replicas on brokers that have the listener (Metadata version 0)."""
        return [replica for replica in replicas if replica in self._with_listener]
