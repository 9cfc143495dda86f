"""A log without files, partitions over it, and an executor that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, TopicPartition
from odradek.log.log_append_info import LogAppendInfo
from odradek.log.log_read import LogReadInfo
from odradek.log.residency import NotResident
from odradek.replication.partition import Partition
from tests.helpers.led_partitions import led

BATCH = memoryview(bytearray(100))


class Producers:
    """Producers without open transactions."""

    ongoing: tuple[()] = ()
    unreplicated: tuple[()] = ()


class Region:
    """The records of one read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.closed = False

    def close(self) -> None:
        self.closed = True


class ListLog:
    """A log that stores only its offsets. Each batch has one record of 100 bytes."""

    def __init__(self, config: LogConfig = LogConfig()) -> None:  # noqa: B008
        self.config = config
        self.high_watermark = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.must_flush = False
        self.repeated_offset = -1
        self.recovery_point = 0
        self.epochs: list[tuple[int, int]] = []
        self.reads: list[tuple[int, int, int, bool]] = []
        self.regions: list[Region] = []
        self.producers = Producers()
        self.is_cold = False
        self.failure: Exception | None = None
        self.truncations = 0

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def advance_high_watermark(self, offset: int) -> bool:
        moved = offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, offset)
        return moved

    def begin_leader_epoch(self, epoch: int) -> None:
        self.epochs.append((epoch, self.log_end_offset))

    def append_as_leader(
        self, batch: Any, epoch: int, *, now_ms: int, origin: object = None, commit: bool = False
    ) -> LogAppendInfo:
        if self.repeated_offset >= 0:
            offset = self.repeated_offset
            return LogAppendInfo(offset, offset, -1, self.log_start_offset, True, self.must_flush)
        offset = self.log_end_offset
        self.log_end_offset += 1
        if commit and not self.must_flush:
            self.high_watermark = self.log_end_offset
        return LogAppendInfo(offset, offset, -1, self.log_start_offset, False, self.must_flush)

    def read_resident(
        self, offset: int, max_bytes: int, max_offset: int, whole: bool, *, with_aborted: bool
    ) -> LogReadInfo:
        if self.failure is not None:
            raise self.failure
        if self.is_cold:
            raise NotResident
        return self.read(offset, max_bytes, max_offset, whole, with_aborted=with_aborted)

    def confirm(self, offset: int, found: LogReadInfo) -> bool:
        return found.truncations == self.truncations

    def read(
        self, offset: int, max_bytes: int, max_offset: int, whole: bool, *, with_aborted: bool
    ) -> LogReadInfo:
        self.reads.append((offset, max_bytes, max_offset, whole))
        if offset >= max_offset:
            return LogReadInfo(None)
        region = Region(min(100 * (max_offset - offset), max_bytes))
        self.regions.append(region)
        return LogReadInfo(region, truncations=self.truncations)  # type: ignore[arg-type]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        known = [at for at, (number, _) in enumerate(self.epochs) if number <= epoch]
        if not known:
            return -1, -1
        at = known[-1]
        ends = [start for _, start in self.epochs[1:]] + [self.log_end_offset]
        return self.epochs[at][0], ends[at]


class FakeDelayedOperation:
    """A delayed operation that counts the reports of a partition."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.interrupts = 0
        self.ended: list[Any] = []

    def appended(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes

    def interrupt(self) -> None:
        self.interrupts += 1

    def resolve(self, partition: Partition, error: ErrorCode) -> None:
        self.ended.append(error)


def partition_of(
    log: ListLog, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,), index: int = 0
) -> Partition:
    """Return a partition that broker 1 leads in epoch 5."""
    partition = Partition(TopicPartition("t", index), ZERO_UUID, log)  # type: ignore[arg-type]
    partition.become_leader(led(5, replicas, isr))
    return partition


class HeldExecutor(Executor):
    """An executor that runs nothing before `release`: a flush takes as long as the test needs."""

    def __init__(self) -> None:
        self.held: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.asked = asyncio.Event()

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.held.append((future, partial(work, *args, **kwargs)))
        self.asked.set()
        return future

    def release(self) -> None:
        held, self.held = self.held, []
        for future, work in held:
            try:
                future.set_result(work())
            except (OSError, KafkaError) as error:
                future.set_exception(error)
