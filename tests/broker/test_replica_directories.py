"""The watch of full disks, and the replicas that are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replica_directories import FREE_BYTES_MIN, SPACE_CHECK_MS, ReplicaDirectories
from odradek.environment.files import DiskSpace
from odradek.environment.timers import LoopTimers
from odradek.ids import LOST_DIRECTORY, BrokerId, TopicName, TopicPartition, Uuid
from odradek.metadata.image import PartitionImage
from odradek.slicing import ELEMENTS_PER_SLICE, in_slices
from tests.controller.test_large_changes import counted
from tests.helpers.virtual_loop import run_virtually

OWN, OTHER = BrokerId(1), BrokerId(2)
DIRECTORY, TOPIC_ID = Uuid(b"d" * 16), Uuid(b"t" * 16)
CHECK_S = SPACE_CHECK_MS / 1000


class Disk:
    """A log directory, with the part of `LogDir` that the watch uses."""

    path = "/logs"

    def __init__(self) -> None:
        self.offline = False
        self.checks = 0
        self.freed = 0
        self.space_found: DiskSpace | Exception = DiskSpace(0, 0)
        self.files = self

    def space(self, _path: str) -> DiskSpace:
        self.checks += 1
        if isinstance(self.space_found, Exception):
            raise self.space_found
        return self.space_found

    def space_freed(self) -> None:
        self.freed += 1


class Broker:
    """A broker with a partition on each of two disks. It leads them with an in-sync follower."""

    def __init__(self, directories: int = 1) -> None:
        self.disk = Disk()
        self.reports: list[Mapping[Any, Uuid]] = []
        self.withdrawn: list[Any] = []
        self.left_out: list[Uuid] = []
        self.image = PartitionImage(0, OWN, 1, 1, (OWN, OTHER), (OWN, OTHER))
        self.partitions = partitions = [
            SimpleNamespace(
                topic_partition=TopicPartition(TopicName("t"), number),
                topic_id=TOPIC_ID,
                log=SimpleNamespace(log_dir=disk),
            )
            for number, disk in enumerate((self.disk, Disk()))
        ]
        heartbeats = SimpleNamespace(
            report_replicas=lambda found: self.reports.append(found) if found else None,
            withdraw_lost=self.withdrawn.extend,
            directory_failed=lambda found: self.reports.append({"failed": found}),
        )
        self.directories = ReplicaDirectories(
            OWN,
            SimpleNamespace(
                directory_ids={self.disk.path: DIRECTORY}, log_dirs=[self.disk] * directories
            ),  # type: ignore[arg-type]
            SimpleNamespace(  # type: ignore[arg-type]
                partitions=lambda: partitions,
                find=lambda _, number: partitions[number],
            ),
            SimpleNamespace(  # type: ignore[arg-type]
                image=SimpleNamespace(partition=lambda *_: self.image),
                heartbeats=heartbeats,
                lifecycle=SimpleNamespace(directory_failed=self.left_out.append),
            ),
            None,  # type: ignore[arg-type]
            LoopTimers(),
            lambda _error: None,
        )

    def full(self) -> None:
        self.directories.directory_full(self.disk)  # type: ignore[arg-type]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Broker], Awaitable[None]]], None]:
    def start(test: Callable[[Broker], Awaitable[None]]) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()

            async def run_here(_executor: object, call: Callable[..., Any], *args: Any) -> Any:
                return call(*args)

            monkeypatch.setattr(loop, "run_in_executor", run_here)
            broker = Broker()
            await test(broker)
            await broker.directories.stop()

        run_virtually(main())

    return start


Run = Callable[[Callable[[Broker], Awaitable[None]]], None]


def test_a_full_disk_is_checked_until_it_has_space_and_again_when_it_is_full_again(
    run: Run,
) -> None:
    async def test(broker: Broker) -> None:
        for times in (1, 2):
            broker.disk.space_found = DiskSpace(1 << 40, FREE_BYTES_MIN - 1)
            broker.full()
            broker.full()
            checks = broker.disk.checks
            await asyncio.sleep(3.5 * CHECK_S)
            assert broker.disk.checks == checks + 3
            assert broker.disk.freed == times - 1
            broker.disk.space_found = DiskSpace(1 << 40, FREE_BYTES_MIN)
            await asyncio.sleep(3.5 * CHECK_S)
            assert broker.disk.checks == checks + 4
            assert broker.disk.freed == times
            assert broker.withdrawn == [(TOPIC_ID, 0)] * times
        assert {(TOPIC_ID, 0): LOST_DIRECTORY} in broker.reports

    run(test)


def test_a_disk_whose_space_is_not_known_stays_full(run: Run) -> None:
    async def test(broker: Broker) -> None:
        broker.disk.space_found = OSError("gone")
        broker.full()
        await asyncio.sleep(3.5 * CHECK_S)
        assert broker.disk.checks == 3
        assert not broker.disk.freed

    run(test)


def test_a_check_with_an_unexpected_error_is_repeated(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: Broker) -> None:
        broker.disk.space_found = ValueError("a defect")
        broker.full()
        await asyncio.sleep(2.5 * CHECK_S)
        assert broker.disk.checks == 2
        assert "a defect" in caplog.text
        broker.disk.space_found = DiskSpace(1 << 40, FREE_BYTES_MIN)
        await asyncio.sleep(CHECK_S)
        assert broker.disk.freed == 1

    run(test)


def test_a_full_disk_that_fails_is_not_checked_any_longer(run: Run) -> None:
    async def test(broker: Broker) -> None:
        broker.full()
        await asyncio.sleep(1.5 * CHECK_S)
        broker.disk.offline = True
        await asyncio.sleep(5 * CHECK_S)
        assert broker.disk.checks == 1

    run(test)


def test_a_replica_that_was_moved_to_other_brokers_is_not_reported(run: Run) -> None:
    async def test(broker: Broker) -> None:
        broker.image = PartitionImage(0, OTHER, 2, 2, (OTHER,), (OTHER,))
        broker.disk.offline = True
        broker.full()
        await asyncio.sleep(CHECK_S / 2)
        assert not broker.reports

    run(test)


def test_a_stop_ends_the_checks(run: Run) -> None:
    async def test(broker: Broker) -> None:
        broker.full()
        await broker.directories.stop()
        await asyncio.sleep(5 * CHECK_S)
        assert not broker.disk.checks

    run(test)


def test_a_start_reports_a_replica_whose_directory_the_metadata_does_not_have(run: Run) -> None:
    async def test(broker: Broker) -> None:
        other = Uuid(b"o" * 16)
        directories = (LOST_DIRECTORY, other)
        broker.image = PartitionImage(
            0, OTHER, 1, 1, (OWN, OTHER), (OWN, OTHER), directories=directories
        )
        await in_slices(broker.directories.reporting())
        assert {(TOPIC_ID, 0): DIRECTORY} in broker.reports

    run(test)


def test_replicas_of_a_full_disk_are_reported_in_time_slices(run: Run) -> None:
    async def test(broker: Broker) -> None:
        count = 3 * ELEMENTS_PER_SLICE
        many(broker, count)
        broker.disk.space_found = DiskSpace(1 << 40, 0)
        broker.full()
        assert [len(each) for each in broker.reports] == [ELEMENTS_PER_SLICE]
        await asyncio.sleep(0.5 * CHECK_S)
        assert [len(each) for each in broker.reports] == [ELEMENTS_PER_SLICE] * 3
        broker.reports.clear()
        await asyncio.sleep(CHECK_S)
        assert [len(each) for each in broker.reports] == [ELEMENTS_PER_SLICE] * 3
        assert {key: each for part in broker.reports for key, each in part.items()} == {
            (TOPIC_ID, number): LOST_DIRECTORY for number in range(count)
        }

    run(test)


def many(broker: Broker, count: int) -> None:
    """Give a broker so many partitions on its disk."""
    broker.partitions[:] = [
        SimpleNamespace(
            topic_partition=TopicPartition(TopicName("t"), number),
            topic_id=TOPIC_ID,
            log=SimpleNamespace(log_dir=broker.disk),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("directories", [1, 2])
def test_a_start_reports_each_replica_once_if_there_are_several_directories(
    directories: int,
) -> None:
    count = 3 * ELEMENTS_PER_SLICE
    broker = Broker(directories)
    many(broker, count)
    slices, _ = counted(broker.directories.reporting())
    assert slices == 3
    reported = [key for part in broker.reports for key in part]
    assert reported == ([(TOPIC_ID, number) for number in range(count)] if directories > 1 else [])
    broker.reports.clear()
    broker.image = replace(broker.image, directories=(DIRECTORY, DIRECTORY))
    counted(broker.directories.reporting())
    assert not broker.reports


@pytest.mark.parametrize("directories", [1, 2])
def test_a_new_replica_is_reported_if_there_are_several_directories(directories: int) -> None:
    broker = Broker(directories)
    changes = SimpleNamespace(name="t", partitions={0: broker.image})
    delta = SimpleNamespace(topics=SimpleNamespace(changed={TOPIC_ID: changes}))
    image = SimpleNamespace(topics_by_id={TOPIC_ID: None})
    counted(broker.directories.apply(delta, image, image))  # type: ignore[arg-type]
    assert broker.reports == ([{(TOPIC_ID, 0): DIRECTORY}] if directories > 1 else [])


def test_a_failed_directory_is_reported_after_its_replicas_which_are_reported_in_slices() -> None:
    count = 3 * ELEMENTS_PER_SLICE
    broker = Broker()
    many(broker, count)
    broker.disk.offline = True
    other = SimpleNamespace(offline=False)
    broker.directories._log_manager.log_dirs.append(other)  # type: ignore[arg-type]
    slices, _ = counted(broker.directories.failing(broker.disk))  # type: ignore[arg-type]
    assert slices == 3
    *replicas, failure = broker.reports
    assert [len(each) for each in replicas] == [ELEMENTS_PER_SLICE] * 3
    assert {each for part in replicas for each in part.values()} == {DIRECTORY}
    assert failure == {"failed": DIRECTORY}
    assert broker.left_out == [DIRECTORY]
