"""The parts by which the transactions of a broker of a cluster reach other brokers.

They are made with the first transaction. Their modules need those of the coordinators, which would
delay the start of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.peer_channels import PeerChannels

if TYPE_CHECKING:
    from odradek.broker.transactions.add_partitions_to_txn_manager import (
        AddPartitionsToTxnManager,
    )
    from odradek.broker.transactions.marker_sender import MarkerSender
    from odradek.ids import BrokerId
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage


class TransactionPeers:
    """Markers and verifications for other brokers. Owned by the event loop.

    Args:
        node_id: The id of this broker.
        image: Returns the newest image.
        new_channels: Returns channels for a purpose. Its name is part of their client id.
    """

    def __init__(
        self,
        node_id: BrokerId,
        image: Callable[[], MetadataImage],
        new_channels: Callable[[str], PeerChannels],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._marker_channels = new_channels("txn-marker-sender")
        self._verification_channels = new_channels("add-partitions-to-txn")
        self._marker_sender: MarkerSender | None = None
        self._verifications: AddPartitionsToTxnManager | None = None

    @property
    def markers(self) -> MarkerSender:
        """Markers for partitions of all brokers."""
        if self._marker_sender is None:
            from odradek.broker.transactions.marker_sender import MarkerSender

            self._marker_sender = MarkerSender(self._node_id, self._image, self._marker_channels)
        return self._marker_sender

    @property
    def verifications(self) -> AddPartitionsToTxnManager:
        """Verifications by coordinators on other brokers."""
        if self._verifications is None:
            from odradek.broker.transactions.add_partitions_to_txn_manager import (
                AddPartitionsToTxnManager,
            )

            self._verifications = AddPartitionsToTxnManager(
                self._image, self._verification_channels
            )
        return self._verifications

    def on_metadata(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Close channels that lead to no registered broker any longer."""
        self._marker_channels.on_metadata(delta, old, new)
        self._verification_channels.on_metadata(delta, old, new)

    def close(self) -> None:
        """Close all channels. Requests in flight, and later ones, fail."""
        self._marker_channels.close()
        self._verification_channels.close()
