"""The metadata store: versioned nodes in a tree of paths, ZooKeeper's model as far as one node
uses it.

A node has data and a version that begins at 0 and rises by one with every `set`. Writes can name
the version that they expect (`ANY_VERSION` for no expectation), `multi` does several or none. A
watch is given with a read and fires once, at the next change of what was read. All methods are
called on one event loop, where watches fire too; what a write did is durable when it returns, as
far as the implementation keeps anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """A write or a read that the tree does not allow; nothing has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNodeError(StoreError):
    """There is no node at the path, or, for a create, none at its parent."""


class NodeExistsError(StoreError):
    """There is a node at the path already."""


class BadVersionError(StoreError):
    """The node has another version than the one expected."""


class NotEmptyError(StoreError):
    """The node has children, and only a leaf can be deleted."""


class StoreFailure(Exception):
    """The store cannot read or write, as when its disk is full; nothing has changed."""


class Node(NamedTuple):
    data: bytes
    version: int


class Create(NamedTuple):
    """Creates a node with version 0; its parent must be there."""

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
    """Changes nothing, and fails the whole `multi` if the node is gone or has another version."""

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
    """How many of the operations change a node."""
    return sum(not isinstance(operation, Check) for operation in operations)


class MetadataStore(Protocol):
    """What the controller keeps its state in. The root, ``/``, is always there."""

    async def open(self) -> None:
        """Makes the store usable; what was kept before is there."""

    async def close(self) -> None:
        """Ends the store; watches never fire again."""

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        """The node; NoNodeError if there is none (and then no watch is left)."""

    async def change_count(self) -> int:
        """How many nodes were created, set and deleted since the store began; it never falls."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Many nodes in one go, None for each that is not there."""

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """The last parts of the paths of a node's children, sorted; NoNodeError if it is not
        there.
        """

    async def create(self, path: str, data: bytes = b"") -> None: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replaces a node's data; returns its new version."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> None:
        """All of the operations, each seeing those before it, or none: then the error of the first
        that failed is raised.
        """


def parent_of(path: str) -> str:
    """``/a/b`` -> ``/a``, ``/a`` -> ``/``."""
    return path[: path.rfind("/")] or "/"


def check_path(path: str) -> None:
    """A programmer's mistake if a path is not of the form ``/a/b``."""
    assert path.startswith("/"), path
    assert path == "/" or not path.endswith("/"), path
    assert "//" not in path, path
