"""The move of a single broker's metadata into the empty store of a cluster.

The nodes are copied, parents first, in writes below the size limit. They stay as they are, except
for deletions that release 0.1.0 recorded: they get the name of the broker. The first write
creates the node ``/odradek/move``. The last one deletes it and creates ``/cluster/id``. The node
names the cluster that moves::

    {"version":1,"cluster_id":"5L6g3nShT-eMCtK--X86sw"}

A store without a cluster id counts as empty, also after a move that was interrupted. The next start
of the same broker removes the nodes of that move and begins again.

The broker marks its log directories directly after the first write (``begun``). A crash leaves one
of these states:

| crash after | log directories | store |
|---|---|---|
| the first write | no mark: the broker may start alone, and move later | ``/odradek/move`` |
| the mark | "moving": the broker starts only with this store | ``/odradek/move`` and some nodes |
| the last write | "moving": the broker starts only with this store | ``/cluster/id`` |

If a store has neither node, a directory with the mark "moving" belongs to another store.

Some nodes do not move. Sessions have ended, so there are no brokers and no controller. The last
registrations have broker epochs of the former store, which mean nothing in the new one. A partition
epoch is the version of a node and begins at 0 again. No broker knows an epoch of the former store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from odradek.controller.loading import fixed_nodes
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.store.interface import (
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    operations_bytes,
)

logger = logging.getLogger(__name__)

WRITE_BYTES_MAX = 512 * 1024
"""Upper bound of the operations of one write. A single node may exceed it."""
NODES_READ_MAX = 1_000
"""Nodes that are read at the same time."""

_LEFT_BEHIND = (znodes.BROKER_IDS, znodes.REGISTRATIONS)
"""Nodes that move without their children."""
_OMITTED = frozenset({znodes.CONTROLLER, znodes.CLUSTER_ID, znodes.MOVE})
_ROOTS = (
    "/brokers",
    "/cluster",
    "/config",
    "/admin",
    znodes.CONTROLLER_EPOCH,
    znodes.PRODUCER_ID_BLOCK,
    znodes.FEATURES,
    "/odradek",
)


async def moving_id(target: MetadataStore) -> str | None:
    """Return the id of the cluster that moves into a store. None: there is no unfinished move.

    Raises:
        InvalidNode: The contents of the node are not valid.
        StoreFailure: The store cannot be read.
    """
    try:
        node = await target.get(znodes.MOVE)
    except NoNodeError:
        return None
    return znodes.valid(znodes.MOVE, _decode, node.data)


def _decode(data: bytes) -> str:
    found: str = znodes.decode(data)["cluster_id"]
    return found


async def move(
    source: MetadataStore,
    target: MetadataStore,
    cluster_id: str,
    begun: Callable[[], Awaitable[None]],
    broker: BrokerId,
) -> int:
    """Copy the metadata of a single broker into a store without a cluster id.

    Args:
        source: The store of the single broker, which is open.
        target: The store of the cluster, which is connected.
        cluster_id: The cluster id of the broker's log directories.
        begun: Marks the log directories durably, before the first node is copied.
        broker: The single broker.

    Returns:
        The number of nodes.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. The stores do not belong to this broker.
        StoreFailure, StoreError, UnknownOutcomeError: The move was interrupted.
    """
    node = await source.get(znodes.CLUSTER_ID)
    found = znodes.valid(znodes.CLUSTER_ID, znodes.decode_cluster_id, node.data)
    if found != cluster_id:
        reason = f"the metadata belongs to cluster {found}, the log directories to {cluster_id}"
        raise _refusal(f"{reason}. Start the broker with log directories of one cluster")
    await _begin(target, cluster_id)
    await begun()
    count = await _copy(source, target, broker)
    last = await _missing(target, cluster_id)
    await target.multi([*last, Create(znodes.CLUSTER_ID, node.data), Delete(znodes.MOVE)])
    logger.info("moved %d nodes of cluster %s into the metadata store", count + 1, cluster_id)
    return count + 1


async def _missing(target: MetadataStore, cluster_id: str) -> list[Create]:
    """Return the nodes of every store that the single broker of an earlier release did not have."""
    fixed = fixed_nodes(cluster_id)
    del fixed[znodes.CLUSTER_ID]
    nodes = await target.get_many(list(fixed))
    found = zip(fixed.items(), nodes, strict=True)
    return [Create(path, data) for (path, data), node in found if node is None]


def _refusal(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)


async def _begin(target: MetadataStore, cluster_id: str) -> None:
    """Create the node of the move. Remove the nodes of a move that was interrupted."""
    content = znodes.encode({"version": 1, "cluster_id": cluster_id})
    marked = (await target.get_many([znodes.MOVE]))[0]
    if marked is not None:
        if marked.data != content:
            raise _refusal(
                f"the metadata of another cluster is being moved into this store: {marked.data!r}. "
                "Start that broker first, or use another path of ZooKeeper"
            )
        await _clear(target)
    for root in _ROOTS:
        if root != "/odradek" and await target.exists(root) is not None:
            raise _refusal(
                f"the metadata store has the node {root}, but no cluster id. Use an empty path of "
                "ZooKeeper"
            )
    if marked is None:  # the write fails if another broker was first
        await _resolved(target, [Create("/odradek"), Create(znodes.MOVE, content)])


async def _resolved(target: MetadataStore, operations: Sequence[Operation]) -> None:
    try:
        await target.multi(operations)
    except NodeExistsError as error:
        reason = f"another broker has begun to use this store ({error.path}). Start again"
        raise _refusal(reason) from error


async def _clear(target: MetadataStore) -> None:
    """Remove all nodes of a move, except for its mark."""
    paths: list[str] = []
    for root in _ROOTS:
        if await target.exists(root) is not None:
            paths += await _tree(target, root)
    operations: list[Operation] = [
        Delete(path) for path in reversed(paths) if path not in ("/odradek", znodes.MOVE)
    ]
    for part in _parts(operations):
        await target.multi(part)


async def _copy(source: MetadataStore, target: MetadataStore, broker: BrokerId) -> int:
    operations: list[Operation] = []
    for root in _ROOTS:
        if await source.exists(root) is None:
            continue
        paths = await _tree(source, root)
        for first in range(0, len(paths), NODES_READ_MAX):
            some = paths[first : first + NODES_READ_MAX]
            nodes = zip(some, await source.get_many(some), strict=True)
            operations += [
                Create(path, _moved(path, node.data, broker))
                for path, node in nodes
                if node is not None
            ]
    operations = [each for each in operations if each.path != "/odradek"]
    for part in _parts(operations):
        await target.multi(part)
    return len(operations)


def _moved(path: str, data: bytes, broker: BrokerId) -> bytes:
    """Return the content of a node in the store of the cluster.

    A recorded deletion without brokers would wait for the broker of each controller that reads it.
    """
    parent, _, name = path.rpartition("/")
    if parent != znodes.DELETED_TOPICS:
        return data
    return znodes.encode_deletion(znodes.valid(path, znodes.decode_deletion, name, data, broker)[1])


async def _tree(store: MetadataStore, root: str) -> list[str]:
    """Return the paths of a node and of all nodes below it that move, parents first."""
    paths = [root]
    for path in paths:
        if path in _LEFT_BEHIND:
            continue
        names = await store.children(path)
        paths += [each for name in names if (each := f"{path}/{name}") not in _OMITTED]
    return paths


def _parts(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Divide operations into writes below the size limit."""
    parts: list[list[Operation]] = []
    size = WRITE_BYTES_MAX
    for operation in operations:
        added = operations_bytes([operation])
        if size + added > WRITE_BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(operation)
        size += added
    return parts
