"""The watches of a store, by path. Each fires once."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.metadata.store.interface import (
    Create,
    Delete,
    EventKind,
    Operation,
    Set,
    Watcher,
    WatchEvent,
    parent_of,
)


class Watches:
    """The registered watches. Owned by the event loop. A watcher's exception is not caught."""

    __slots__ = ("_children", "_nodes")

    def __init__(self) -> None:
        self._nodes: dict[str, list[Watcher]] = {}
        self._children: dict[str, list[Watcher]] = {}

    def add_node(self, path: str, watcher: Watcher) -> None:
        self._nodes.setdefault(path, []).append(watcher)

    def add_children(self, path: str, watcher: Watcher) -> None:
        self._children.setdefault(path, []).append(watcher)

    def drop_node(self, path: str, watcher: Watcher) -> None:
        """Remove a watch whose read has failed, if it has not fired in the meantime."""
        self._drop(self._nodes, path, watcher)

    def drop_children(self, path: str, watcher: Watcher) -> None:
        self._drop(self._children, path, watcher)

    def clear(self) -> None:
        self._nodes.clear()
        self._children.clear()

    def fire(self, operations: Sequence[Operation]) -> None:
        """Call the watchers of everything that a write changed, in the order of its changes."""
        if not self._nodes and not self._children:
            return
        for operation in operations:
            if isinstance(operation, Set):
                self._notify(self._nodes, EventKind.CHANGED, operation.path)
            elif isinstance(operation, Create):
                self._notify(self._nodes, EventKind.CREATED, operation.path)
                self._notify(self._children, EventKind.CHILDREN, parent_of(operation.path))
            elif isinstance(operation, Delete):
                self._notify(self._nodes, EventKind.DELETED, operation.path)
                self._notify(self._children, EventKind.DELETED, operation.path)
                self._notify(self._children, EventKind.CHILDREN, parent_of(operation.path))

    @staticmethod
    def _drop(watchers: dict[str, list[Watcher]], path: str, watcher: Watcher) -> None:
        waiting = watchers.get(path, [])
        if watcher in waiting:
            waiting.remove(watcher)

    @staticmethod
    def _notify(watchers: dict[str, list[Watcher]], kind: EventKind, path: str) -> None:
        for watcher in watchers.pop(path, ()):
            watcher(WatchEvent(kind, path))
