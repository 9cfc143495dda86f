"""The election of the controller, and its reads of the store at a take-over.

A broker becomes the controller by one ``multi``: it creates the ephemeral node ``/controller`` and
raises ``/controller_epoch`` at its version. After a lost response both nodes say who has won: an
ephemeral node belongs to one session, and the version of the epoch was raised once only.

A broker that still owns ``/controller`` after its connection was broken raises the epoch again, and
takes over like any other. Its writes with an unknown outcome thereby become facts of the store.

A controller that cannot take over gives ``/controller`` up (Kafka's ``triggerControllerMove``). The
check of the own epoch keeps it from deleting the node of the next controller, which may have the
same version.

A session never reads older data than its own writes, so the new controller needs no ``sync``.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from odradek.controller.loading import LoadedMetadata, load, making_whole_topic
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.image import NO_LEADER, MetadataImage, TopicImage
from odradek.metadata.store.interface import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExistsError,
    NoNodeError,
    Set,
    StoreFailure,
    UnknownOutcomeError,
    Watcher,
)
from odradek.metadata.store.resolution import settled_node
from odradek.slicing import in_slices

logger = logging.getLogger(__name__)

CONTEND_ATTEMPTS_MAX = 10
"""Attempts of one election. Each further one follows an election that another broker has won."""


class Elected(NamedTuple):
    """This broker is the controller, in this epoch. `epoch_version` is the version of its node."""

    epoch: int
    epoch_version: int


class Standby(NamedTuple):
    """Another broker is the controller. -1: it is not known."""

    controller_id: BrokerId


async def contend(
    store: MetadataStore, node_id: BrokerId, time_ms: int, watch: Watcher
) -> Elected | Standby:
    """Become the controller unless another session is.

    Args:
        store: The session of this broker, on a store that is prepared.
        node_id: This broker.
        time_ms: The time.
        watch: Called when ``/controller`` changes afterwards.

    Raises:
        StoreFailure: The session is not connected.
    """
    for _ in range(CONTEND_ATTEMPTS_MAX):
        current = await _controller(store, watch)
        if current is not None and current.stat.ephemeral_owner != store.session_id:
            return _standby(current)
        epoch = await store.get(znodes.CONTROLLER_EPOCH)
        own: Create | Check = Create(
            znodes.CONTROLLER, znodes.encode_controller(node_id, time_ms), ephemeral=True
        )
        if current is not None:
            own = Check(znodes.CONTROLLER, current.version)
        number = znodes.valid(znodes.CONTROLLER_EPOCH, int, epoch.data)
        raised = Set(znodes.CONTROLLER_EPOCH, b"%d" % (number + 1), epoch.version)
        try:
            await store.multi([own, raised])
        except (NodeExistsError, NoNodeError, BadVersionError):
            await store.sync()
            continue
        except UnknownOutcomeError:
            if not await _has_won(store, raised):
                continue
        await store.exists(znodes.CONTROLLER, watch)
        return Elected(int(raised.data), raised.version + 1)
    return Standby(NO_LEADER)


async def _controller(store: MetadataStore, watch: Watcher) -> Node | None:
    try:
        return await store.get(znodes.CONTROLLER, watch)
    except NoNodeError:
        return None


async def find_other(store: MetadataStore, watch: Watcher) -> Standby | None:
    """Return the controller of another session, or None if there is none. Register the watch."""
    while True:
        current = await _controller(store, watch)
        if current is not None:
            is_own = current.stat.ephemeral_owner == store.session_id
            return None if is_own else _standby(current)
        # A read of a node that does not exist registers no watch.
        if await store.exists(znodes.CONTROLLER, watch) is None:
            return None


def _standby(node: Node) -> Standby:
    try:
        return Standby(znodes.decode_controller(node.data))
    except (ValueError, KeyError, TypeError):
        logger.error("the node %s is not valid: %r", znodes.CONTROLLER, node.data)
        return Standby(NO_LEADER)


async def resign(store: MetadataStore, elected: Elected) -> bool:
    """Delete ``/controller``, so that another broker is elected.

    Returns:
        Whether the node was deleted. Otherwise it belongs to another election, or the session is
        not connected and its next election settles the matter.
    """
    own_epoch = Check(znodes.CONTROLLER_EPOCH, elected.epoch_version)
    try:
        await store.multi([own_epoch, Delete(znodes.CONTROLLER)])
    except (BadVersionError, NoNodeError, StoreFailure, UnknownOutcomeError):
        return False
    except (Exception, asyncio.CancelledError):
        # The caller contends again after a delay. Without that, this broker would not.
        logger.exception(
            "bug in the resignation from controller epoch %d. Report the traceback", elected.epoch
        )
        return False
    return True


async def _has_won(store: MetadataStore, raised: Set) -> bool:
    """Return whether the election whose response was lost took place."""
    epoch = await settled_node(store, znodes.CONTROLLER_EPOCH)
    controller = await settled_node(store, znodes.CONTROLLER)
    return (
        epoch is not None
        and epoch.version == raised.version + 1
        and controller is not None
        and controller.stat.ephemeral_owner == store.session_id
    )


async def owns_controller(store: MetadataStore, watch: Watcher) -> bool:
    """Return whether ``/controller`` belongs to this session. Register the watch again."""
    node = await _controller(store, watch)
    return node is not None and node.stat.ephemeral_owner == store.session_id


async def read_metadata(
    store: MetadataStore, cluster_id: str, node_id: BrokerId, standby: MetadataImage
) -> LoadedMetadata:
    """Return the metadata at a take-over: the image of this broker if it is the newest one.

    Otherwise everything is read.

    Raises:
        MetadataChanged: Another controller has taken over in the meantime.
        InvalidNode: The contents of a node are not valid.
    """
    position = await store.get(znodes.METADATA)
    found = znodes.valid(znodes.METADATA, znodes.decode_position, position.data)
    if not standby.offset or found != (standby.controller_epoch, standby.offset):
        return await load(store, cluster_id, node_id)
    unfinished: list[TopicImage] = []
    for name in znodes.valid(znodes.METADATA, znodes.decode_unfinished, position.data):
        path = znodes.topic_path(name)
        node = await store.get(path)
        decoding = znodes.valid_in_slices(path, znodes.decoding_topic_header(node.data))
        topic_id, replicas = await in_slices(decoding)
        unfinished.append(await in_slices(making_whole_topic(name, topic_id, replicas)))
    return LoadedMetadata(standby, position.version, unfinished)


async def read_brokers(store: MetadataStore, watch: Watcher) -> dict[BrokerId, Node]:
    """Return the nodes of the brokers that are registered. The watch is one on their names."""
    names = [
        name
        for name in await store.children(znodes.BROKER_IDS, watch)
        if name.isascii() and name.isdigit() and str(int(name)) == name
    ]
    nodes = await store.get_many([f"{znodes.BROKER_IDS}/{name}" for name in names])
    return {
        BrokerId(int(name)): node
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    }
