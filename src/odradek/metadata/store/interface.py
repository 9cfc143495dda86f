"""The metadata store: versioned nodes in a tree of paths, a part of ZooKeeper's model.

A node has data and a version, which starts at 0 and increases by one with every `set`. A write can
name the version that it expects (`ANY_VERSION` for no expectation). `multi` performs all of several
operations, or none. A watch is registered with a read and fires once, at the next change of the
node or children that were read.

All methods are called on one event loop, and watches fire on it. A write is durable when it
returns, if the implementation is durable at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """The tree does not allow a read or write. Nothing has changed."""

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


class StoreFailure(Exception):
    """The store cannot read or write, for example on a full disk. Nothing has changed."""


class Node(NamedTuple):
    data: bytes
    version: int


class Create(NamedTuple):
    """The creation of a node with version 0. Its parent must exist."""

    path: str
    data: bytes = b""


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


class WatchEvent(NamedTuple):
    kind: EventKind
    path: str


Watcher = Callable[[WatchEvent], None]


def changes_in(operations: Sequence[Operation]) -> int:
    """Return how many of the operations change a node."""
    return sum(not isinstance(operation, Check) for operation in operations)


class MetadataStore(Protocol):
    """The store of the controller's state. The root, ``/``, always exists."""

    async def open(self) -> None:
        """Open the store with the contents that it had when it was closed."""

    async def close(self) -> None:
        """Close the store. Watches never fire again."""

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        """Return the node. Raise NoNodeError, and register no watch, if it does not exist."""

    async def change_count(self) -> int:
        """Return how many nodes were ever created, set and deleted in this store."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return several nodes in one call, None for each node that does not exist."""

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Return the sorted names of a node's children: the last parts of their paths.

        Raises:
            NoNodeError: The node does not exist.
        """

    async def create(self, path: str, data: bytes = b"") -> None: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data. Return its new version."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Perform all operations, or none. Each one sees the effects of those before it.

        Raises:
            StoreError: The error of the first operation that failed.
        """


def parent_of(path: str) -> str:
    """``/a/b`` -> ``/a``, ``/a`` -> ``/``."""
    return path[: path.rfind("/")] or "/"


def check_path(path: str) -> None:
    """Assert that a path has the form ``/a/b``."""
    assert path.startswith("/"), path
    assert path == "/" or not path.endswith("/"), path
    assert "//" not in path, path
