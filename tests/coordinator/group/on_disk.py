"""A group coordinator over real logs in a directory, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.config.log_config import LogConfig
from odradek.coordinator.group.group_coordinator import GroupCoordinator
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.state.verification import Origin
from odradek.log.unified_log import UnifiedLog
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.records.batch import LOW_ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from odradek.records.control import EndTransactionMarker, build_marker
from odradek.result_tasks import wait
from odradek.results import Result
from tests.helpers.futures import of_future
from tests.helpers.manual_timers import SteppedTimers

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
OFFSETS_ID = Uuid(b"o" * 16)


def topic(name: str, topic_id: bytes = b"t" * 16, partitions: int = 1) -> TopicImage:
    broker = BrokerId(1)
    return TopicImage(
        TopicName(name),
        Uuid(topic_id),
        tuple(
            PartitionImage(number, broker, 0, 0, (broker,), (broker,))
            for number in range(partitions)
        ),
    )


def image_of(*topics: TopicImage) -> MetadataImage:
    return MetadataImage(
        topics_by_name=PersistentMap({each.name: each for each in topics}),
        topics_by_id=PersistentMap({each.topic_id: each for each in topics}),
    )


@dataclass
class OnDisk:
    """The objects that a test uses: the coordinator, its clock, and the outcome of appends."""

    groups: GroupCoordinator
    clock: ManualClock
    timers: SteppedTimers
    manager: LogManager
    image: MetadataImage
    append_error: ErrorCode | None = None
    # Whether this broker leads the partition, and its leader epoch.
    leads: bool = True
    leader_epoch: int = 0
    # When this is a list, each wait for the high watermark adds its offset and its callback.
    awaited: list[tuple[int, Callable[[int], object]]] | None = None
    # When this is a list, each append adds a future to it and waits for that.
    flushes: list[asyncio.Future[None]] | None = None

    def log(self) -> UnifiedLog:
        log = self.manager.get(OFFSETS)
        assert log is not None
        return log

    # -- LedPartitions -----------------------------------------------------------------------------

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        is_led = self.leads and self.manager.get(topic_partition) is not None
        return self.leader_epoch if is_led else None

    def log_of(self, topic_partition: TopicPartition) -> UnifiedLog:
        log = self.manager.get(topic_partition)
        if log is None or not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def await_committed(
        self, topic_partition: TopicPartition, offset: int, reached: Callable[[int], object]
    ) -> None:
        if self.awaited is not None:
            self.awaited.append((offset, reached))
        else:
            reached(offset)

    def append_internal(
        self, topic_partition: TopicPartition, batch: bytearray, guard: int, leader_epoch: int
    ) -> Any:
        is_transactional = bool(batch[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK)
        origin = Origin(guard, coordinator=True) if is_transactional else None
        return self._append(topic_partition, batch, origin, leader_epoch)

    def append_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        *,
        transaction_version: int,
        leader_epoch: int,
    ) -> Any:
        marker = EndTransactionMarker(committed, coordinator_epoch)
        batch = build_marker(producer_id, producer_epoch, marker, self.clock.time_ms())
        origin = Origin(coordinator=True, marker=marker, transaction_version=transaction_version)
        return self._append(topic_partition, batch, origin, leader_epoch)

    def _append(
        self,
        topic_partition: TopicPartition,
        batch: bytearray,
        origin: Origin | None,
        leader_epoch: int,
    ) -> Any:
        if self.append_error is not None:
            raise KafkaError(self.append_error)
        if leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self.clock.time_ms()
        info = self.log_of(topic_partition).append_as_leader(
            memoryview(batch), leader_epoch, now_ms=now_ms, origin=origin
        )
        if self.flushes is None:
            return Result(info)
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flushes.append(flush)
        return of_future(flush)

    async def advance(self, delta_ms: int) -> None:
        """Move the clock, run the timers that are due, then let callbacks run."""
        self.timers.advance(delta_ms)
        for _ in range(3):
            await asyncio.sleep(0)


class Partitions:
    """The partitions of an `OnDisk`, which is made after its coordinator."""

    state: OnDisk

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        return self.state.led_epoch(topic_partition)

    def log(self, topic_partition: TopicPartition) -> UnifiedLog:
        return self.state.log_of(topic_partition)

    def await_committed(
        self, topic_partition: TopicPartition, offset: int, reached: Callable[[int], object]
    ) -> None:
        self.state.await_committed(topic_partition, offset, reached)

    def append_internal(
        self, topic_partition: TopicPartition, batch: bytearray, guard: int, leader_epoch: int
    ) -> Any:
        return self.state.append_internal(topic_partition, batch, guard, leader_epoch)

    def append_marker(self, *arguments: Any, **versions: int) -> Any:
        return self.state.append_marker(*arguments, **versions)


def now(result: Result[Any]) -> Any:
    """Return the value of a completed result, or the result itself."""
    return result.value if result.completed else result


async def settled(response: Any) -> Any:
    """Return the value of a result. Wait for it if necessary."""
    return await wait(response) if isinstance(response, Result) else response


@asynccontextmanager
async def coordinator(
    path: Path, *, start: bool = True, partitions: int = 1, **config: object
) -> AsyncIterator[OnDisk]:
    """Run a coordinator with this number of offsets partitions. Stop it and close its logs."""
    clock = ManualClock()
    timers = SteppedTimers(clock)
    manager = LogManager([str(path)], LogConfig(), clock)
    manager.load()
    for number in range(partitions):
        manager.create(TopicPartition(CONSUMER_OFFSETS, number), OFFSETS_ID)
    ids = itertools.count()
    led = Partitions()
    with ThreadPoolExecutor(1) as executor:
        state: OnDisk
        groups = GroupCoordinator(
            config=BrokerConfig.from_properties(config),
            clock=clock,
            timers=timers,
            image=lambda: state.image,
            partitions=led,
            executor=executor,
            new_id=lambda: str(next(ids)),
            new_uuid=lambda: Uuid(next(ids).to_bytes(16)),
        )
        image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID, partitions), topic("t"))
        state = led.state = OnDisk(groups, clock, timers, manager, image)
        if start:
            groups.start()
            await groups.runtime.loads_done()
        try:
            yield state
        finally:
            groups.stop()
            manager.close()
