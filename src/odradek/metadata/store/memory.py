"""The metadata store in memory, for brokers of a single test, and for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.metadata.store.interface import (
    ANY_VERSION,
    BadVersionError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    Watcher,
    changes_in,
    check_path,
    parent_of,
)
from odradek.metadata.store.watches import Watches


class _Entry:
    """A node with the names of its children."""

    __slots__ = ("children", "data", "version")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.version = 0
        self.children: set[str] = set()


class MemoryStore:
    """`MetadataStore` without a file. Its contents survive `close` and `open`."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {"/": _Entry(b"")}
        self._watches = Watches()
        self._change_count = 0

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        self._watches.clear()

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        entry = self._entry(path)
        if watch is not None:
            self._watches.add_node(path, watch)
        return Node(entry.data, entry.version)

    async def change_count(self) -> int:
        return self._change_count

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        entries = [self._entries.get(path) for path in paths]
        return [None if entry is None else Node(entry.data, entry.version) for entry in entries]

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        entry = self._entry(path)
        if watch is not None:
            self._watches.add_children(path, watch)
        return sorted(entry.children)

    async def create(self, path: str, data: bytes = b"") -> None:
        await self.multi([Create(path, data)])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        await self.multi([Set(path, data, version)])
        return self._entries[path].version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> None:
        undo: list[Callable[[], None]] = []
        try:
            for operation in operations:
                check_path(operation.path)
                self._apply(operation, undo)
        except Exception:
            for step in reversed(undo):
                step()
            raise
        self._change_count += changes_in(operations)
        self._watches.fire(operations)

    def _entry(self, path: str, version: int = ANY_VERSION) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, entry.version):
            raise BadVersionError(path)
        return entry

    def _apply(self, operation: Operation, undo: list[Callable[[], None]]) -> None:
        if isinstance(operation, Create):
            self._create(operation, undo)
        elif isinstance(operation, Set):
            self._set(operation, undo)
        elif isinstance(operation, Delete):
            self._delete(operation, undo)
        else:
            self._entry(operation.path, operation.version)

    def _create(self, operation: Create, undo: list[Callable[[], None]]) -> None:
        path = operation.path
        if path in self._entries:
            raise NodeExistsError(path)
        parent = self._entry(parent_of(path))
        name = path[path.rfind("/") + 1 :]
        self._entries[path] = _Entry(operation.data)
        parent.children.add(name)

        def revert() -> None:
            del self._entries[path]
            parent.children.discard(name)

        undo.append(revert)

    def _set(self, operation: Set, undo: list[Callable[[], None]]) -> None:
        assert operation.path != "/", "the root has no data"
        entry = self._entry(operation.path, operation.version)
        before = entry.data, entry.version

        def revert() -> None:
            entry.data, entry.version = before

        entry.data, entry.version = operation.data, entry.version + 1
        undo.append(revert)

    def _delete(self, operation: Delete, undo: list[Callable[[], None]]) -> None:
        path = operation.path
        assert path != "/", "the root cannot be deleted"
        entry = self._entry(path, operation.version)
        if entry.children:
            raise NotEmptyError(path)
        parent = self._entries[parent_of(path)]
        name = path[path.rfind("/") + 1 :]
        del self._entries[path]
        parent.children.discard(name)

        def revert() -> None:
            self._entries[path] = entry
            parent.children.add(name)

        undo.append(revert)
