"""Whether a broker may join the cluster of a metadata store. A refusal changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker import cluster_identity
from odradek.broker.broker import STORE_FILE, BrokerServer
from odradek.broker.cluster_identity import (
    Admission,
    ClusterMark,
    DirectoryIdentity,
    admission,
    read_mark,
    write_mark,
)
from odradek.broker.cluster_member import JOIN_ATTEMPTS_MAX, ClusterMember, ClusterSettings
from odradek.config.broker import BrokerConfig
from odradek.controller import store_move
from odradek.controller.loading import prepare
from odradek.environment.files import READ, RealFiles
from odradek.environment.thread_pool import ThreadExecutors
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid
from odradek.log.state.checkpoints import MARK_FILE
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.feed_client import FeedClient
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.interface import (
    NoNodeError,
    NotConnectedError,
    SessionState,
    UnknownOutcomeError,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from tests.helpers.cluster_brokers import ClusterBrokers

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
OTHER = "AAAAAAAAQACAAAAAAAAAAQ"
ids = st.sampled_from([CLUSTER, OTHER])
marks = st.builds(ClusterMark, ids, st.sampled_from(["", "/a"]), st.booleans())
identities = st.builds(
    DirectoryIdentity,
    st.none() | ids,
    st.none() | marks,
    st.booleans(),
    has_kafka_metadata=st.booleans(),
)


# --- the decision ---


@given(identities, st.none() | ids, st.sampled_from(["", "/a"]), st.none() | ids)
def test_a_broker_joins_only_the_cluster_of_its_directories(
    directories: DirectoryIdentity, store: str | None, chroot: str, moving: str | None
) -> None:
    mark = directories.mark
    known = directories.cluster_id if mark is None else mark.cluster_id
    other_root = mark is not None and mark.chroot != chroot
    is_kafkas = directories.has_kafka_metadata and not directories.has_metadata
    continues = mark and mark.is_moving and mark.cluster_id == moving and directories.has_metadata
    if (
        other_root
        or (store is None and ((mark and not continues) or is_kafkas))
        or (known and store and known != store)
    ):
        with pytest.raises(KafkaError) as refused:
            admission(directories, store, chroot, moving)
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "\n" not in refused.value.message
        return
    admitted = admission(directories, store, chroot, moving)
    if store is not None:
        assert admitted is Admission.JOIN
    else:
        assert admitted is (Admission.MOVE if directories.has_metadata else Admission.BEGIN)


def test_a_mark_is_read_as_it_was_written(tmp_path: Path) -> None:
    files, mark = RealFiles(), ClusterMark(CLUSTER, "/odradek")
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).mkdir()
    assert read_mark(files, paths) is None
    write_mark(files, paths, mark)
    assert read_mark(files, paths) == mark
    write_mark(files, paths, mark)


def test_the_mark_of_a_move_is_replaced_when_the_move_has_ended(tmp_path: Path) -> None:
    files, moving = RealFiles(), ClusterMark(CLUSTER, "/odradek", is_moving=True)
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).mkdir()
    write_mark(files, paths[:1], moving)
    assert read_mark(files, paths) == moving
    assert "state=moving" in (tmp_path / "a" / MARK_FILE).read_text()
    ended = moving._replace(is_moving=False)
    write_mark(files, paths[1:], ended)
    assert read_mark(files, paths) == ended, "a crash before the first directory has its mark"
    assert read_mark(files, paths[::-1]) == ended
    write_mark(files, paths, ended)
    assert read_mark(files, paths[:1]) == ended
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


class FailingFiles(RealFiles):
    """Files of which some directories cannot be written. It records the synced directories."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.synced: list[str] = []

    def open(self, path: str, flags: int) -> int:
        if flags != READ and path.startswith(self.failing):
            raise OSError(errno.EIO, "broken", path)
        return super().open(path, flags)

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self.synced.append(path)


def test_at_least_one_directory_must_take_the_mark(tmp_path: Path) -> None:
    mark = ClusterMark(CLUSTER, "/odradek")
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).mkdir()
    with pytest.raises(OSError, match="broken"):
        write_mark(FailingFiles(*paths), paths, mark)
    files = FailingFiles(paths[0])
    write_mark(files, paths, mark)
    assert read_mark(files, paths[:1]) is None
    assert read_mark(files, paths) == mark
    assert files.synced[-1:] == paths[1:], "the name survives a power cut"
    write_mark(files, paths, mark)
    files.failing = ()
    write_mark(files, paths, mark)
    assert read_mark(files, paths[:1]) == mark


@pytest.mark.parametrize("other", [ClusterMark(OTHER, "/a"), ClusterMark(CLUSTER, "/b")])
def test_directories_with_different_marks_are_refused(tmp_path: Path, other: ClusterMark) -> None:
    files = RealFiles()
    paths = [str(tmp_path / name) for name in "ab"]
    for path, mark in zip(paths, (ClusterMark(CLUSTER, "/a"), other), strict=True):
        Path(path).mkdir()
        write_mark(files, [path], mark)
    with pytest.raises(KafkaError, match="different clusters"):
        read_mark(files, paths)


@pytest.mark.parametrize("content", ["", "version=2\ncluster.id=x\n", "version=1\n"])
def test_a_damaged_mark_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / MARK_FILE).write_text(content)
    with pytest.raises(KafkaError, match="damaged"):
        read_mark(RealFiles(), [str(tmp_path)])


# --- starts ---


@pytest.fixture
def run(patient: None) -> Callable[[Coroutine[Any, Any, None]], None]:
    return asyncio.run


def contents(path: Path) -> dict[str, bytes | None]:
    """Return all files below a path, without the lock."""
    return {
        str(each.relative_to(path)): each.read_bytes() if each.is_file() else None
        for each in sorted(path.rglob("*"))
        if each.name != ".lock"
    }


def tree(ensemble: MemoryEnsemble) -> dict[str, bytes]:
    """Return the nodes of an ensemble."""

    async def read() -> dict[str, bytes]:
        store = MemoryStore(ensemble)
        await store.open()
        paths = ["/"]
        for path in paths:
            paths += [f"{path.rstrip('/')}/{name}" for name in await store.children(path)]
        nodes = await store.get_many(paths)
        await store.close()
        return {path: node.data for path, node in zip(paths, nodes, strict=True) if node}

    return asyncio.run(read())


async def refused(cluster: ClusterBrokers, broker_id: int) -> KafkaError:
    with pytest.raises(KafkaError) as error:
        await cluster.start(broker_id)
    del cluster.servers[broker_id]
    assert "\n" not in error.value.message
    return error.value


async def cluster_with_a_record(tmp_path: Path) -> ClusterBrokers:
    """Return a cluster of one broker, which has stopped. Its log has a record."""
    cluster = ClusterBrokers(tmp_path)
    await cluster.start(1)
    await cluster.create_topic("t", 1)
    await cluster.produce("t", b"value")
    cluster.close_channels()
    await cluster.stop()
    return cluster


def test_a_start_in_a_cluster_marks_the_directory(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        cluster = ClusterBrokers(tmp_path, settings=ClusterSettings("/root"))
        await cluster.start(1)
        cluster_id = cluster.member(1).cluster_id
        await cluster.stop()
        mark = read_mark(RealFiles(), [str(tmp_path / "1")])
        assert mark == ClusterMark(cluster_id, "/root")

    run(test())


def test_a_directory_of_a_cluster_is_refused_under_an_empty_store(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        cluster = await cluster_with_a_record(tmp_path)
        before = contents(tmp_path)
        cluster.ensemble = MemoryEnsemble()
        error = await refused(cluster, 1)
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "is empty" in error.message
        assert contents(tmp_path) == before
        emptied.append(cluster.ensemble)

    emptied: list[MemoryEnsemble] = []
    run(test())
    assert list(tree(emptied[0])) == ["/"]


def test_a_directory_of_another_cluster_is_refused(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        cluster = await cluster_with_a_record(tmp_path / "one")
        other = ClusterBrokers(tmp_path / "two")
        await other.start(2)
        before = contents(tmp_path / "one")
        cluster.ensemble = other.ensemble
        error = await refused(cluster, 1)
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert other.member(2).cluster_id in error.message
        assert contents(tmp_path / "one") == before
        assert list(other.image(2).brokers) == [2]
        await other.stop()

    run(test())


def test_a_directory_is_refused_at_another_path_of_zookeeper(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        cluster = await cluster_with_a_record(tmp_path)
        before = contents(tmp_path)
        cluster.settings = ClusterSettings("/other")
        assert "path /other" in (await refused(cluster, 1)).message.replace(
            "at /other", "path /other"
        )
        assert contents(tmp_path) == before

    run(test())


def test_a_directory_of_a_kafka_broker_is_refused_under_an_empty_store(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        (tmp_path / "1" / "__cluster_metadata-0").mkdir(parents=True)
        before = contents(tmp_path)
        cluster = ClusterBrokers(tmp_path)
        assert "Kafka broker" in (await refused(cluster, 1)).message
        assert contents(tmp_path) == before

    run(test())


def test_a_duplicate_broker_id_is_refused(
    tmp_path: Path,
    run: Callable[[Coroutine[Any, Any, None]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        cluster = ClusterBrokers(tmp_path / "one", settings=ClusterSettings(id_timeout_ms=50))
        await cluster.start(1, 2)
        duplicate = ClusterBrokers(tmp_path / "two", settings=ClusterSettings(id_timeout_ms=50))
        duplicate.ensemble = cluster.ensemble
        error = await refused(duplicate, 2)
        assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "broker id 2 is in use by the broker at 127.0.0.1" in error.message
        (waiting,) = [each.message for each in caplog.records if "Waiting" in each.message]
        assert waiting == f"{error.message}. Waiting up to 0.05 s for the end of its session"
        assert contents(tmp_path / "two") == {"2": None}
        await cluster.create_topic("t")
        await cluster.produce("t", b"value", partition=1)
        cluster.close_channels()
        await cluster.stop()

    run(test())


def test_of_two_processes_that_start_together_with_one_id_one_is_refused_before_it_loads(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        settings = ClusterSettings(id_timeout_ms=500)
        both = [ClusterBrokers(tmp_path / name, settings=settings) for name in ("one", "two")]
        both[1].ensemble = both[0].ensemble
        started = await asyncio.gather(*(each.start(2) for each in both), return_exceptions=True)
        (error,) = [each for each in started if each is not None]
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "\n" not in error.message
        second = started.index(error)
        assert contents(both[second].tmp_path) == {"2": None}
        first = both[1 - second]
        await first.create_topic("t", 1, at=2)
        first.close_channels()
        await first.stop()

    run(test())


def test_a_start_waits_for_the_session_of_a_process_that_was_killed(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        cluster = ClusterBrokers(tmp_path)
        await cluster.start(1)
        killed = MemoryStore(cluster.ensemble)
        await killed.open()
        node = await killed.get(f"{znodes.BROKER_IDS}/1")
        await killed.create(f"{znodes.BROKER_IDS}/2", node.data, ephemeral=True)
        starting = asyncio.create_task(cluster.start(2))
        await asyncio.sleep(0.05)
        assert not starting.done()
        await killed.close()
        await starting
        await cluster.stop()

    run(test())


NODES = (
    znodes.CLUSTER_ID,
    znodes.METADATA,
    znodes.FEATURES,
    znodes.CONTROLLER_EPOCH,
    znodes.PRODUCER_ID_BLOCK,
    znodes.topic_path("t"),
    znodes.state_path("t", 0),
    f"{znodes.REGISTRATIONS}/1",
    znodes.topic_config_path("t"),
)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        *((path, b"not JSON") for path in NODES),
        *((path, data) for path in NODES[:2] for data in (b"[]", b"{}")),
    ],
)
def test_a_node_that_is_not_valid_is_refused(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None], path: str, data: bytes
) -> None:
    async def test() -> None:
        cluster = await cluster_with_a_record(tmp_path)
        before = contents(tmp_path)
        store = MemoryStore(cluster.ensemble)
        await store.open()
        if path == znodes.topic_config_path("t"):
            await store.create(path, data)
        else:
            await store.set(path, data)
        error = await refused(cluster, 1)
        assert path in error.message
        assert contents(tmp_path) == before
        assert (await store.get(path)).data == data
        await store.close()

    run(test())


@pytest.mark.parametrize("lost", ["the connection", "the session", "a response"])
def test_a_start_continues_after_a_fault_of_its_session(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None], lost: str
) -> None:
    async def test() -> None:
        cluster = ClusterBrokers(tmp_path)
        starting = asyncio.ensure_future(cluster.start(1))
        await cluster.until(lambda: 1 in cluster.stores and cluster.stores[1].session_id != 0)
        if lost == "the connection":
            cluster.stores[1].disconnect()
        elif lost == "the session":
            cluster.expire(1)
        else:
            cluster.stores[1].lose_next_response()
        await starting
        # The fault may have ended a term of the controller. It contends again.
        await cluster.until(lambda: cluster.member(1).is_controller)
        await cluster.create_topic("t", 1)
        cluster.close_channels()
        await cluster.stop()

    run(test())


def test_a_store_into_which_another_broker_moves_is_refused(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        cluster = ClusterBrokers(tmp_path)
        store = MemoryStore(cluster.ensemble)
        await store.open()
        await store.create("/odradek")
        await store.create(znodes.MOVE, znodes.encode({"cluster_id": OTHER}))
        await store.close()
        error = await refused(cluster, 2)
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "moves into this store. Start again" in error.message
        assert contents(tmp_path) == {"2": None}
        ensembles.append(cluster.ensemble)

    ensembles: list[MemoryEnsemble] = []
    run(test())
    assert list(tree(ensembles[0])) == ["/", "/odradek", znodes.MOVE]


def test_hazard_8_a_start_reads_nothing_before_its_session_is_up_to_date(
    tmp_path: Path,
    run: Callable[[Coroutine[Any, Any, None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mark under a store that seems to be empty would be refused."""
    calls: list[str] = []

    def record(name: str) -> None:
        call = getattr(MemoryStore, name)

        async def recorded(store: MemoryStore, *arguments: Any) -> Any:
            calls.append(name)
            return await call(store, *arguments)

        monkeypatch.setattr(MemoryStore, name, recorded)

    for name in ("get", "exists", "get_many", "sync"):
        record(name)

    async def test() -> None:
        cluster = ClusterBrokers(tmp_path)
        await cluster.start(1)
        await cluster.stop()

    run(test())
    assert calls[0] == "sync"


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (NotConnectedError("broken"), JOIN_ATTEMPTS_MAX),
        (UnknownOutcomeError("broken"), JOIN_ATTEMPTS_MAX),
        (NoNodeError("/brokers"), 1),
    ],
)
def test_a_start_joins_a_limited_number_of_times(
    tmp_path: Path,
    run: Callable[[Coroutine[Any, Any, None]], None],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    attempts: int,
) -> None:
    calls: list[object] = []

    async def fail(*arguments: object) -> str:
        calls.append(arguments)
        raise error

    monkeypatch.setattr(ClusterMember, "_join", fail)

    async def test() -> None:
        found = await refused(ClusterBrokers(tmp_path), 1)
        assert found.code is ErrorCode.BROKER_NOT_AVAILABLE
        assert "the metadata store cannot be used" in found.message

    run(test())
    assert len(calls) == attempts


def test_a_start_ends_with_an_error_that_is_reported_while_it_waits_for_the_metadata(
    tmp_path: Path,
    run: Callable[[Coroutine[Any, Any, None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follows = asyncio.Event()

    async def never(_: FeedClient) -> None:
        follows.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(FeedClient, "caught_up", never)

    async def test() -> None:
        cluster = ClusterBrokers(tmp_path)
        starting = asyncio.create_task(refused(cluster, 1))
        await follows.wait()
        error = KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster")
        cluster.member(1)._fail(error)
        assert await starting is error
        assert cluster.stores[1].state is SessionState.CLOSED

    run(test())


# --- the move of a single broker ---


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
    """The move is interrupted after each of its writes, and of those that clear the store again."""
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
                await store_move.move(source, store, before.cluster_id, partial(begun, ensemble))
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
        await store_move.move(source, store, image.cluster_id, nothing if is_copied else begin)
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
                await store_move.move(source, store, image.cluster_id, begun)
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
            await store_move.move(sources[0], store, first.cluster_id, nothing)
        store.writes_left = 100
        with pytest.raises(KafkaError, match="another cluster"):
            await store_move.move(sources[1], store, second.cluster_id, nothing)
        await store_move.move(sources[0], store, first.cluster_id, nothing)
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
