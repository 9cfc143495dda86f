"""The resolution of writes whose response was lost: by reading, never by repeating them.

A write with an unknown outcome cannot take effect after `settled_node` has read a node in the same
session. Either it was executed before the session was connected again, or ZooKeeper rejects it,
because its session has moved to another connection. When the session is LOST instead, the outcome
stays unknown. The owner then begins another session and reads everything again.

Two patterns need no more than one node:

* Writes that set one *version node* each: `applied_writes` finds how many of them were executed.
* The creation of an ephemeral node: its owner is the own session, or is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.metadata.store.interface import (
    ANY_VERSION,
    NO_SESSION,
    Create,
    Created,
    Delete,
    MetadataStore,
    Node,
    NodeExistsError,
    NoNodeError,
    NotConnectedError,
    Operation,
    Set,
    UnknownOutcomeError,
    Written,
)

CREATE_ATTEMPTS_MAX = 3
"""Attempts to create an ephemeral node whose predecessor vanishes at the same time."""


class SupersededError(UnknownOutcomeError):
    """Another writer has set the version node. The outcome of the own write stays unknown."""


async def settled_node(store: MetadataStore, path: str) -> Node | None:
    """Return the node as it is after all earlier writes of this session. None if it is missing.

    Waits until the session is CONNECTED.

    Raises:
        SessionLostError: The session has ended.
    """
    while True:
        await store.connected()
        try:
            await store.sync()
            return await store.get(path)
        except NoNodeError:
            return None
        except NotConnectedError:
            continue


def applied_writes(node: Node, version: int, contents: Sequence[bytes]) -> int | None:
    """Return how many writes of a version node were executed.

    Args:
        node: The node as `settled_node` has read it.
        version: The version that the first of the writes expected. Each further write expects the
            version that its predecessor creates, so a later write implies all earlier ones.
        contents: The data of the writes. No two writes of any writer have the same data.

    Returns:
        The number of writes, or None if another writer has set the node.
    """
    count = node.version - version
    if count == 0:
        return 0
    if 0 < count <= len(contents) and node.data == contents[count - 1]:
        return count
    return None


async def write_with_version_node(
    store: MetadataStore, operations: Sequence[Operation], version_node: Set
) -> list[Written]:
    """Perform the operations and the Set in one `multi`, and resolve a lost response.

    Args:
        store: A session that has no other write to the version node in flight.
        operations: The changes.
        version_node: A Set with an expected version and with data that no other write has.

    Returns:
        One result for each operation, and one for the Set. After a lost response, the version of a
        Set without an expected version is `ANY_VERSION`.

    Raises:
        NotConnectedError: The response was lost and the write was not executed.
        SupersededError: The response was lost and another writer has set the version node.
        SessionLostError: The response was lost and the session has ended. The outcome is unknown.
    """
    assert version_node.version != ANY_VERSION, "the version decides"
    performed = [*operations, version_node]
    try:
        return await store.multi(performed)
    except UnknownOutcomeError:
        node = await settled_node(store, version_node.path)
    applied = (
        None if node is None else applied_writes(node, version_node.version, [version_node.data])
    )
    if applied is None:
        raise SupersededError(f"another writer has set {version_node.path}")
    if applied == 0:
        raise NotConnectedError("the connection was lost and the write was not executed")
    return [_result(operation) for operation in performed]


def _result(operation: Operation) -> Written:
    """Return the result of an operation that was executed."""
    if isinstance(operation, Create):
        assert not operation.sequential, "the number of a sequential node is in the response only"
        return Written(operation.path, 0)
    if isinstance(operation, Set) and operation.version != ANY_VERSION:
        return Written(operation.path, operation.version + 1)
    return Written(operation.path, ANY_VERSION)


async def create_ephemeral(
    store: MetadataStore, path: str, data: bytes, *, former_session_id: int = NO_SESSION
) -> Created:
    """Create an ephemeral node of this session, and resolve a lost response.

    Args:
        store: The session.
        path: The path of the node.
        data: Its data.
        former_session_id: The session that this process had before. Its node is replaced if
            ZooKeeper has not deleted it yet.

    Raises:
        NodeExistsError: The node belongs to another session.
        NotConnectedError: The response was lost and the node was not created.
        SessionLostError: The response was lost and the session has ended.
    """
    for _ in range(CREATE_ATTEMPTS_MAX):
        try:
            return await store.create(path, data, ephemeral=True)
        except UnknownOutcomeError:
            return await _created(store, path)
        except NodeExistsError:
            found = await settled_node(store, path)
        if found is None:
            continue  # its session has just ended
        owner = found.stat.ephemeral_owner
        if owner == NO_SESSION or owner != former_session_id:
            break
        try:
            await store.multi([Delete(path, found.version), Create(path, data, ephemeral=True)])
        except NoNodeError:
            continue
        except UnknownOutcomeError:
            pass
        return await _created(store, path)
    raise NodeExistsError(path)


async def _created(store: MetadataStore, path: str) -> Created:
    """Return the node if this session owns it. Otherwise raise the error of its creation."""
    node = await settled_node(store, path)
    if node is None:
        raise NotConnectedError(f"the connection was lost and {path} was not created")
    if node.stat.ephemeral_owner != store.session_id:
        raise NodeExistsError(path)
    return Created(path, node.stat)
