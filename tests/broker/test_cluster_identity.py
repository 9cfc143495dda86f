"""Whether a broker may join the cluster of a metadata store. A refusal changes nothing."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.cluster_identity import (
    Admission,
    ClusterMark,
    DirectoryIdentity,
    admission,
    read_mark,
    write_mark,
)
from odradek.broker.cluster_member import JOIN_ATTEMPTS_MAX, ClusterMember, ClusterSettings
from odradek.environment.files import READ, RealFiles
from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.checkpoints import MARK_FILE
from odradek.metadata import znodes
from odradek.metadata.feed_client import FeedClient
from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.interface import (
    NoNodeError,
    NotConnectedError,
    SessionState,
    UnknownOutcomeError,
)
from odradek.metadata.store.memory import MemoryStore
from tests.broker.cluster_starts import contents, refused, tree
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
    is_elsewhere = known is not None and mark is None and not directories.has_metadata
    continues = mark and mark.is_moving and mark.cluster_id == moving and directories.has_metadata
    if (
        other_root
        or (store is None and ((mark and not continues) or is_kafkas or is_elsewhere))
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
