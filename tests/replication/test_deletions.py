"""Deletion of topics over crashes: recorded deletions are finished, other logs are kept."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName, TopicPartition, Uuid
from odradek.log.directories.directory_names import parse_directory_name
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.metadata import znodes
from odradek.metadata.image import BrokerRegistration, Endpoint
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.store.interface import Operation, Performed
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.topic_changes import CreatedTopic, NewTopic
from odradek.replication.deletions import TopicDeletions
from odradek.replication.replica_manager import ReplicaManager
from testkit.requests import batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.metadata_deltas import after_deletion
from tests.log.builders import values_of
from tests.replication.builders import NODE, apply, replica_manager

ENDPOINT = Endpoint("PLAINTEXT", "localhost", 9092)
BROKER = BrokerRegistration(NODE, "localhost", 9092, None, (ENDPOINT,))
KEPT, GONE_0, GONE_1 = (TopicPartition(*each) for each in (("kept", 0), ("gone", 0), ("gone", 1)))


class Crash(Exception):
    """The process or the machine stopped here."""


class CrashPoint:
    """Counts the points at which a run may stop, and stops it at the chosen one."""

    def __init__(self) -> None:
        self.left: int | None = None
        """Number of points to pass before the crash. None: no crash."""
        self.crashed = False

    def pass_by(self) -> None:
        if self.crashed:
            raise Crash
        if self.left is not None:
            self.crashed = self.left == 0
            self.left -= 1
            if self.crashed:
                raise Crash


class CrashingFiles(FaultyFiles):
    """Stops at any change of a name, and loses names that were not synced."""

    def __init__(self, point: CrashPoint) -> None:
        super().__init__(loses_names=True)
        self._point = point
        self.unreadable: Path | None = None
        """A log directory that cannot be read. It is offline after a start."""

    def listdir(self, path: str) -> list[str]:
        if Path(path) == self.unreadable:
            raise OSError(errno.EIO, "Input/output error", path)
        return super().listdir(path)

    def replace(self, source: str, target: str) -> None:
        self._point.pass_by()
        super().replace(source, target)
        self._point.pass_by()

    def fsync_dir(self, path: str) -> None:
        self._point.pass_by()
        super().fsync_dir(path)
        self._point.pass_by()

    def fsync(self, fd: int) -> None:
        self._point.pass_by()
        super().fsync(fd)

    def mkdir(self, path: str) -> None:
        self._point.pass_by()
        super().mkdir(path)


class CrashingStore(MemoryStore):
    """A store that crashes before or after a write. A write is atomic, as in SQLite and
    ZooKeeper.
    """

    def __init__(self, point: CrashPoint) -> None:
        super().__init__()
        self._point = point

    async def perform(self, operations: Sequence[Operation]) -> list[Performed]:
        self._point.pass_by()
        results = await super().perform(operations)
        self._point.pass_by()
        return results


class Machine:
    """One metadata store and the log directories below `root`, or `root` itself, over several runs
    of a broker.
    """

    def __init__(self, root: Path, *log_dirs: str) -> None:
        self.root = root
        self.log_dirs = [root / name for name in log_dirs] or [root]
        self.point = CrashPoint()
        self.files = CrashingFiles(self.point)
        self.store = CrashingStore(self.point)
        self.power_was_cut = False
        self.logs: LogManager
        self.controller: Controller
        self.replicas: ReplicaManager

    def run(
        self, work: Callable[[Machine], Coroutine[Any, Any, None]], *, power: int | None
    ) -> bool:
        """Run a broker until `work` has ended, and kill it. Return whether it crashed before.

        With `power`, a seed, the power is cut as well.
        """
        self.point.crashed = False
        config = BrokerConfig({})
        clock = ManualClock()
        self.logs = LogManager(
            [str(path) for path in self.log_dirs],
            config.log_config({}),
            clock,
            files=self.files,
        )

        async def main() -> None:
            with ThreadPoolExecutor(1) as executor:
                self.logs.load()
                self.controller = Controller(self.store, config, clock=clock)
                finished = self.controller.deletions_finished
                self.replicas = replica_manager(self.logs, executor, finished)
                self.controller.subscribe(self.replicas.apply)
                try:
                    await self.controller.start(BROKER)
                    await work(self)
                finally:
                    await settled()

        try:
            asyncio.run(main())
        except Crash:
            assert self.point.crashed
        crashed, self.point.crashed, self.point.left = self.point.crashed, False, None
        self.store.abandon()
        self.logs.close(clean=False)
        if power is not None:
            self.power_was_cut = True
            self.files.crash(self.root, random.Random(power))
        return crashed

    async def create(self, name: str, partitions: int) -> Uuid:
        (created,) = await self.controller.create_topics([NewTopic(name, partitions)])
        assert isinstance(created, CreatedTopic)
        return created.image.topic_id

    def append(self, key: TopicPartition, value: bytes, *, flush: bool) -> None:
        records = memoryview(batch(value, timestamp_ms=0))
        self.replicas.partition(*key).append(records, 1, 0)
        if flush:
            self.replicas.log(key).flush()

    def topic_id(self, name: str) -> Uuid | None:
        topic = self.controller.image.topics_by_name.get(TopicName(name))
        return None if topic is None else topic.topic_id

    def directories(self) -> set[str]:
        return {path.name for path in self.root.iterdir() if parse_directory_name(path.name)}


async def settled() -> None:
    """Wait for running deletions. A sync of the directories starts one more task."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.gather(*others, return_exceptions=True)


def stored(log: UnifiedLog) -> list[bytes | None]:
    return values_of(log)


async def prepare(machine: Machine) -> None:
    await machine.create("kept", 1)
    await machine.create("gone", 2)
    machine.append(KEPT, b"kept", flush=True)
    machine.append(GONE_0, b"old", flush=True)
    machine.append(GONE_1, b"old", flush=False)


async def delete_and_create_again(machine: Machine) -> None:
    old_id = machine.topic_id("gone")
    assert old_id is not None
    await machine.controller.delete_topics([old_id])
    await machine.create("gone", 1)
    machine.append(GONE_0, b"new", flush=False)


async def nothing(machine: Machine) -> None:
    return


async def check(machine: Machine, old_id: Uuid) -> None:
    """Check after a start that all data of a deleted topic is removed, and no other data."""
    assert stored(machine.replicas.log(KEPT)) == [b"kept"]
    gone = machine.topic_id("gone")
    if gone == old_id:
        assert stored(machine.replicas.log(GONE_0)) == [b"old"]
        assert machine.controller.image.deletions == {}
    elif gone is not None:
        assert stored(machine.replicas.log(GONE_0)) in ([b"new"], [])
    await settled()
    assert machine.controller.image.deletions == {}
    assert await machine.store.children(znodes.DELETED_TOPICS) == []
    known = {"kept-0", *(["gone-0"] if gone else []), *(["gone-1"] if gone == old_id else [])}
    assert machine.directories() <= known
    # A log has its topic id, unless the power was cut before the first flush of the log.
    strays = [path.name for path in machine.root.glob("*-stray")]
    assert all(machine.power_was_cut and name.startswith("gone-") for name in strays)


@pytest.mark.parametrize("power_is_cut", [False, True], ids=["killed", "power cut"])
def test_deletion_is_finished_after_a_crash_at_any_point(
    tmp_path: Path, seed: int, power_is_cut: bool
) -> None:
    """The next start crashes as well, and the start after it finishes the deletion."""
    rng = random.Random(seed)
    crashes = 0
    for at in range(1_000):
        machine = Machine(tmp_path / str(at))
        power = rng.getrandbits(32) if power_is_cut else None
        machine.run(prepare, power=None)
        old_id = machine.topic_id("gone")
        assert old_id is not None
        machine.point.left = None
        machine.run(nothing, power=None)

        async def scenario(machine: Machine, at: int = at) -> None:
            machine.point.left = at
            await delete_and_create_again(machine)

        crashed = machine.run(scenario, power=power)
        crashes += crashed
        machine.point.left = rng.randrange(12)
        machine.run(nothing, power=power)

        async def verify(machine: Machine, old_id: Uuid = old_id) -> None:
            await check(machine, old_id)

        assert not machine.run(verify, power=power)
        # Deleted logs do not exist again if the power is cut now.
        assert not machine.run(verify, power=None)
        if not crashed:
            break
    assert crashes >= 10


def test_log_of_a_topic_that_the_metadata_lost_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)
    machine.run(prepare, power=None)
    machine.store = CrashingStore(machine.point)  # an empty one

    async def look(machine: Machine) -> None:
        assert machine.controller.image.topics_by_name == {}

    for _ in range(2):
        caplog.clear()
        machine.run(look, power=None)
        assert machine.directories() == {"kept-0", "gone-0", "gone-1"}
        assert "3 logs belong to no partition of this broker" in caplog.text


def test_log_with_the_name_of_a_new_topic_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)
    machine.run(prepare, power=None)
    machine.store = CrashingStore(machine.point)

    async def create_again(machine: Machine) -> None:
        await machine.create("gone", 2)
        machine.append(GONE_0, b"new", flush=False)
        assert stored(machine.replicas.log(GONE_0)) == [b"new"]
        assert stored(machine.replicas.log(GONE_1)) == []

    machine.run(create_again, power=None)
    strays = sorted(path for path in tmp_path.glob("*-stray"))
    assert [path.name.split(".")[0] for path in strays] == ["gone-0", "gone-1"]
    assert all(str(path) in caplog.text for path in strays)
    assert all((path / "00000000000000000000.log").stat().st_size for path in strays)

    async def look(machine: Machine) -> None:
        assert stored(machine.replicas.log(GONE_0)) == [b"new"]

    machine.run(look, power=None)
    assert sorted(path for path in tmp_path.glob("*-stray")) == strays


def test_directory_that_fails_keeps_the_record_of_the_deletion(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)
    machine.run(prepare, power=None)

    async def delete(machine: Machine) -> None:
        topic_id = machine.topic_id("gone")
        assert topic_id is not None
        machine.files.fail_fsync = OSError(5, "Input/output error")
        assert await machine.controller.delete_topics([topic_id]) == [None]

    machine.run(delete, power=None)
    assert "The next start finishes the deletion" in caplog.text

    async def look(machine: Machine) -> None:
        assert await machine.store.children(znodes.DELETED_TOPICS) != []
        await settled()
        assert await machine.store.children(znodes.DELETED_TOPICS) == []

    machine.run(look, power=None)


def test_sync_that_fails_unexpectedly_leaves_its_topics_to_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Later deletions are finished, and the stop of the broker does not fail."""
    first, second = Uuid(bytes([1]) * 16), Uuid(bytes([2]) * 16)
    errors, finished = [ValueError("unexpected")], list[Uuid]()

    def sync() -> None:
        if errors:
            raise errors.pop()

    async def main(executor: ThreadPoolExecutor) -> None:
        manager: Any = SimpleNamespace(delete=lambda *_: True, sync_directories=sync)
        loop = asyncio.get_running_loop()
        deletions = TopicDeletions(manager, executor, loop, LoopTimers(), finished.extend)
        for topic_id in (first, second):
            for _ in deletions.delete(topic_id, [GONE_0]):
                pass
            await asyncio.sleep(0)
        await deletions.stop()

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(main(executor))
    assert finished == [second]
    assert "The next start finishes the deletion of 1 topics" in caplog.text
    assert "ValueError" in caplog.text


@pytest.mark.parametrize("is_stopped", [False, True])
def test_sync_without_a_free_descriptor_is_repeated_until_the_broker_stops(
    caplog: pytest.LogCaptureFixture, is_stopped: bool
) -> None:
    """Otherwise the controller's record of the deletion waits for the next start of the broker."""
    topic_id, errors, finished = Uuid(bytes([1]) * 16), 2, list[Uuid]()

    def sync() -> None:
        nonlocal errors
        if errors:
            errors -= 1
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")

    async def main(executor: ThreadPoolExecutor) -> None:
        directories = [SimpleNamespace(offline=False)]
        manager: Any = SimpleNamespace(
            delete=lambda *_: True, sync_directories=sync, log_dirs=directories
        )
        loop, delayed, never = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        async def sleep(_: float) -> None:
            delayed.set()
            if is_stopped:
                await never.wait()

        timers: Any = SimpleNamespace(sleep=sleep)
        deletions = TopicDeletions(manager, executor, loop, timers, finished.extend)
        for _ in deletions.delete(topic_id, [GONE_0]):
            pass
        assert deletions._syncing is not None
        await asyncio.wait_for(delayed.wait() if is_stopped else deletions._syncing, 120)
        await deletions.stop()

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(main(executor))
    assert finished == ([] if is_stopped else [topic_id])
    assert "too many open files. The sync is tried again" in caplog.text


def test_image_without_a_topic_and_without_its_deletion_keeps_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(tmp_path)

    async def lose(machine: Machine) -> None:
        await prepare(machine)
        image = machine.controller.image
        lost = replace(after_deletion(image, "gone"), deletions=PersistentMap())
        apply(machine.replicas, image, lost)
        with pytest.raises(KafkaError):
            machine.replicas.log(GONE_0)
        assigned = {log.topic_partition.topic for log in machine.logs.assigned_logs() if log}
        assert assigned == {"kept"}, "retention would apply the default configs"

    machine.run(lose, power=None)
    assert machine.directories() == {"kept-0", "gone-0", "gone-1"}
    assert "gone from the metadata without a deletion" in caplog.text


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "metadata lost"])
def test_topic_created_again_while_the_old_log_is_offline_keeps_its_records(
    tmp_path: Path, is_recorded: bool
) -> None:
    """At the next start the partition has directories of both topics."""
    machine = Machine(tmp_path, "a", "b")
    machine.run(prepare, power=None)
    assert [path.parent.name for path in tmp_path.glob("*/gone-0")] == ["b"]
    machine.files.unreadable = tmp_path / "b"
    if not is_recorded:
        machine.store = CrashingStore(machine.point)

    async def create_again(machine: Machine) -> None:
        if is_recorded:
            await delete_and_create_again(machine)
        else:
            await machine.create("gone", 1)
            machine.append(GONE_0, b"new", flush=True)

    machine.run(create_again, power=None)
    assert len(list(tmp_path.glob("*/gone-0"))) == 2
    machine.files.unreadable = None

    async def look(machine: Machine) -> None:
        assert stored(machine.replicas.log(GONE_0)) == [b"new"]
        await settled()
        assert machine.controller.image.deletions == {}

    for _ in range(2):
        machine.run(look, power=None)
        assert [path.parent.name for path in tmp_path.glob("*/gone-0")] == ["a"]
    strays = list(tmp_path.glob("b/gone-0.*-stray"))
    assert len(strays) == (not is_recorded)
    assert all((path / "00000000000000000000.log").stat().st_size for path in strays)


def test_directory_with_a_torn_topic_id_is_not_the_log_of_a_new_topic(tmp_path: Path) -> None:
    """A power cut may bring back the unflushed directory of a deleted topic."""
    machine = Machine(tmp_path)
    machine.run(prepare, power=None)
    (tmp_path / "gone-1" / "partition.metadata").write_text("version: 0")

    async def look(machine: Machine) -> None:
        assert stored(machine.replicas.log(GONE_1)) == []
        assert stored(machine.replicas.log(GONE_0)) == [b"old"]

    machine.run(look, power=None)
    assert [path.name for path in tmp_path.glob("gone-1.*-stray")]
