"""The metadata store in a SQLite file, for a single broker that keeps its topics over restarts.

All SQLite calls run on one thread that belongs to the store. The event loop submits calls to it in
order, so a read sees every write that was submitted before it.

Format: one table, ``nodes(path, parent, data, version)``, with a row for each node. The root has no
parent, and its version counts the changes of all other nodes. The database's ``user_version`` is 1.

Durability: a write-ahead log with synchronous=FULL. A write that has returned survives a power cut.
After a crash, a write in progress has happened either as a whole or not at all. SQLite replays its
log at the next open.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from odradek.environment.executors import Executors, Pool
from odradek.environment.files import RealFiles, create_file
from odradek.environment.thread_pool import ThreadExecutors
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
    StoreFailure,
    Watcher,
    changes_in,
    check_path,
    parent_of,
)
from odradek.metadata.store.watches import Watches

FORMAT_VERSION = 1
_ROOT = Node(b"", 0)
_COUNT_CHANGES = """
INSERT INTO nodes VALUES ('/', '', x'', ?)
ON CONFLICT (path) DO UPDATE SET version = version + excluded.version
"""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS nodes_by_parent ON nodes (parent);
"""
Result = TypeVar("Result")


class SqliteStore:
    """`MetadataStore` in the file at `path`, whose directory must exist."""

    def __init__(self, path: Path, executors: Executors | None = None) -> None:
        self._path = path
        self._executors: Executors = executors or ThreadExecutors()
        self._watches = Watches()
        self._thread: Pool | None = None
        self._tree: _Tree | None = None

    async def open(self) -> None:
        """Open or create the file. Raise StoreFailure if it is not a metadata store."""
        assert self._thread is None, "opened twice"
        self._thread = self._executors.pool(1, "odradek-metadata")
        try:
            self._tree = await self._on_thread(lambda: _Tree(self._path))
        except BaseException:
            self._end_thread()
            raise

    async def close(self) -> None:
        self._watches.clear()
        tree, self._tree = self._tree, None
        if tree is not None:
            await self._on_thread(tree.close)
        self._end_thread()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True)

    async def _on_thread(self, call: Callable[[], Result]) -> Result:
        assert self._thread is not None, "the store is not open"
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except sqlite3.Error as error:
            raise StoreFailure(f"{self._path}: {error}") from error

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        if watch is not None:
            # Registered before the read is submitted, because later writes must fire the watch.
            self._watches.add_node(path, watch)
        node = (await self.get_many([path]))[0]
        if node is None:
            if watch is not None:
                self._watches.drop_node(path, watch)
            raise NoNodeError(path)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        tree = self._open_tree()
        return await self._on_thread(lambda: [tree.node(path) for path in paths])

    async def change_count(self) -> int:
        tree = self._open_tree()
        return await self._on_thread(tree.change_count)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        tree = self._open_tree()
        if watch is not None:
            self._watches.add_children(path, watch)
        try:
            return await self._on_thread(lambda: tree.children(path))
        except NoNodeError:
            if watch is not None:
                self._watches.drop_children(path, watch)
            raise

    async def create(self, path: str, data: bytes = b"") -> None:
        await self.multi([Create(path, data)])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        operation = Set(path, data, version)
        tree = self._open_tree()

        def write() -> int:
            tree.apply_all([operation])
            node = tree.node(path)
            assert node is not None
            return node.version

        new_version = await self._on_thread(write)
        self._watches.fire([operation])
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> None:
        tree = self._open_tree()
        await self._on_thread(lambda: tree.apply_all(operations))
        self._watches.fire(operations)

    def _open_tree(self) -> _Tree:
        assert self._tree is not None, "the store is not open"
        return self._tree


class _Tree:
    """The file itself. Used only on the store's thread."""

    def __init__(self, path: Path) -> None:
        # SQLite would let all users read the file. Its other files get the mode of this one.
        create_file(RealFiles(), str(path))
        self._connection = sqlite3.connect(path, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=FULL")
        found = execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT_VERSION:
            raise sqlite3.DatabaseError(
                f"the metadata store has format {found}, but this version of Odradek supports "
                f"only {FORMAT_VERSION}. Use a newer version"
            )
        if found < FORMAT_VERSION:
            self._connection.executescript(_SCHEMA)
            execute(f"PRAGMA user_version={FORMAT_VERSION}")

    def close(self) -> None:
        self._connection.close()

    def node(self, path: str) -> Node | None:
        if path == "/":
            return _ROOT
        row = self._connection.execute(
            "SELECT data, version FROM nodes WHERE path = ?", (path,)
        ).fetchone()
        return None if row is None else Node(*row)

    def change_count(self) -> int:
        row = self._connection.execute("SELECT version FROM nodes WHERE path = '/'").fetchone()
        return 0 if row is None else int(row[0])

    def children(self, path: str) -> list[str]:
        if self.node(path) is None:
            raise NoNodeError(path)
        rows = self._connection.execute("SELECT path FROM nodes WHERE parent = ?", (path,))
        return sorted(child[child.rfind("/") + 1 :] for (child,) in rows)

    def apply_all(self, operations: Sequence[Operation]) -> None:
        """Perform the operations in one transaction. Any failure leaves the tree unchanged."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for operation in operations:
                check_path(operation.path)
                self._apply(operation)
            if changes := changes_in(operations):
                execute(_COUNT_CHANGES, (changes,))
            execute("COMMIT")
        except BaseException:
            # A failed write may have ended the transaction by itself.
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def _apply(self, operation: Operation) -> None:
        if isinstance(operation, Create):
            self._create(operation)
            return
        path = operation.path
        node = self.node(path)
        if node is None:
            raise NoNodeError(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        if isinstance(operation, Set):
            self._set(operation)
        elif isinstance(operation, Delete):
            self._delete(operation)

    def _create(self, operation: Create) -> None:
        path, parent = operation.path, parent_of(operation.path)
        if self.node(path) is not None:
            raise NodeExistsError(path)
        if self.node(parent) is None:
            raise NoNodeError(parent)
        self._connection.execute(
            "INSERT INTO nodes VALUES (?, ?, ?, 0)", (path, parent, operation.data)
        )

    def _set(self, operation: Set) -> None:
        assert operation.path != "/", "the root has no data"
        self._connection.execute(
            "UPDATE nodes SET data = ?, version = version + 1 WHERE path = ?",
            (operation.data, operation.path),
        )

    def _delete(self, operation: Delete) -> None:
        assert operation.path != "/", "the root cannot be deleted"
        child = self._connection.execute(
            "SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (operation.path,)
        ).fetchone()
        if child is not None:
            raise NotEmptyError(operation.path)
        self._connection.execute("DELETE FROM nodes WHERE path = ?", (operation.path,))
