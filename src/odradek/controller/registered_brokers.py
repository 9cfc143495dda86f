"""The registrations of brokers: changes that follow from their nodes, and senders. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from odradek.controller.broker_changes import BrokerChanges
from odradek.controller.election import stopped_cleanly
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, BrokerId
from odradek.metadata import znodes
from odradek.metadata.image import BrokerRegistration, MetadataImage
from odradek.metadata.image_records import registration_record
from odradek.metadata.records import encode_record
from odradek.metadata.store.interface import Node

logger = logging.getLogger(__name__)


def registered_brokers(
    image: MetadataImage, nodes: Mapping[BrokerId, Node]
) -> tuple[BrokerChanges, dict[BrokerId, BrokerRegistration]]:
    """Compare nodes of brokers with the last registrations.

    Returns:
        The changes, with the brokers not fenced, and the valid registrations.
    """
    changes = BrokerChanges()
    valid: dict[BrokerId, BrokerRegistration] = {}
    for broker, node in nodes.items():
        try:
            found = znodes.decode_broker(broker, node.data, node.stat.czxid)
            clean_epoch = znodes.decode_clean_shutdown_epoch(node.data)
            encode_record(registration_record(found))  # brokers must be able to receive it
        except ValueError as error:
            logger.error("broker %d is not registered: %s", broker, error)
            continue
        previous = image.brokers.get(broker)
        if previous is not None and previous.epoch == found.epoch:
            found = replace(previous, fenced=False)
        else:
            continues = _is_same_process(previous, found)
            changes.restarts[broker] = continues or stopped_cleanly(
                previous, clean_epoch, found.boot_id, found.directories
            )
            if (
                previous is not None
                and not continues  # it reports the replicas of a failed directory itself
                and not set(previous.directories) <= set(found.directories)
            ):
                changes.lost.add(broker)
        if previous is not None:
            found = replace(found, drained=previous.drained)  # an operator ends it, not a restart
        valid[broker] = changes.after[broker] = found
    return changes, valid


def sender_of(image: MetadataImage, broker: BrokerId, epoch: int) -> BrokerRegistration:
    """Return the registration of the broker that has sent a request.

    Raises:
        KafkaError: STALE_BROKER_EPOCH. It has no registration with this epoch.
    """
    found = image.brokers.get(broker)
    if found is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker} is not registered.")
    if found.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {found.epoch}, but got {epoch}."
        )
    return found


def _is_same_process(previous: BrokerRegistration | None, found: BrokerRegistration) -> bool:
    """Return whether a broker has only lost its session. Its records are as before."""
    return (
        previous is not None
        and found.incarnation_id != ZERO_UUID
        and found.incarnation_id == previous.incarnation_id
    )
