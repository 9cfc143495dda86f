"""The watches of a session, by path. Each fires once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.metadata.store.interface import (
    Create,
    Delete,
    EventKind,
    Operation,
    Set,
    Watcher,
    WatchEvent,
    Written,
    parent_of,
)

Fired = tuple[Watcher, WatchEvent]
_Table = dict[str, dict[Watcher, None]]


class Watches:
    """The registered watches, in the order of their registration. Owned by the session."""

    __slots__ = ("_children", "_nodes")

    def __init__(self) -> None:
        self._nodes: _Table = {}
        self._children: _Table = {}

    def add_node(self, path: str, watcher: Watcher) -> None:
        self._nodes.setdefault(path, {})[watcher] = None

    def add_children(self, path: str, watcher: Watcher) -> None:
        self._children.setdefault(path, {})[watcher] = None

    def clear(self) -> None:
        self._nodes.clear()
        self._children.clear()

    def take(self, event: WatchEvent) -> list[Fired]:
        """Remove and return the watchers of an event. A deletion fires both kinds of watches."""
        watchers: dict[Watcher, None] = {}
        if event.kind is not EventKind.CHILDREN:
            watchers |= self._nodes.pop(event.path, {})
        if event.kind in (EventKind.CHILDREN, EventKind.DELETED):
            watchers |= self._children.pop(event.path, {})
        return [(watcher, event) for watcher in watchers]

    def take_all(self) -> list[Fired]:
        """Remove and return all watches, which end because the connection was lost."""
        fired = [
            (watcher, WatchEvent(EventKind.DISCONNECTED, path))
            for table in (self._nodes, self._children)
            for path, watchers in table.items()
            for watcher in watchers
        ]
        self.clear()
        return fired

    def fired_by(self, operations: Sequence[Operation], results: Sequence[Written]) -> list[Fired]:
        """Remove and return the watches that a write fires, in the order of its changes."""
        if not self._nodes and not self._children:
            return []
        fired: list[Fired] = []
        for event in events_of(operations, results):
            fired += self.take(event)
        return fired


def events_of(operations: Sequence[Operation], results: Sequence[Written]) -> Iterator[WatchEvent]:
    """Return the events of a write, in the order of its changes."""
    for operation, (path, _) in zip(operations, results, strict=True):
        if isinstance(operation, Set):
            yield WatchEvent(EventKind.CHANGED, path)
        elif isinstance(operation, Create):
            yield WatchEvent(EventKind.CREATED, path)
            yield WatchEvent(EventKind.CHILDREN, parent_of(path))
        elif isinstance(operation, Delete):
            yield WatchEvent(EventKind.DELETED, path)
            yield WatchEvent(EventKind.CHILDREN, parent_of(path))
