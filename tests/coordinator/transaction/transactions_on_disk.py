"""A transaction coordinator over real logs in a directory. The test controls clock, disk and
markers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from odradek.config.broker import BrokerConfig
from odradek.config.log_config import LogConfig
from odradek.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.transaction.transaction_decisions import (
    Identity,
    Init,
    ProducerIdAndEpoch,
    TransactionResponse,
)
from odradek.coordinator.transaction.transaction_marker import TransactionMarker
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.metadata.image import MetadataImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.result_tasks import wait
from odradek.results import Result
from tests.coordinator.group.on_disk import image_of, topic
from tests.helpers.futures import of_future
from tests.helpers.manual_timers import SteppedTimers

T = TypeVar("T")
STATE = TopicPartition(TRANSACTION_STATE, 0)
STATE_ID = Uuid(b"s" * 16)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Ids:
    """Producer ids from blocks of two. The first block exists already."""

    def __init__(self) -> None:
        self._next = itertools.count(1)
        self._left = 2
        self.fetched = 0

    def next_or_none(self) -> int | None:
        if self._left == 0:
            return None
        self._left -= 1
        return next(self._next)

    async def next(self) -> int:
        await asyncio.sleep(0)
        self.fetched += 1
        self._left = 2
        fresh = self.next_or_none()
        assert fresh is not None
        return fresh


class DiskTimers(SteppedTimers):
    """Timers in which timeouts wait for the test, and pauses before retries take real time."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


@dataclass
class OnDisk:
    """The objects that a test uses: coordinator, clock, markers, and the outcome of appends."""

    clock: ManualClock
    timers: DiskTimers
    manager: LogManager
    image: MetadataImage
    transactions: TransactionCoordinator = field(init=False)
    append_error: ErrorCode | None = None
    # Whether this broker leads the partition, and its leader epoch.
    leads: bool = True
    leader_epoch: int = 0
    # When this is a list, each append adds a future to it and waits for that.
    flushes: list[asyncio.Future[None]] | None = None
    markers: list[TransactionMarker] = field(default_factory=list)
    # The codes of partitions for markers, each one once. The later ones are NONE.
    refusals: dict[TopicPartition, list[ErrorCode]] = field(default_factory=dict)
    # Markers wait while this event is not set.
    open: asyncio.Event = field(default_factory=asyncio.Event)

    # -- LedPartitions -----------------------------------------------------------------------------

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        is_led = self.leads and self.manager.get(topic_partition) is not None
        return self.leader_epoch if is_led else None

    def await_committed(
        self, topic_partition: TopicPartition, offset: int, reached: Callable[[int], object]
    ) -> None:
        reached(offset)

    def log(self, topic_partition: TopicPartition) -> UnifiedLog:
        log = self.manager.get(topic_partition)
        if log is None or not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def append_internal(
        self, topic_partition: TopicPartition, batch: bytearray, guard: int, leader_epoch: int
    ) -> Any:
        if self.append_error is not None:
            raise KafkaError(self.append_error)
        if leader_epoch != self.leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self.clock.time_ms()
        log = self.log(topic_partition)
        info = log.append_as_leader(memoryview(batch), leader_epoch, now_ms=now_ms)
        if self.flushes is None:
            return Result(info)
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flushes.append(flush)
        return of_future(flush)

    async def write_markers(
        self, markers: Sequence[TransactionMarker]
    ) -> Mapping[int, Mapping[TopicPartition, ErrorCode]]:
        await self.open.wait()
        self.markers += markers
        return {
            marker.producer_id: {each: self._refusal(each) for each in marker.partitions}
            for marker in markers
        }

    def _refusal(self, partition: TopicPartition) -> ErrorCode:
        codes = self.refusals.get(partition)
        return codes.pop(0) if codes else ErrorCode.NONE

    def topics(self, *names: str, **changes: Any) -> None:
        """Change the metadata: these topics exist, with two partitions each."""
        old = self.image
        state = topic(TRANSACTION_STATE, STATE_ID)
        others = [topic(name, name.encode() * 16, 2) for name in names]
        self.image = replace(image_of(state, *others), features=old.features, **changes)

    # -- requests ----------------------------------------------------------------------------------

    async def init(
        self, name: str = "x", timeout_ms: int = 60_000, expected: tuple[int, int] | None = None
    ) -> TransactionResponse:
        known = None if expected is None else ProducerIdAndEpoch(*expected)
        return await settled(self.transactions.init_producer_id(Init(name, timeout_ms, known)))

    async def add(
        self, who: tuple[int, int] = (1, 0), *partitions: TopicPartition, name: str = "x"
    ) -> ErrorCode:
        requested = frozenset(partitions or (A0, A1))
        response = self.transactions.add_partitions(Identity(name, *who), requested)
        return (await settled(response)).code

    async def end(
        self,
        who: tuple[int, int] = (1, 0),
        *,
        committed: bool = True,
        version: int = 0,
        name: str = "x",
    ) -> TransactionResponse:
        response = self.transactions.end_transaction(Identity(name, *who), committed, version)
        return await settled(response)

    async def completed(self) -> None:
        """Let the markers be written, and wait until all transactions are complete."""
        self.open.set()
        await self.transactions.completions.done()

    def state(self, name: str = "x") -> str:
        return self.transactions.describe(name).state.kafka_name


async def settled(response: Result[T]) -> T:
    """Return the value of a result. Wait for it if necessary."""
    return await wait(response)


async def until(true: Callable[[], bool]) -> None:
    """Let the event loop run until a condition is true."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


@asynccontextmanager
async def coordinator(
    path: Path,
    *,
    level: int = 1,
    clock: ManualClock | None = None,
    loaded: bool = True,
    leader_epoch: int = 0,
    **config: object,
) -> AsyncIterator[OnDisk]:
    """Run a coordinator whose topic has one partition. Stop it and close its logs.

    With `loaded` False its loading has only begun.
    """
    clock = clock or ManualClock()
    manager = LogManager([str(path)], LogConfig(), clock)
    manager.load()
    if manager.get(STATE) is None:
        manager.create(STATE, STATE_ID)
    names = {key.replace("_", "."): str(value) for key, value in config.items()}
    with ThreadPoolExecutor(1) as executor:
        disk = OnDisk(
            clock,
            DiskTimers(clock),
            manager,
            MetadataImage(features=PersistentMap({"transaction.version": level})),
            leader_epoch=leader_epoch,
        )
        disk.transactions = TransactionCoordinator(
            config=BrokerConfig.from_properties(names),
            clock=clock,
            timers=disk.timers,
            image=lambda: disk.image,
            partitions=disk,
            executor=executor,
            producer_ids=Ids(),
            write_markers=disk.write_markers,
        )
        disk.topics("a")
        disk.transactions.start()
        if loaded:
            await disk.transactions.runtime.loads_done()
        try:
            yield disk
        finally:
            disk.transactions.stop()
            await asyncio.sleep(0)
            manager.close()
