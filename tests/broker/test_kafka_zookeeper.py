"""A store that has a cluster id, but not all nodes of Odradek: the start writes nothing.

`test_moving_in` starts brokers on a store of Kafka that is taken over.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from odradek.broker.broker import STORE_FILE
from odradek.controller import store_move
from odradek.controller.loading import prepare
from odradek.environment.thread_pool import ThreadExecutors
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata import znodes
from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.interface import Create
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from tests.helpers.cluster_brokers import ClusterBrokers

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
TOPIC = {
    "version": 3,
    "topic_id": "Y8jpUjhCQd2xGFQIpJe8Rw",
    "partitions": {"0": [5]},
    "adding_replicas": {},
    "removing_replicas": {},
}
STATE = {"controller_epoch": 7, "leader": 5, "version": 1, "leader_epoch": 3, "isr": [5]}
BROKER = {
    "version": 5,
    "host": "127.0.0.1",
    "port": 1,
    "jmx_port": -1,
    "timestamp": "1",
    "endpoints": ["PLAINTEXT://127.0.0.1:1"],
    "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
    "features": {},
}
CONTROLLER = {"version": 2, "brokerid": 5, "timestamp": "1", "kraftControllerEpoch": -1}
BLOCK = {"version": 1, "broker": 5, "block_start": "4000", "block_end": "4999"}
KAFKA_PARENTS = (
    *("/consumers", "/brokers", "/brokers/ids", "/brokers/topics", "/brokers/seqid"),
    *("/config", "/config/changes", "/config/topics", "/config/clients", "/config/users"),
    *("/config/brokers", "/config/ips", "/admin", "/admin/delete_topics", "/cluster"),
    *("/isr_change_notification", "/log_dir_event_notification"),
    *("/brokers/topics/t", "/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"),
)


def node(path: str, content: object, *, ephemeral: bool = False) -> Create:
    return Create(path, json.dumps(content).encode(), ephemeral=ephemeral)


async def kafka_39(ensemble: MemoryEnsemble, *, is_live: bool) -> MemoryStore:
    """Create the nodes of broker 5 of Kafka 3.9. Return its session."""
    store = MemoryStore(ensemble)
    await store.open()
    operations = [Create(path) for path in KAFKA_PARENTS if path != "/brokers/topics/t"]
    operations.insert(KAFKA_PARENTS.index("/brokers/topics/t"), node("/brokers/topics/t", TOPIC))
    operations += [
        node("/cluster/id", {"version": "1", "id": CLUSTER}),
        node("/feature", {"features": {}, "version": 2, "status": 1}),
        node("/latest_producer_id_block", BLOCK),
        node("/brokers/topics/t/partitions/0/state", STATE),
        Create("/controller_epoch", b"7"),
    ]
    if is_live:
        operations.append(node("/brokers/ids/5", BROKER, ephemeral=True))
        operations.append(node("/controller", CONTROLLER, ephemeral=True))
    await store.multi(operations)
    return store


async def tree(store: MemoryStore) -> dict[str, tuple[bytes, int]]:
    """Return the contents of all nodes, and the ids of their last writes."""
    paths = ["/"]
    for path in paths:
        paths += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
    nodes = await store.get_many(paths)
    return {
        path: (each.data, each.stat.pzxid + each.stat.mzxid)
        for path, each in zip(paths, nodes, strict=True)
        if each is not None
    }


@pytest.mark.parametrize("broker_id", [1, 5])
@pytest.mark.parametrize("is_live", [True, False])
def test_new_brokers_do_not_take_over_the_zookeeper_of_apache_kafka(
    tmp_path: Path, patient: None, is_live: bool, broker_id: int
) -> None:
    async def test() -> None:
        cluster = ClusterBrokers(tmp_path)
        kafka = await kafka_39(cluster.ensemble, is_live=is_live)
        before = await tree(kafka)
        with pytest.raises(KafkaError, match=CLUSTER) as refused:
            await cluster.start(broker_id)
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "Apache Kafka" in refused.value.message
        assert "\n" not in refused.value.message
        assert await tree(kafka) == before

    asyncio.run(test())


@pytest.mark.parametrize(
    "path",
    [znodes.METADATA, znodes.CONTROLLER_EPOCH, znodes.PRODUCER_ID_BLOCK, znodes.FEATURES],
)
@pytest.mark.parametrize("has_controller", [True, False])
def test_a_node_with_contents_that_was_removed_is_not_created_again(
    tmp_path: Path, patient: None, path: str, has_controller: bool
) -> None:
    async def test() -> None:
        cluster = ClusterBrokers(tmp_path)
        await cluster.start(1)
        await cluster.stop()
        store = MemoryStore(cluster.ensemble)
        await store.open()
        await store.delete(path)
        if has_controller:
            await store.create(znodes.CONTROLLER, b"", ephemeral=True)
        before = await tree(store)
        with pytest.raises(KafkaError, match=path) as refused:
            await cluster.start(1)
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert await tree(store) == before

    asyncio.run(test())


def test_a_node_that_is_removed_during_a_start_is_not_created_again() -> None:
    async def test() -> None:
        store = MemoryStore(MemoryEnsemble())
        await store.open()
        await prepare(store, CLUSTER, lambda: bytes(16), completes=False)
        await store.delete(znodes.CONTROLLER_EPOCH)
        with pytest.raises(KafkaError, match=znodes.CONTROLLER_EPOCH):
            await prepare(store, CLUSTER, lambda: bytes(16), completes=False)
        assert await store.exists(znodes.CONTROLLER_EPOCH) is None

    asyncio.run(test())


def test_a_parent_that_is_missing_is_created() -> None:
    async def test() -> None:
        store = MemoryStore(MemoryEnsemble())
        await store.open()
        await prepare(store, CLUSTER, lambda: bytes(16), completes=False)
        await store.delete(znodes.CLIENT_METRICS)
        assert await prepare(store, CLUSTER, lambda: bytes(16), completes=False) == CLUSTER
        assert await store.exists(znodes.CLIENT_METRICS) is not None

    asyncio.run(test())


def test_a_store_has_all_nodes_after_the_last_write_of_the_move_of_an_earlier_release(
    tmp_path: Path,
) -> None:
    """Its single broker did not create all nodes. A crash may follow the last write."""

    async def nothing() -> None:
        pass

    async def test() -> None:
        source = SqliteStore(str(tmp_path / STORE_FILE), ThreadExecutors())
        await source.open()
        await prepare(source, CLUSTER, lambda: bytes(16))
        for path in (znodes.METADATA, znodes.PRODUCER_ID_BLOCK, znodes.CLIENT_METRICS):
            await source.delete(path)
        target = MemoryStore(MemoryEnsemble())
        await target.open()
        await store_move.move(source, target, CLUSTER, nothing, BrokerId(1))
        await source.close()
        moved = await tree(target)
        assert await prepare(target, CLUSTER, lambda: bytes(16), completes=False) == CLUSTER
        assert await tree(target) == moved

    asyncio.run(test())


def test_a_deletion_of_an_earlier_release_names_its_broker_after_the_move(tmp_path: Path) -> None:
    """The record has no broker. The next controller may be another broker."""

    async def nothing() -> None:
        pass

    async def test() -> None:
        source = SqliteStore(str(tmp_path / STORE_FILE), ThreadExecutors())
        await source.open()
        await prepare(source, CLUSTER, lambda: bytes(16))
        path = znodes.deleted_topic_path(Uuid(b"d" * 16))
        await source.create(path, b'{"version":1,"topic":"t"}')
        target = MemoryStore(MemoryEnsemble())
        await target.open()
        await store_move.move(source, target, CLUSTER, nothing, BrokerId(5))
        await source.close()
        name = path.rpartition("/")[2]
        moved = (await target.get(path)).data
        _, deletion = znodes.decode_deletion(name, moved, BrokerId(6))
        assert (deletion.name, deletion.brokers) == ("t", (5,))

    asyncio.run(test())
