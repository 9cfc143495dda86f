"""The move of the metadata of a single broker into a metadata store, and its crashes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import cluster_identity
from odradek.broker.broker import STORE_FILE, BrokerServer
from odradek.broker.cluster_identity import (
    ClusterMark,
    read_mark,
    write_mark,
)
from odradek.config.broker import BrokerConfig
from odradek.controller import store_move
from odradek.controller.loading import prepare
from odradek.environment.files import RealFiles
from odradek.environment.thread_pool import ThreadExecutors
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from tests.broker.cluster_starts import contents, refused, tree
from tests.helpers.cluster_brokers import ClusterBrokers


@pytest.fixture
def run(patient: None) -> Callable[[Coroutine[Any, Any, None]], None]:
    return asyncio.run


def single(path: Path) -> BrokerServer:
    properties = {
        "node.id": "1",
        "log.dirs": str(path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    return BrokerServer(BrokerConfig(properties))


def open_files() -> list[str]:
    return [str(each.resolve()) for each in Path("/proc/self/fd").iterdir()]


async def single_broker_with_a_topic(path: Path) -> Any:
    """Run a single broker. Return its image."""
    server = single(path)
    await server.start()
    await server.create_topic("t", 2, {"retention.ms": "1234"})
    op = ConfigOp("compression.type", OpType.SET, "zstd")
    await server.services.controller.alter_configs([ConfigChange(ResourceType.BROKER, "", [op])])
    await server.services.controller.allocate_producer_ids()
    await server.create_topic("deleted", 1)
    topic = server.services.image().topics_by_name["deleted"]  # type: ignore[index]
    await server.services.controller.delete_topics([topic.topic_id])
    image = server.services.image()
    await server.stop()
    return image


def test_the_metadata_of_a_single_broker_moves_into_an_empty_store(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        before = await single_broker_with_a_topic(tmp_path / "1")
        cluster = ClusterBrokers(tmp_path)
        await cluster.start(1)
        assert not [each for each in open_files() if STORE_FILE in each]
        after = cluster.image(1)
        assert after.cluster_id == before.cluster_id
        assert list(after.topics_by_name) == ["t"]
        assert after.topics_by_name["t"].topic_id == before.topics_by_name["t"].topic_id
        assert after.topic_configs == before.topic_configs
        assert after.broker_configs[""] == {
            **before.broker_configs[""],
            "min.insync.replicas": "1",  # metadata of every cluster
        }
        assert after.features == before.features
        assert after.next_producer_id == before.next_producer_id
        assert after.offset > before.offset
        assert after.controller_epoch > before.controller_epoch
        assert cluster.leader("t", 1) == 1
        assert (await cluster.produce("t", b"value")).error_code == ErrorCode.NONE
        await cluster.start(2)
        await cluster.create_topic("new", at=2)
        cluster.close_channels()
        await cluster.stop()
        await cluster.start(1)
        assert sorted(cluster.image(1).topics_by_name) == ["new", "t"]
        await cluster.stop()
        moved.append(cluster)

    moved: list[ClusterBrokers] = []
    run(test())
    assert "/odradek/move" not in tree(moved[0].ensemble)


def test_a_single_broker_does_not_start_with_metadata_that_has_moved(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        await single_broker_with_a_topic(tmp_path / "1")
        cluster = ClusterBrokers(tmp_path)
        await cluster.start(1)
        await cluster.stop()
        before = contents(tmp_path)
        with pytest.raises(KafkaError, match=r"with zookeeper\.connect"):
            await single(tmp_path / "1").start()
        assert contents(tmp_path) == before

    run(test())


def test_a_broker_with_metadata_of_its_own_does_not_join_another_cluster(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        await single_broker_with_a_topic(tmp_path / "1")
        before = contents(tmp_path / "1")
        cluster = ClusterBrokers(tmp_path)
        await cluster.start(2)
        error = await refused(cluster, 1)
        assert "belongs to cluster" in error.message
        assert contents(tmp_path / "1") == before
        await cluster.stop()

    run(test())


class Interrupted(Exception):
    pass


async def nothing() -> None:
    pass


class InterruptedStore(MemoryStore):
    """A store that performs `writes_left` more writes."""

    writes_left = 0

    async def multi(self, operations: Any) -> Any:
        if not self.writes_left:
            raise Interrupted
        self.writes_left -= 1
        return await super().multi(operations)


def test_a_move_that_was_interrupted_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """Interrupt a move after each of its writes, and the next one after each of its writes."""
    monkeypatch.setattr(store_move, "WRITE_BYTES_MAX", 3_000)

    async def test() -> list[MemoryEnsemble]:
        before = await single_broker_with_a_topic(tmp_path / "1")
        source = SqliteStore(str(tmp_path / "1" / STORE_FILE), ThreadExecutors())
        await source.open()

        async def begun(ensemble: MemoryEnsemble) -> None:
            store = MemoryStore(ensemble)
            await store.open()
            assert await store_move.moving_id(store) == before.cluster_id
            assert await store.children("/") == ["odradek"], "before the first node is copied"
            assert await store.children("/odradek") == ["move"]
            await store.close()

        async def moves(ensemble: MemoryEnsemble, writes: int) -> bool:
            """Return whether the move is complete within so many writes."""
            store = InterruptedStore(ensemble)
            store.writes_left = writes
            await store.open()
            with contextlib.suppress(Interrupted):
                await store_move.move(
                    source, store, before.cluster_id, partial(begun, ensemble), BrokerId(1)
                )
            found = await store.exists(znodes.CLUSTER_ID) is not None
            await store.close()
            return found

        complete = MemoryEnsemble()
        assert await moves(complete, 100)
        found = [complete]
        for first in range(100):
            if await moves(MemoryEnsemble(), first):
                break
            for second in range(100):
                ensemble = MemoryEnsemble()
                await moves(ensemble, first)
                if await moves(ensemble, second):
                    break
                assert await moves(ensemble, 100)
                found.append(ensemble)
        await source.close()
        return found

    first, *others = map(tree, asyncio.run(test()))
    assert first[znodes.CLUSTER_ID]
    assert "/odradek/move" not in first
    assert len(others) > 10
    assert all(other == first for other in others)


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_cluster_does_not_begin_in_a_store_into_which_metadata_moves(
    tmp_path: Path, patient: None, is_copied: bool
) -> None:
    """Another broker with empty directories found no move, and prepares the store during it."""

    async def test() -> None:
        image = await single_broker_with_a_topic(tmp_path / "1")
        source = SqliteStore(str(tmp_path / "1" / STORE_FILE), ThreadExecutors())
        await source.open()
        ensemble = MemoryEnsemble()
        store, other = MemoryStore(ensemble), MemoryStore(ensemble)
        await store.open()
        await other.open()

        async def begin() -> None:
            with pytest.raises(KafkaError, match="metadata of another broker moves into"):
                await prepare(other, None, lambda: Uuid(bytes(16)), completes=False)

        copied = store.multi

        async def multi(operations: Any) -> Any:
            await copied(operations)
            if is_copied and await store.exists(znodes.MOVE) is not None:
                await begin()

        store.multi = multi  # type: ignore[method-assign]
        await store_move.move(
            source, store, image.cluster_id, nothing if is_copied else begin, BrokerId(1)
        )
        found = await prepare(other, None, lambda: Uuid(bytes(16)), completes=False)
        assert found == image.cluster_id
        for each in (source, store, other):
            await each.close()

    asyncio.run(test())


class CompetingStore(MemoryStore):
    """A store that another broker prepares before one of the requests of this session."""

    other: MemoryStore
    requests_left = 0

    async def _compete(self) -> None:
        self.requests_left -= 1
        if self.requests_left == -1:
            await prepare(self.other, None, lambda: Uuid(bytes(16)), completes=False)

    async def get_many(self, paths: Any) -> Any:
        await self._compete()
        return await super().get_many(paths)

    async def exists(self, path: str, watch: Any = None) -> Any:
        await self._compete()
        return await super().exists(path, watch)

    async def multi(self, operations: Any) -> Any:
        await self._compete()
        return await super().multi(operations)


def test_a_move_does_not_mark_directories_for_a_store_in_which_another_cluster_begins(
    tmp_path: Path, patient: None
) -> None:
    """The cluster begins before any of the requests of the move."""

    async def test() -> int:
        image = await single_broker_with_a_topic(tmp_path / "1")
        source = SqliteStore(str(tmp_path / "1" / STORE_FILE), ThreadExecutors())
        await source.open()
        refusals = 0
        while True:
            ensemble = MemoryEnsemble()
            store, other = CompetingStore(ensemble), MemoryStore(ensemble)
            await store.open()
            await other.open()
            store.other, store.requests_left = other, refusals

            async def begun(store: CompetingStore = store) -> None:
                assert store.requests_left >= 0, "the store belongs to another cluster"
                store.requests_left = 1_000

            try:
                await store_move.move(source, store, image.cluster_id, begun, BrokerId(1))
            except KafkaError as error:
                assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
                refusals += 1
            else:
                assert store.requests_left >= 0
                break
            finally:
                await store.close()
                await other.close()
        await source.close()
        return refusals

    assert asyncio.run(test()) > 5


def test_two_brokers_do_not_move_into_one_store(tmp_path: Path, patient: None) -> None:
    async def test() -> None:
        first = await single_broker_with_a_topic(tmp_path / "1")
        second = await single_broker_with_a_topic(tmp_path / "2")
        sources = [
            SqliteStore(str(tmp_path / name / STORE_FILE), ThreadExecutors()) for name in "12"
        ]
        store = InterruptedStore()
        store.writes_left = 1
        await store.open()
        for source in sources:
            await source.open()
        with pytest.raises(Interrupted):
            await store_move.move(sources[0], store, first.cluster_id, nothing, BrokerId(1))
        store.writes_left = 100
        with pytest.raises(KafkaError, match="another cluster"):
            await store_move.move(sources[1], store, second.cluster_id, nothing, BrokerId(1))
        await store_move.move(sources[0], store, first.cluster_id, nothing, BrokerId(1))
        for source in sources:
            await source.close()

    asyncio.run(test())


# --- crashes of a start that moves ---


async def start_alone(path: Path, topic: str) -> None:
    """Start a broker without ZooKeeper. It changes its metadata."""
    server = single(path)
    await server.start()
    try:
        await server.create_topic(topic, 1)
    finally:
        await server.stop()


async def crash(cluster: ClusterBrokers) -> None:
    """Begin a start that an exception ends."""
    with pytest.raises(Interrupted):
        await cluster.start(1)
    del cluster.servers[1]


async def check_after_crash(tmp_path: Path, cluster: ClusterBrokers) -> str:
    """Check the starts that are possible after a crash. Return the state of the directory."""
    mark = read_mark(RealFiles(), [str(tmp_path / "1")])
    before = contents(tmp_path)
    expected = ["t"]
    if mark is None:
        await start_alone(tmp_path / "1", "alone")
        expected = ["alone", "t"]
    else:
        with pytest.raises(KafkaError, match=r"Start the broker with zookeeper\.connect") as error:
            await start_alone(tmp_path / "1", "alone")
        assert "\n" not in error.value.message
        other = ClusterBrokers(tmp_path)
        assert "the metadata store is empty" in (await refused(other, 1)).message
        assert contents(tmp_path) == before
    await cluster.start(1)
    assert sorted(cluster.image(1).topics_by_name) == expected
    mark_after = read_mark(RealFiles(), [str(tmp_path / "1")])
    assert mark_after == ClusterMark(cluster.image(1).cluster_id, "")
    await cluster.stop()
    return "none" if mark is None else "moving" if mark.is_moving else "moved"


def test_a_move_continues_after_a_crash_at_each_write(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first write of the move to the last one before the directory is marked."""
    monkeypatch.setattr(store_move, "WRITE_BYTES_MAX", 3_000)
    write, performed, last = MemoryStore.multi, 0, -1
    of_a_move: list[int] = []

    async def multi(store: MemoryStore, operations: Any) -> Any:
        nonlocal performed
        performed += 1
        if performed == last + 1:
            raise Interrupted
        return await write(store, operations)

    def counting(files: RealFiles, paths: list[str], mark: ClusterMark) -> None:
        of_a_move.append(performed)
        write_mark(files, paths, mark)

    async def crash_after(writes: int) -> str:
        nonlocal performed, last
        path = tmp_path / str(writes)
        path.mkdir()
        await single_broker_with_a_topic(path / "1")
        cluster = ClusterBrokers(path)
        performed, last = 0, writes
        await crash(cluster)
        return await check_after_crash(path, cluster)

    async def test() -> list[str]:
        await single_broker_with_a_topic(tmp_path / "complete" / "1")
        cluster = ClusterBrokers(tmp_path / "complete")
        await cluster.start(1)
        await cluster.stop()
        begun, ended = of_a_move
        assert begun == 1
        return [await crash_after(writes) for writes in range(ended)]

    monkeypatch.setattr(MemoryStore, "multi", multi)
    monkeypatch.setattr(cluster_identity, "write_mark", counting)
    states = asyncio.run(test())
    assert len(states) > 3
    assert states[0] == "none"
    assert set(states[1:]) == {"moving"}


@pytest.mark.parametrize(("is_moving", "state"), [(True, "none"), (False, "moving")])
def test_a_move_continues_after_a_crash_before_its_mark_is_written(
    tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch, is_moving: bool, state: str
) -> None:
    async def test() -> None:
        await single_broker_with_a_topic(tmp_path / "1")
        cluster = ClusterBrokers(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(cluster_identity, "write_mark", interrupting)
            await crash(cluster)
        assert await check_after_crash(tmp_path, cluster) == state

    def interrupting(files: RealFiles, paths: list[str], mark: ClusterMark) -> None:
        if mark.is_moving is is_moving:
            raise Interrupted
        write_mark(files, paths, mark)

    asyncio.run(test())
