"""The write that takes a store of Kafka over: lost responses, other brokers, and Kafka itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.controller.kafka_takeover import (
    JoiningBroker,
    ReadLogs,
    check_join,
    is_store_of_kafka,
    take_over,
)
from odradek.controller.loading import check_prepared
from odradek.ids import BrokerId, TopicPartition
from odradek.metadata import znodes
from odradek.metadata.kafka_import.zookeeper_store import DirectoryUse, Logs
from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.interface import (
    BadVersionError,
    NodeExistsError,
    UnknownOutcomeError,
)
from odradek.metadata.store.memory import MemoryStore
from tests.helpers.kafka_zookeeper import recorded_tree, recorded_view, store_with, tree_of

CLUSTER: str = recorded_view()["cluster"]


async def all_logs() -> Logs:
    """Return a log without an id for each partition."""
    topics = recorded_view()["topics"]
    return {
        TopicPartition(name, number): [None]
        for name, (_, partitions) in topics.items()
        for number in range(len(partitions))
    }


def joining(broker: int = 1, read_logs: ReadLogs = all_logs) -> JoiningBroker:
    file = {"zookeeper.connect": "zk:2181/kafka"}
    return JoiningBroker(BrokerId(broker), {}, DirectoryUse(), read_logs, file)


def run(test: Callable[[MemoryStore, MemoryEnsemble], Awaitable[None]]) -> None:
    async def main() -> None:
        ensemble = MemoryEnsemble()
        await test(await store_with(ensemble, recorded_tree()), ensemble)

    asyncio.run(main())


def test_one_write_makes_a_store_of_kafka_one_of_odradek() -> None:
    async def test(store: MemoryStore, _ensemble: MemoryEnsemble) -> None:
        assert await is_store_of_kafka(store)
        await take_over(store, CLUSTER, joining())
        assert not await is_store_of_kafka(store)
        await check_prepared(store, CLUSTER)
        assert await store.exists(znodes.CONTROLLER) is None

    run(test)


def test_a_lost_response_of_the_write_leaves_a_store_that_was_taken_over() -> None:
    async def test(store: MemoryStore, _ensemble: MemoryEnsemble) -> None:
        store.lose_next_response()
        with pytest.raises(UnknownOutcomeError):
            await take_over(store, CLUSTER, joining())
        await store.connected()
        assert not await is_store_of_kafka(store)
        await check_prepared(store, CLUSTER)
        await check_join(store, CLUSTER, joining())

    run(test)


def test_a_write_that_was_lost_leaves_a_store_of_kafka_as_it_was() -> None:
    async def test(store: MemoryStore, _ensemble: MemoryEnsemble) -> None:
        before = await tree_of(store)
        store.lose_next_request()
        with pytest.raises(UnknownOutcomeError):
            await take_over(store, CLUSTER, joining())
        await store.connected()
        assert await is_store_of_kafka(store)
        assert await tree_of(store) == before
        await take_over(store, CLUSTER, joining())

    run(test)


def test_a_broker_that_was_second_writes_nothing() -> None:
    async def test(store: MemoryStore, ensemble: MemoryEnsemble) -> None:
        other = MemoryStore(ensemble)
        await other.open()

        async def logs_after_the_other_broker() -> Logs:
            await take_over(other, CLUSTER, joining(2))
            return await all_logs()

        with pytest.raises((BadVersionError, NodeExistsError)):
            await take_over(store, CLUSTER, joining(1, logs_after_the_other_broker))
        assert not await is_store_of_kafka(store)

    run(test)


def test_the_registration_of_a_broker_that_was_first_is_not_taken_for_kafkas() -> None:
    """The second broker saw a store of Kafka, and then a broker in it."""

    async def test(store: MemoryStore, ensemble: MemoryEnsemble) -> None:
        other = MemoryStore(ensemble)
        await other.open()
        await take_over(other, CLUSTER, joining(2))
        await other.create(f"{znodes.BROKER_IDS}/2", b"{}", ephemeral=True)
        with pytest.raises(NodeExistsError):
            await take_over(store, CLUSTER, joining())

    run(test)


def test_kafka_that_starts_during_the_checks_prevents_the_write() -> None:
    async def test(store: MemoryStore, ensemble: MemoryEnsemble) -> None:
        kafka = MemoryStore(ensemble)
        await kafka.open()

        async def logs_while_kafka_starts() -> Logs:
            await kafka.create(znodes.CONTROLLER, b"{}", ephemeral=True)
            return await all_logs()

        with pytest.raises(NodeExistsError):
            await take_over(store, CLUSTER, joining(1, logs_while_kafka_starts))
        assert await store.exists(znodes.TAKEN_OVER) is None

    run(test)


def test_a_broker_that_has_registered_needs_no_check() -> None:
    async def no_logs() -> Logs:
        raise AssertionError("the log directories are not read")

    async def test(store: MemoryStore, _ensemble: MemoryEnsemble) -> None:
        await take_over(store, CLUSTER, joining())
        await store.create(znodes.registration_path(BrokerId(3)), b"{}")
        await check_join(store, CLUSTER, joining(3, no_logs))

    run(test)
