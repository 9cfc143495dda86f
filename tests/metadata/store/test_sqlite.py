"""The SQLite store: a foreign file, a full disk, durability, and its thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from odradek.metadata.store import sqlite
from odradek.metadata.store.interface import (
    NO_SESSION,
    Create,
    EventKind,
    NoNodeError,
    Stat,
    StoreFailure,
    WatchEvent,
)
from odradek.metadata.store.sqlite import SqliteStore


def test_a_file_that_is_not_a_database_is_refused_and_leaks_no_thread(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    path.write_bytes(b"this is not a database" * 100)
    before = _own_threads()  # a broker that other tests share may have some
    with pytest.raises(StoreFailure):
        asyncio.run(SqliteStore(path).open())
    assert _own_threads() <= before


def _own_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("odradek-metadata")}


def test_a_store_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=3")
    connection.close()
    with pytest.raises(StoreFailure, match="format 3"):
        asyncio.run(SqliteStore(path).open())


def test_writes_are_synced_before_they_return(tmp_path: Path) -> None:
    async def synchronous() -> int:
        store = SqliteStore(tmp_path / "metadata.sqlite")
        await store.open()
        assert store._tree is not None
        connection = store._tree._connection
        mode = await store._on_thread(
            lambda: connection.execute("PRAGMA synchronous").fetchone()[0]
        )
        await store.close()
        return int(mode)

    full = 2
    assert asyncio.run(synchronous()) == full


def test_a_write_to_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    async def fill() -> None:
        store = SqliteStore(tmp_path / "metadata.sqlite")
        await store.open()
        assert store._tree is not None
        connection = store._tree._connection
        await store._on_thread(lambda: connection.execute("PRAGMA max_page_count=8"))
        with pytest.raises(StoreFailure, match="full"):
            await store.multi([Create("/a", b"1"), Create("/b", bytes(200_000))])
        with pytest.raises(NoNodeError):
            await store.get("/a")
        await store.create("/c", b"small")
        await store.close()

    asyncio.run(fill())


def test_calls_from_many_tasks_are_served(tmp_path: Path) -> None:
    async def run() -> list[str]:
        store = SqliteStore(tmp_path / "metadata.sqlite")
        await store.open()
        await asyncio.gather(*(store.create(f"/{number}") for number in range(50)))
        names = await store.children("/")
        await store.close()
        return names

    assert asyncio.run(run()) == sorted(str(number) for number in range(50))


FORMAT_1 = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX nodes_by_parent ON nodes (parent);
INSERT INTO nodes VALUES ('/a', '/', x'31', 2), ('/a/x', '/a', x'', 0), ('/a/y', '/a', x'', 0);
INSERT INTO nodes VALUES ('/', '', x'', 7);
PRAGMA user_version=1;
"""


def write_format_1(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(FORMAT_1)
    connection.close()


def test_a_store_of_the_format_before_is_opened_with_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    write_format_1(path)

    async def scenario() -> None:
        for _ in range(2):
            store = SqliteStore(path)
            await store.open()
            assert await store.get("/a") == (b"1", Stat(7, 7, 7, 2, 2, NO_SESSION, 2))
            assert await store.change_count() == 7
            assert await store.children("/a") == ["x", "y"]
            await store.close()
        await store.open()
        created = await store.create("/a/n-", sequential=True)
        assert created == ("/a/n-0000000002", Stat(8, 8, 8, 0, 0, NO_SESSION, 0))
        await store.close()

    asyncio.run(scenario())


def test_a_migration_that_fails_leaves_the_format_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metadata.sqlite"
    write_format_1(path)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "_FORMAT_2", (*sqlite._FORMAT_2, "INSERT INTO missing VALUES (1)"))
        with pytest.raises(StoreFailure):
            asyncio.run(SqliteStore(path).open())
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(nodes)")]
    assert columns == ["path", "parent", "data", "version"]
    connection.close()

    async def scenario() -> None:
        store = SqliteStore(path)
        await store.open()
        assert (await store.get("/a")).version == 2
        await store.close()

    asyncio.run(scenario())


def test_a_cancelled_write_is_executed_and_fires_its_watches(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "metadata.sqlite")
        await store.open()
        events: list[WatchEvent] = []
        await store.exists("/a", events.append)
        writing = asyncio.create_task(store.create("/a"))
        await asyncio.sleep(0)
        writing.cancel()
        assert await store.exists("/a") is not None
        assert events == [WatchEvent(EventKind.CREATED, "/a")]
        await store.close()

    asyncio.run(scenario())
