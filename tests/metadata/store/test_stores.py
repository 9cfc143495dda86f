"""Both metadata stores compared with a model, a dictionary of paths, by random operations."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from odradek.metadata.store.interface import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
    WatchEvent,
    parent_of,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.sqlite import SqliteStore

Result = TypeVar("Result")
Tree = dict[str, tuple[bytes, int]]

PATHS = st.sampled_from(["/a", "/a/x", "/a/y", "/a/x/1", "/a b"])
DATA = st.binary(max_size=4)
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


def children_of(tree: Tree, path: str) -> list[str]:
    return sorted(p.rpartition("/")[2] for p in tree if p != "/" and parent_of(p) == path)


def apply(tree: Tree, operation: Operation) -> None:
    """Change the model's tree, or raise the error that a store must raise."""
    path = operation.path
    if isinstance(operation, Create):
        if path in tree:
            raise NodeExistsError(path)
        if parent_of(path) not in tree:
            raise NoNodeError(parent_of(path))
        tree[path] = (operation.data, 0)
        return
    if path not in tree:
        raise NoNodeError(path)
    version = tree[path][1]
    if operation.version not in (ANY_VERSION, version):
        raise BadVersionError(path)
    if isinstance(operation, Set):
        tree[path] = (operation.data, version + 1)
    elif isinstance(operation, Delete):
        if children_of(tree, path):
            raise NotEmptyError(path)
        del tree[path]


def apply_all(tree: Tree, operations: Iterable[Operation]) -> Tree:
    changed = dict(tree)
    for operation in operations:
        apply(changed, operation)
    return changed


class StoreMachine(RuleBasedStateMachine):
    """Rules for any store. A subclass creates the store and reopens it."""

    store: MetadataStore

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tree: Tree = {"/": (b"", 0)}
        self.change_count = 0
        self.node_watches: list[str] = []
        self.child_watches: list[str] = []
        self.events: list[WatchEvent] = []
        self.begin()
        self.run(self.store.open())

    def begin(self) -> None:
        raise NotImplementedError

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()

    def forget_watches(self) -> None:
        self.node_watches.clear()
        self.child_watches.clear()

    @initialize(paths=st.sets(PATHS))
    def populate(self, paths: set[str]) -> None:
        for path in sorted(paths):
            if parent_of(path) in self.tree:
                self.run(self.store.create(path, b"first"))
                self.change_count += 1
                self.tree[path] = (b"first", 0)

    @rule(operations=st.lists(OPERATIONS, max_size=5))
    def multi(self, operations: list[Operation]) -> None:
        self.events.clear()
        try:
            expected: Tree | StoreError = apply_all(self.tree, operations)
        except StoreError as error:
            expected = error
        try:
            self.run(self.store.multi(operations))
        except StoreError as error:
            assert isinstance(expected, StoreError)
            assert (type(error), error.path) == (type(expected), expected.path)
            assert not self.events
            return
        assert not isinstance(expected, StoreError)
        self.tree = expected
        self.change_count += sum(not isinstance(each, Check) for each in operations)
        self.check_events(operations)

    def check_events(self, operations: Iterable[Operation]) -> None:
        expected: list[WatchEvent] = []
        for operation in operations:
            expected += self.fired(operation)
        assert self.events == expected

    def fired(self, operation: Operation) -> list[WatchEvent]:
        path, parent = operation.path, parent_of(operation.path)
        if isinstance(operation, Set):
            return self.taken(self.node_watches, EventKind.CHANGED, path)
        if isinstance(operation, Create):
            return self.taken(self.node_watches, EventKind.CREATED, path) + self.taken(
                self.child_watches, EventKind.CHILDREN, parent
            )
        if isinstance(operation, Delete):
            return (
                self.taken(self.node_watches, EventKind.DELETED, path)
                + self.taken(self.child_watches, EventKind.DELETED, path)
                + self.taken(self.child_watches, EventKind.CHILDREN, parent)
            )
        return []

    @staticmethod
    def taken(watches: list[str], kind: EventKind, path: str) -> list[WatchEvent]:
        count = watches.count(path)
        watches[:] = [watched for watched in watches if watched != path]
        return [WatchEvent(kind, path)] * count

    @rule(path=PATHS, data=DATA)
    def create(self, path: str, data: bytes) -> None:
        self.single(Create(path, data), lambda: self.store.create(path, data))

    @rule(path=PATHS, version=VERSIONS)
    def delete(self, path: str, version: int) -> None:
        self.single(Delete(path, version), lambda: self.store.delete(path, version))

    @rule(path=PATHS, data=DATA, version=VERSIONS)
    def set(self, path: str, data: bytes, version: int) -> None:
        result = self.single(Set(path, data, version), lambda: self.store.set(path, data, version))
        if result is not None:
            assert result == self.tree[path][1]

    def single(self, operation: Operation, call: Any) -> Any:
        self.events.clear()
        try:
            expected = apply_all(self.tree, [operation])
        except StoreError as error:
            try:
                self.run(call())
            except StoreError as raised:
                assert type(raised) is type(error)
                return None
            raise AssertionError(f"{operation} was accepted") from error
        result = self.run(call())
        self.tree = expected
        self.change_count += 1
        self.check_events([operation])
        return result

    @rule(path=PATHS)
    def watch_node(self, path: str) -> None:
        try:
            node = self.run(self.store.get(path, self.events.append))
        except NoNodeError:
            assert path not in self.tree
            return
        assert node == self.tree[path]
        self.node_watches.append(path)

    @rule(path=PATHS | st.just("/"))
    def watch_children(self, path: str) -> None:
        try:
            names = self.run(self.store.children(path, self.events.append))
        except NoNodeError:
            assert path not in self.tree
            return
        assert names == children_of(self.tree, path)
        self.child_watches.append(path)

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        paths = ["/", "/a", "/a/x", "/a/y", "/a/x/1", "/a b", "/a/x/1/2"]
        nodes = self.run(self.store.get_many(paths))
        assert nodes == [self.tree.get(path) for path in paths]
        assert self.run(self.store.change_count()) == self.change_count


class MemoryMachine(StoreMachine):
    def begin(self) -> None:
        self.store = MemoryStore()

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.run(self.store.open())
        self.forget_watches()


class SqliteMachine(StoreMachine):
    def begin(self) -> None:
        self.directories = [Path(tempfile.mkdtemp(prefix="odradek-store-"))]
        self.store = SqliteStore(self.directories[0] / "metadata.sqlite")

    def teardown(self) -> None:
        super().teardown()
        for directory in self.directories:
            shutil.rmtree(directory)

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        self.store = SqliteStore(self.directories[-1] / "metadata.sqlite")
        self.run(self.store.open())
        self.forget_watches()

    @precondition(lambda self: len(self.directories) < 5)
    @rule()
    def crash(self) -> None:
        """Open a copy of the files as they are now, as another process would after a crash."""
        after = Path(tempfile.mkdtemp(prefix="odradek-store-"))
        for name in ("metadata.sqlite", "metadata.sqlite-wal"):
            source = self.directories[-1] / name
            if source.exists():
                shutil.copyfile(source, after / name)
        self.run(self.store.close())
        self.directories.append(after)
        self.store = SqliteStore(after / "metadata.sqlite")
        self.run(self.store.open())
        self.forget_watches()


BOUNDS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = BOUNDS
TestSqliteStore = SqliteMachine.TestCase
TestSqliteStore.settings = BOUNDS
