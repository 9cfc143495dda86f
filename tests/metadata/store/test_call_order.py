"""The order of calls that are in flight at the same time, in all metadata stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.metadata.store.interface import (
    Create,
    MetadataStore,
    Operation,
    SessionLostError,
    Set,
    Written,
)
from odradek.metadata.store.memory import MemoryEnsemble, MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from odradek.metadata.store.zookeeper import OPERATIONS_PER_SLICE, ZooKeeperStore
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress
from testkit.zookeeper import ZooKeeperProcess

LIMIT_S = 60
NewStore = Callable[[], MetadataStore]


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewStore]:
    if request.param == "memory":
        ensemble = MemoryEnsemble()
        yield lambda: MemoryStore(ensemble)
    elif request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "metadata.sqlite")
    else:
        server: ZooKeeperProcess = request.getfixturevalue("zookeeper")
        root = ZooKeeperAddress(server.address, f"/order-{request.node.name}")
        yield lambda: ZooKeeperStore(root)


def long_transaction(name: str) -> list[Operation]:
    """Return a transaction that is prepared in several time slices, and sets the node ``/v``."""
    creations = [Create(f"/{name}-{number}") for number in range(2 * OPERATIONS_PER_SLICE)]
    return [*creations, Set("/v", name.encode())]


def run(new_store: NewStore, scenario: Callable[[MetadataStore], object]) -> None:
    async def opened() -> None:
        store = new_store()
        await store.open()
        try:
            await store.create_root()
            await store.create("/v")
            await scenario(store)  # type: ignore[misc]
        finally:
            await store.close()

    asyncio.run(asyncio.wait_for(opened(), LIMIT_S))


def test_calls_of_a_session_are_executed_in_the_order_in_which_they_begin(
    new_store: NewStore,
) -> None:
    async def scenario(store: MetadataStore) -> None:
        calls = (
            store.set("/v", b"first", 0),
            store.multi(long_transaction("second")),
            store.set("/v", b"third", 2),
            store.get("/v"),
            store.multi(long_transaction("fourth")),
            store.multi([Set("/v", b"fifth", 4)]),
        )
        results = await asyncio.gather(*map(asyncio.ensure_future, calls))
        assert results[3].data == b"third"
        assert results[4][-1] == Written("/v", 4)
        assert results[5] == [Written("/v", 5)]
        assert (await store.get("/v")).data == b"fifth"

    run(new_store, scenario)


def test_long_transaction_is_executed_if_its_caller_is_cancelled(new_store: NewStore) -> None:
    async def scenario(store: MetadataStore) -> None:
        call = asyncio.ensure_future(store.multi(long_transaction("cancelled")))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await store.get("/v")).data == b"cancelled"

    run(new_store, scenario)


def test_calls_that_wait_for_a_long_transaction_fail_when_the_session_is_closed(
    zookeeper: ZooKeeperProcess,
) -> None:
    root = ZooKeeperAddress(zookeeper.address, "/order-closed")

    async def scenario(store: MetadataStore) -> None:
        call = asyncio.ensure_future(store.multi(long_transaction("closed")))
        later = asyncio.ensure_future(store.set("/v", b"later"))
        await asyncio.sleep(0)
        await store.close()
        for each in (call, later):
            with pytest.raises(SessionLostError):
                await each

    run(lambda: ZooKeeperStore(root), scenario)
