"""The metadata store: a tree of nodes with the contract of ZooKeeper.

**Nodes.** A node has data, children and a `Stat`. Its version starts at 0 and increases by one with
every `set`. A write can name the version that it expects (`ANY_VERSION` for no expectation).
`multi` performs all of several operations, or none. An *ephemeral* node belongs to a session and is
deleted when that session ends. A *sequential* node gets a name with the number of earlier creations
below its parent.

**Sessions.** A `MetadataStore` is a handle on one session. `open` begins the session. The session
is CONNECTED, or SUSPENDED while its connection is broken, and the store connects again by itself.
It is LOST when it has ended: its ephemeral nodes are deleted and every further call fails. The
owner then calls `close` and `open`, which begins another session.

**Outcomes.** A call has one of four outcomes:

* It returns. The write is durable, if the implementation is durable at all.
* `StoreError`: the tree does not allow it. Nothing has changed.
* `StoreFailure`: the store cannot do it, for example on a full disk or without a connection.
  Nothing has changed.
* `UnknownOutcomeError`: the connection was lost before the response. The write may have happened.
  It is resolved by reading, never by repeating it: see `odradek.metadata.store.resolution`.

**Order.** The calls of one session are executed in the order in which their coroutines begin, so
several writes can be in flight. A call that was begun is executed even if its caller is cancelled.
Writes of all sessions have one order. Reads may be stale: a read sees some past state of the tree,
but never a state older than the session's own writes and earlier reads. A read after `sync` sees
everything that was written before the `sync`.

**Watches.** A watch is registered by a read and fires once, at the next change of the node or of
the children that were read. It fires later than the change, on the event loop, in the order of the
changes. It fires before a call of its session returns newer data, and before the session's own
write returns that caused it. Changes that follow before the next registration are not reported
separately, so a watcher reads the new state and never counts events. Registrations are a set: a
watcher that is registered again for the same path and kind before it has fired is called once. A
watch ends with its connection: it fires with `EventKind.DISCONNECTED`, and its owner reads again
once the session is CONNECTED. No watch fires after `close`.

All methods are called on one event loop, and listeners and watchers are called on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
NO_SESSION = 0
"""The `Stat.ephemeral_owner` of a node that is not ephemeral. No session has this id."""

SEQUENCE_DIGITS = 10

MULTI_BYTES_MAX = 786_432
"""Upper bound of `operations_bytes` for one `multi`.

ZooKeeper closes the connection of a request above ``jute.maxbuffer``, 1,048,575 bytes by default.
"""

CHROOT_BYTES_MAX = 100
"""Upper bound of the path of the store's root in ZooKeeper, which precedes each path."""

_OPERATION_OVERHEAD_BYTES = 80
"""Bytes of an operation besides path and data in ZooKeeper's encoding: headers, ACL, version."""


class StoreError(Exception):
    """The tree does not allow a read or write. Nothing has changed.

    `path` is the path of the operation that failed.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNodeError(StoreError):
    """The node does not exist, or, for a create, its parent does not."""


class NodeExistsError(StoreError):
    """The node exists already."""


class BadVersionError(StoreError):
    """The node has another version than the expected one."""


class NotEmptyError(StoreError):
    """The node has children, and only a leaf can be deleted."""


class NoChildrenForEphemeralsError(StoreError):
    """The parent of the node to be created is ephemeral."""


class StoreFailure(Exception):
    """The store cannot read or write, for example on a full disk. Nothing has changed."""


class NotConnectedError(StoreFailure):
    """The session is SUSPENDED. A write was not sent. A read may have been sent."""


class SessionLostError(StoreFailure):
    """The session has ended before the request was executed."""


class MultiTooLargeError(StoreFailure):
    """The operations of a `multi` exceed the store's limit. Nothing was sent."""


class UnknownOutcomeError(Exception):
    """The connection was lost before the response to a write. The write may have happened."""


class SessionState(Enum):
    CLOSED = "closed"
    """There is no session: before `open` and after `close`."""
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is broken. The session may still be connected again, or may have ended."""
    LOST = "lost"
    """The session has ended. Its ephemeral nodes are deleted."""


SessionListener = Callable[[SessionState], None]


class Stat(NamedTuple):
    """The metadata of a node, as in ZooKeeper.

    A zxid is the number of a write. Later writes have larger numbers, possibly with gaps. All
    operations of a `multi` have the same number.
    """

    czxid: int
    """The zxid of the node's creation. It distinguishes a node from an earlier one at its path."""
    mzxid: int
    """The zxid of the last change of the data, or of the creation."""
    pzxid: int
    """The zxid of the last creation or deletion of a child, or of the node's own creation."""
    version: int
    """The number of changes of the data."""
    cversion: int
    """The number of creations and deletions of children."""
    ephemeral_owner: int
    """The id of the session that the node belongs to, or `NO_SESSION`."""
    child_count: int


class Node(NamedTuple):
    data: bytes
    stat: Stat

    @property
    def version(self) -> int:
        return self.stat.version


class Created(NamedTuple):
    """A node that was created. The path of a sequential node has its number."""

    path: str
    stat: Stat


class Written(NamedTuple):
    """The result of one operation of a `multi`."""

    path: str
    """The path of the node. That of a sequential node has its number."""
    version: int
    """The new version of the node after a Create or Set. `ANY_VERSION` after a Delete or Check."""


class Performed(NamedTuple):
    """The result of one operation within an implementation of the store."""

    written: Written
    stat: Stat | None
    """The node's `Stat` after a Create or Set."""


class Create(NamedTuple):
    """The creation of a node with version 0. Its parent must exist and not be ephemeral."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """A condition. The whole `multi` fails if the node is missing or has another version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Set | Delete | Check


class EventKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"
    DISCONNECTED = "disconnected"
    """The connection was lost, and the watch with it. The node may have changed."""


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


Watcher = Callable[[WatchEvent], None]


class NodeReader(Protocol):
    """The reads of a `MetadataStore`, which has them with all details."""

    async def get(self, path: str, watch: Watcher | None = None) -> Node: ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]: ...

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]: ...


class MetadataStore(Protocol):
    """A session on the store of the cluster's metadata.

    Every call but `subscribe` and `close` may raise StoreFailure. Reads raise NotConnectedError
    when the connection is lost before the response.
    """

    @property
    def state(self) -> SessionState: ...

    @property
    def session_id(self) -> int:
        """The id of the session: larger than `NO_SESSION` from `open` to `close`, if LOST too."""

    @property
    def multi_bytes_max(self) -> int | None:
        """The upper bound of `operations_bytes` for a `multi`. None: there is no limit."""

    def subscribe(self, listener: SessionListener) -> None:
        """Call `listener(state)` at every change to CONNECTED, SUSPENDED and LOST.

        The listener is called before any call that the change has failed continues, and before
        watches fire with DISCONNECTED. Listeners remain subscribed over `close` and `open`.
        """

    async def open(self) -> None:
        """Begin a session, with the contents that the store had before."""

    async def create_root(self) -> None:
        """Create the root, ``/``, if it is missing.

        A path in ZooKeeper may be missing. Then the store is empty, and can only be read.
        """

    async def close(self) -> None:
        """End the session. Its ephemeral nodes are deleted. Watches never fire again.

        A call in flight either completes or fails as if the connection was lost.
        """

    async def connected(self) -> None:
        """Return when the session is CONNECTED.

        Raises:
            SessionLostError: The session is LOST or CLOSED, or becomes so.
        """

    async def sync(self) -> None:
        """Return when later reads see everything that was written before this call."""

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        """Return the node. Raise NoNodeError, and register no watch, if it does not exist."""

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """Return the node's `Stat`, None if it does not exist. The watch is registered anyway."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return several nodes in one call, None for each node that does not exist.

        The nodes may be from different moments, and a later call of the session may be executed
        between two of them. `SingleNodeStore` describes the exception.
        """

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the sorted names of a node's children: the last parts of their paths.

        Raises:
            NoNodeError: The node does not exist. No watch is registered.
        """

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        """Create a node: see `Create`. Return its path and its `Stat`."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data. Return its new `Stat`."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[Written]:
        """Perform all operations, or none. Each one sees the effects of those before it.

        Returns:
            One result for each operation.

        Raises:
            StoreError: The error of the first operation that failed.
            MultiTooLargeError: `operations_bytes` exceeds `multi_bytes_max`.
        """


class SingleNodeStore(MetadataStore, Protocol):
    """A store in the process of its only broker.

    `get_many` returns the nodes of one moment.
    """

    async def change_count(self) -> int:
        """Return how many nodes were ever created, set and deleted in this store."""


def operations_bytes(operations: Sequence[Operation]) -> int:
    """Return an upper bound of the operations' size in a request to ZooKeeper."""
    total = 0
    for operation in operations:
        total += _OPERATION_OVERHEAD_BYTES + CHROOT_BYTES_MAX + len(operation.path.encode())
        if isinstance(operation, Create | Set):
            total += len(operation.data)
    return total


def check_size(operations: Sequence[Operation], limit: int | None) -> None:
    """Raise MultiTooLargeError if the operations exceed the limit."""
    if limit is not None and (size := operations_bytes(operations)) > limit:
        raise MultiTooLargeError(
            f"a write of {len(operations)} operations has {size} bytes, and {limit} are allowed"
        )


def changes_in(operations: Sequence[Operation]) -> int:
    """Return how many of the operations change a node."""
    return sum(not isinstance(operation, Check) for operation in operations)


def parent_of(path: str) -> str:
    """``/a/b`` -> ``/a``, ``/a`` -> ``/``."""
    return path[: path.rfind("/")] or "/"


def sequential_path(path: str, number: int) -> str:
    """``/a/b-``, 7 -> ``/a/b-0000000007``."""
    return f"{path}{number:0{SEQUENCE_DIGITS}d}"


def check_path(path: str) -> None:
    """Assert that a path has the form ``/a/b``."""
    assert path.startswith("/"), path
    assert path == "/" or not path.endswith("/"), path
    assert "//" not in path, path
