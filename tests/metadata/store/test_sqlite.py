"""The SQLite store: a foreign file, a full disk, durability, and its thread."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from odradek.metadata.store.interface import Create, NoNodeError, StoreFailure
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
