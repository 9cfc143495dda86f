"""A model of the metadata store: the results of calls, and the watches that fire.

It is written without the product's tree: entries are immutable, and a write replaces the dictionary
of entries as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from odradek.metadata.store.interface import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    Stat,
    WatchEvent,
    parent_of,
)

NO_OWNER = ""
"""The owner of nodes that are not ephemeral. Sessions of the model have names."""


@dataclass(frozen=True)
class Entry:
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    version: int = 0
    creations: int = 0
    deletions: int = 0
    owner: str = NO_OWNER


@dataclass
class SessionModel:
    """The watches of a session, and the events that it must have received."""

    nodes: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)

    def take(self, watches: list[str], kind: EventKind, path: str) -> None:
        count = watches.count(path)
        watches[:] = [watched for watched in watches if watched != path]
        self.events += [WatchEvent(kind, path)] * count

    def disconnected(self) -> None:
        """All watches end. The order of their events is not part of the contract."""
        self.events += [
            WatchEvent(EventKind.DISCONNECTED, path) for path in self.nodes + self.children
        ]
        self.forget_watches()

    def forget_watches(self) -> None:
        self.nodes.clear()
        self.children.clear()


class Model:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {"/": Entry(b"", 0, 0, 0)}
        self.zxid = 0
        self.change_count = 0
        self.sessions: dict[str, SessionModel] = {}

    def children(self, path: str) -> list[str]:
        return sorted(
            p.rpartition("/")[2] for p in self.entries if p != "/" and parent_of(p) == path
        )

    def stat(self, path: str) -> Stat:
        """Return the node's Stat. The owner is not in it, because ids differ between stores."""
        entry = self.entries[path]
        cversion = entry.creations + entry.deletions
        count = len(self.children(path))
        return Stat(entry.czxid, entry.mzxid, entry.pzxid, entry.version, cversion, 0, count)

    def write(self, operations: Sequence[Operation], session: str) -> list[tuple[str, int]]:
        """Apply the operations. Return paths and versions, or raise the store's error."""
        before, self.zxid = self.entries, self.zxid + 1
        try:
            results = [self._apply(operation, session) for operation in operations]
        except Exception:
            self.entries = before
            raise
        self.change_count += sum(not isinstance(operation, Check) for operation in operations)
        for operation, (path, _) in zip(operations, results, strict=True):
            self._fire(operation, path)
        return results

    def end_session(self, session: str) -> None:
        owned = sorted(path for path, entry in self.entries.items() if entry.owner == session)
        if owned:
            self.write([Delete(path) for path in owned], NO_OWNER)

    def _with(self, path: str, entry: Entry) -> None:
        self.entries = {**self.entries, path: entry}

    def _apply(self, operation: Operation, session: str) -> tuple[str, int]:
        path = operation.path
        if isinstance(operation, Create):
            return self._create(operation, session)
        if path not in self.entries:
            raise NoNodeError(path)
        entry = self.entries[path]
        if operation.version not in (ANY_VERSION, entry.version):
            raise BadVersionError(path)
        if isinstance(operation, Set):
            version = entry.version + 1
            self._with(path, replace(entry, data=operation.data, version=version, mzxid=self.zxid))
            return path, version
        if isinstance(operation, Delete):
            if self.children(path):
                raise NotEmptyError(path)
            self.entries = {p: each for p, each in self.entries.items() if p != path}
            parent = self.entries[parent_of(path)]
            changed = replace(parent, deletions=parent.deletions + 1, pzxid=self.zxid)
            self._with(parent_of(path), changed)
        return path, ANY_VERSION

    def _create(self, operation: Create, session: str) -> tuple[str, int]:
        parent_path = parent_of(operation.path)
        if parent_path not in self.entries:
            raise NoNodeError(operation.path)
        parent = self.entries[parent_path]
        path = operation.path
        if operation.sequential:
            path += str(parent.creations).rjust(10, "0")
        if path in self.entries:
            raise NodeExistsError(operation.path)
        if parent.owner != NO_OWNER:
            raise NoChildrenForEphemeralsError(operation.path)
        self._with(parent_path, replace(parent, creations=parent.creations + 1, pzxid=self.zxid))
        owner = session if operation.ephemeral else NO_OWNER
        self._with(path, Entry(operation.data, self.zxid, self.zxid, self.zxid, owner=owner))
        return path, 0

    def _fire(self, operation: Operation, path: str) -> None:
        for session in self.sessions.values():
            if isinstance(operation, Set):
                session.take(session.nodes, EventKind.CHANGED, path)
            elif isinstance(operation, Create):
                session.take(session.nodes, EventKind.CREATED, path)
                session.take(session.children, EventKind.CHILDREN, parent_of(path))
            elif isinstance(operation, Delete):
                session.take(session.nodes, EventKind.DELETED, path)
                session.take(session.children, EventKind.DELETED, path)
                session.take(session.children, EventKind.CHILDREN, parent_of(path))


def owned_paths(model: Model, session: str) -> Iterable[str]:
    return (path for path, entry in model.entries.items() if entry.owner == session)
