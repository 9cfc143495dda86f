"""The metadata store in a SQLite file, for a single broker that keeps its topics over restarts.

All SQLite calls run on one thread that belongs to the store. The event loop submits calls to it in
order, so a read sees every write that was submitted before it. The connection is never lost, so the
session is CONNECTED from `open` to `close`.

Format: one table, ``nodes``, with a row for each node. ``created_children`` counts the creations of
children, which gives sequential names and `Stat.cversion`. The root has no parent. Its version
counts the changes of all other nodes, and a write's zxid is that count after the write. The
database's ``user_version`` is 2. Format 1 had the columns path, parent, data and version. Opening
such a file adds the other columns in one transaction: all nodes get the zxid of the last write. An
interrupted creation of a file in format 1 has left the columns of format 1 and ``user_version`` 0.

Ephemeral nodes belong to the session that is open. `close` deletes them. After a crash, the next
`open` does, because the process that owned them has ended.

Durability: a write-ahead log with synchronous=FULL. A write that has returned survives a power cut.
After a crash, a write in progress has happened either as a whole or not at all. SQLite replays its
log at the next open.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from odradek.environment.executors import Executors, Pool
from odradek.environment.files import RealFiles, create_file
from odradek.environment.thread_pool import ThreadExecutors
from odradek.metadata.store.interface import (
    ANY_VERSION,
    NO_SESSION,
    BadVersionError,
    Create,
    Created,
    Delete,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Performed,
    SessionLostError,
    SessionState,
    Set,
    Stat,
    StoreFailure,
    Watcher,
    Written,
    changes_in,
    check_path,
    parent_of,
    sequential_path,
)
from odradek.metadata.store.store_session import StoreSession
from odradek.metadata.store.watches import Watches

FORMAT_VERSION = 2
_FORMAT_1 = (
    """
    CREATE TABLE IF NOT EXISTS nodes (
        path TEXT PRIMARY KEY,
        parent TEXT NOT NULL,
        data BLOB NOT NULL,
        version INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX IF NOT EXISTS nodes_by_parent ON nodes (parent)",
)
_FORMAT_2 = (
    "INSERT OR IGNORE INTO nodes VALUES ('/', '', x'', 0)",
    "ALTER TABLE nodes ADD COLUMN czxid INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE nodes ADD COLUMN mzxid INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE nodes ADD COLUMN pzxid INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE nodes ADD COLUMN created_children INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE nodes ADD COLUMN child_count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE nodes ADD COLUMN owner INTEGER NOT NULL DEFAULT 0",
    """
    UPDATE nodes SET child_count =
        (SELECT COUNT(*) FROM nodes AS child WHERE child.parent = nodes.path)
    """,
    "UPDATE nodes SET created_children = child_count",
    """
    UPDATE nodes SET czxid = (SELECT version FROM nodes WHERE path = '/') WHERE path != '/'
    """,
    "UPDATE nodes SET mzxid = czxid, pzxid = czxid",
)
_SELECT = """
SELECT data, czxid, mzxid, pzxid, version, created_children, child_count, owner
FROM nodes WHERE path = ?
"""
_INSERT = "INSERT INTO nodes VALUES (?, ?, ?, 0, ?, ?, ?, 0, 0, ?)"
_ADD_CHILD = """
UPDATE nodes SET child_count = child_count + 1, created_children = created_children + 1, pzxid = ?
WHERE path = ?
"""
_REMOVE_CHILD = "UPDATE nodes SET child_count = child_count - 1, pzxid = ? WHERE path = ?"
_SET = "UPDATE nodes SET data = ?, version = version + 1, mzxid = ? WHERE path = ?"
Result = TypeVar("Result")


class SqliteStore(StoreSession):
    """`MetadataStore` and `SingleNodeStore` in the file at `path`, whose directory must exist."""

    multi_bytes_max = None

    def __init__(self, path: Path | str, executors: Executors | None = None) -> None:
        super().__init__()
        self._path = path
        self._executors: Executors = executors or ThreadExecutors()
        self._watches = Watches()
        self._thread: Pool | None = None
        self._tree: _Tree | None = None

    # --- the session ---

    async def open(self) -> None:
        """Open or create the file. Raise StoreFailure if it is not a metadata store."""
        assert self._thread is None, "opened twice"
        self._thread = self._executors.pool(1, "odradek-metadata")
        try:
            tree = await self._on_thread(lambda: _Tree(self._path))
        except BaseException:
            self._end_thread()
            raise
        self._tree = tree
        self._session_id = tree.session_id
        self._change_session(SessionState.CONNECTED)

    async def close(self) -> None:
        self._watches.clear()
        tree, self._tree = self._tree, None
        self._end_session()
        try:
            if tree is not None:
                await self._on_thread(tree.close)
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True)

    # --- requests ---

    def _on_thread(
        self,
        call: Callable[[], Result],
        on_success: Callable[[Result], None] | None = None,
    ) -> asyncio.Future[Result]:
        """Run `call` on the thread after all earlier calls.

        Args:
            call: Uses the file.
            on_success: Called on the event loop before the future is done, in the order of the
                calls, even if the caller is cancelled.
        """
        if self._thread is None:
            raise SessionLostError("the store is not open")
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[Result] = loop.create_future()

        def complete(done: Future[Result]) -> None:
            error = done.exception()
            if error is None and on_success is not None:
                on_success(done.result())
            if pending.done():  # its caller was cancelled
                return
            if isinstance(error, sqlite3.Error):
                failure = StoreFailure(f"{self._path}: {error}")
                failure.__cause__ = error
                pending.set_exception(failure)
            elif error is not None:
                pending.set_exception(error)
            else:
                pending.set_result(done.result())

        future = self._thread.submit(call)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(complete, done))
        return pending

    def _open_tree(self) -> _Tree:
        if self._tree is None:
            raise SessionLostError("the store is not open")
        return self._tree

    async def sync(self) -> None:
        await self._on_thread(lambda: None)

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        tree = self._open_tree()

        def read() -> Node:
            node = tree.node(path)
            if node is None:
                raise NoNodeError(path)
            return node

        return await self._on_thread(read, self._registering(self._watches.add_node, path, watch))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        tree = self._open_tree()
        node = await self._on_thread(
            lambda: tree.node(path), self._registering(self._watches.add_node, path, watch)
        )
        return None if node is None else node.stat

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        tree = self._open_tree()
        return await self._on_thread(lambda: [tree.node(path) for path in paths])

    async def change_count(self) -> int:
        return await self._on_thread(self._open_tree().change_count)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        tree = self._open_tree()
        return await self._on_thread(
            lambda: tree.children(path),
            self._registering(self._watches.add_children, path, watch),
        )

    @staticmethod
    def _registering(
        add: Callable[[str, Watcher], None], path: str, watch: Watcher | None
    ) -> Callable[[object], None] | None:
        """Return the registration of a watch when its read succeeds.

        The results of the thread arrive in order, so no write after the read is missed.
        """
        return None if watch is None else lambda _: add(path, watch)

    async def _write(self, operations: Sequence[Operation]) -> list[Performed]:
        tree = self._open_tree()

        def fire(results: list[Performed]) -> None:
            written = [result.written for result in results]
            for watcher, event in self._watches.fired_by(operations, written):
                asyncio.get_running_loop().call_soon(watcher, event)

        return await self._on_thread(lambda: tree.apply_all(operations), fire)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        ((written, stat),) = await self._write([Create(path, data, ephemeral, sequential)])
        assert stat is not None
        return Created(written.path, stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        ((_, stat),) = await self._write([Set(path, data, version)])
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Written]:
        return [written for written, _ in await self._write(operations)]


class _Tree:
    """The file itself. Used only on the store's thread."""

    def __init__(self, path: Path | str) -> None:
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
            statements = _FORMAT_2 if found == 1 else (*_FORMAT_1, *_FORMAT_2)
            with self._transaction():
                for statement in statements:
                    execute(statement)
                execute(f"PRAGMA user_version={FORMAT_VERSION}")
        self._delete_ephemerals()
        # Unique among the sessions that own ephemeral nodes, because each creation is counted.
        self.session_id = self.change_count() + 1

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit when the block ends. Roll back if it or the commit fails."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            yield
            execute("COMMIT")
        except BaseException:
            # A failed write may have ended the transaction by itself.
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise

    def close(self) -> None:
        try:
            self._delete_ephemerals()
        finally:
            self._connection.close()

    def _delete_ephemerals(self) -> None:
        """Delete the ephemeral nodes of the session that has ended."""
        rows = self._connection.execute("SELECT path FROM nodes WHERE owner != 0 ORDER BY path")
        operations = [Delete(path) for (path,) in rows.fetchall()]
        if operations:
            self.apply_all(operations)

    def node(self, path: str) -> Node | None:
        row = self._connection.execute(_SELECT, (path,)).fetchone()
        if row is None:
            return None
        data, czxid, mzxid, pzxid, version, created, count, owner = row
        if path == "/":
            version = 0  # its column counts the changes of all nodes
        cversion = 2 * created - count  # as in ZooKeeper: creations and deletions
        return Node(data, Stat(czxid, mzxid, pzxid, version, cversion, owner, count))

    def change_count(self) -> int:
        row = self._connection.execute("SELECT version FROM nodes WHERE path = '/'").fetchone()
        return int(row[0])

    def children(self, path: str) -> list[str]:
        if self.node(path) is None:
            raise NoNodeError(path)
        rows = self._connection.execute("SELECT path FROM nodes WHERE parent = ?", (path,))
        return sorted(child[child.rfind("/") + 1 :] for (child,) in rows)

    def apply_all(self, operations: Sequence[Operation]) -> list[Performed]:
        """Perform the operations in one transaction. Any failure leaves the tree unchanged."""
        changes = changes_in(operations)
        with self._transaction():
            zxid = self.change_count() + changes
            results = [self._apply(operation, zxid) for operation in operations]
            if changes:
                self._connection.execute("UPDATE nodes SET version = ? WHERE path = '/'", (zxid,))
        return results

    def _apply(self, operation: Operation, zxid: int) -> Performed:
        path = operation.path
        check_path(path)
        if isinstance(operation, Create):
            return self._create(operation, zxid)
        node = self.node(path)
        if node is None:
            raise NoNodeError(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        if isinstance(operation, Set):
            assert path != "/", "the root has no data"
            self._connection.execute(_SET, (operation.data, zxid, path))
            stat = node.stat._replace(version=node.version + 1, mzxid=zxid)
            return Performed(Written(path, stat.version), stat)
        if isinstance(operation, Delete):
            self._delete(path, node.stat, zxid)
        return Performed(Written(path, ANY_VERSION), None)

    def _create(self, operation: Create, zxid: int) -> Performed:
        parent_path = parent_of(operation.path)
        row = self._connection.execute(
            "SELECT created_children, owner FROM nodes WHERE path = ?", (parent_path,)
        ).fetchone()
        if row is None:
            raise NoNodeError(operation.path)
        created_children, parent_owner = row
        path = operation.path
        if operation.sequential:
            path = sequential_path(path, created_children)
        if self.node(path) is not None:
            raise NodeExistsError(operation.path)
        if parent_owner != NO_SESSION:
            raise NoChildrenForEphemeralsError(operation.path)
        owner = self.session_id if operation.ephemeral else NO_SESSION
        execute = self._connection.execute
        execute(_INSERT, (path, parent_path, operation.data, zxid, zxid, zxid, owner))
        execute(_ADD_CHILD, (zxid, parent_path))
        return Performed(Written(path, 0), Stat(zxid, zxid, zxid, 0, 0, owner, 0))

    def _delete(self, path: str, stat: Stat, zxid: int) -> None:
        assert path != "/", "the root cannot be deleted"
        if stat.child_count:
            raise NotEmptyError(path)
        self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
        self._connection.execute(_REMOVE_CHILD, (zxid, parent_of(path)))
