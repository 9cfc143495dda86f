"""The nodes of a metadata store in memory: a pure state machine of reads and writes.

The state depends only on the sequence of writes, so replicas that apply the same writes are equal.
Cost: the state changes in place, and a failed `apply` reverts the operations before the failed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.metadata.store.interface import (
    ANY_VERSION,
    NO_SESSION,
    BadVersionError,
    Create,
    Delete,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Performed,
    Set,
    Stat,
    Written,
    check_path,
    parent_of,
    sequential_path,
)

_Undo = list[Callable[[], None]]


class _Entry:
    """A node with the names of its children."""

    __slots__ = (
        "children",
        "created_children",
        "czxid",
        "data",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, zxid: int, owner: int) -> None:
        self.data = data
        self.czxid = self.mzxid = self.pzxid = zxid
        self.version = 0
        self.owner = owner
        # A dictionary for its order, which does not depend on hashes.
        self.children: dict[str, None] = {}
        self.created_children = 0

    def stat(self) -> Stat:
        count = len(self.children)
        # As in ZooKeeper, the number of creations and deletions.
        cversion = 2 * self.created_children - count
        return Stat(self.czxid, self.mzxid, self.pzxid, self.version, cversion, self.owner, count)


class Tree:
    """The nodes by path. Owned by its store."""

    __slots__ = ("_entries", "_ephemerals")

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {"/": _Entry(b"", 0, NO_SESSION)}
        self._ephemerals: dict[int, dict[str, None]] = {}

    def node(self, path: str) -> Node:
        entry = self._entry(path)
        return Node(entry.data, entry.stat())

    def find(self, path: str) -> Node | None:
        entry = self._entries.get(path)
        return None if entry is None else Node(entry.data, entry.stat())

    def children(self, path: str) -> list[str]:
        return sorted(self._entry(path).children)

    def ephemerals_of(self, session_id: int) -> list[str]:
        """Return the paths of the session's ephemeral nodes."""
        return sorted(self._ephemerals.get(session_id, ()))

    def apply(self, operations: Sequence[Operation], session_id: int, zxid: int) -> list[Performed]:
        """Perform all operations, or none.

        Raises:
            StoreError: The error of the first operation that failed.
        """
        undo: _Undo = []
        try:
            return [self._apply(operation, session_id, zxid, undo) for operation in operations]
        except Exception:
            for step in reversed(undo):
                step()
            raise

    def _entry(self, path: str, version: int = ANY_VERSION) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, entry.version):
            raise BadVersionError(path)
        return entry

    def _apply(self, operation: Operation, session_id: int, zxid: int, undo: _Undo) -> Performed:
        check_path(operation.path)
        if isinstance(operation, Create):
            return self._create(operation, session_id, zxid, undo)
        if isinstance(operation, Set):
            return self._set(operation, zxid, undo)
        if isinstance(operation, Delete):
            self._delete(operation, zxid, undo)
        else:
            self._entry(operation.path, operation.version)
        return Performed(Written(operation.path, ANY_VERSION), None)

    def _create(self, operation: Create, session_id: int, zxid: int, undo: _Undo) -> Performed:
        parent = self._entries.get(parent_of(operation.path))
        if parent is None:
            raise NoNodeError(operation.path)
        path = operation.path
        if operation.sequential:
            path = sequential_path(path, parent.created_children)
        if path in self._entries:
            raise NodeExistsError(operation.path)
        if parent.owner != NO_SESSION:
            raise NoChildrenForEphemeralsError(operation.path)
        name = path[path.rfind("/") + 1 :]
        owner = session_id if operation.ephemeral else NO_SESSION
        before = parent.pzxid
        entry = _Entry(operation.data, zxid, owner)
        self._add(path, name, entry, parent)
        parent.created_children += 1
        parent.pzxid = zxid

        def revert() -> None:
            self._remove(path, name, parent)
            parent.created_children -= 1
            parent.pzxid = before

        undo.append(revert)
        return Performed(Written(path, 0), entry.stat())

    def _set(self, operation: Set, zxid: int, undo: _Undo) -> Performed:
        assert operation.path != "/", "the root has no data"
        entry = self._entry(operation.path, operation.version)
        before = entry.data, entry.version, entry.mzxid

        def revert() -> None:
            entry.data, entry.version, entry.mzxid = before

        entry.data, entry.version, entry.mzxid = operation.data, entry.version + 1, zxid
        undo.append(revert)
        return Performed(Written(operation.path, entry.version), entry.stat())

    def _delete(self, operation: Delete, zxid: int, undo: _Undo) -> None:
        path = operation.path
        assert path != "/", "the root cannot be deleted"
        entry = self._entry(path, operation.version)
        if entry.children:
            raise NotEmptyError(path)
        parent = self._entries[parent_of(path)]
        name = path[path.rfind("/") + 1 :]
        before = parent.pzxid
        self._remove(path, name, parent)
        parent.pzxid = zxid

        def revert() -> None:
            self._add(path, name, entry, parent)
            parent.pzxid = before

        undo.append(revert)

    def _add(self, path: str, name: str, entry: _Entry, parent: _Entry) -> None:
        self._entries[path] = entry
        parent.children[name] = None
        if entry.owner != NO_SESSION:
            self._ephemerals.setdefault(entry.owner, {})[path] = None

    def _remove(self, path: str, name: str, parent: _Entry) -> None:
        entry = self._entries.pop(path)
        del parent.children[name]
        if entry.owner != NO_SESSION:
            paths = self._ephemerals[entry.owner]
            del paths[path]
            if not paths:
                del self._ephemerals[entry.owner]
