"""Fetches: one read of all partitions, and the wait for min.bytes (Kafka's ``DelayedFetch``).

A fetch reads its partitions. It responds if they have `min_bytes`, an error or a divergence.
Otherwise the fetch is delayed. It ends when enough bytes were appended to its partitions or became
stable, when a partition changes (leader, deletion, disk), or when its time is up. Then the fetch
reads once more and responds with that data, even if it is less than `min_bytes`. Appends are only
counted, and the read runs in the next iteration of the event loop. Many appends in one iteration
therefore cost one read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Protocol

from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH
from odradek.replication.fetch_data import ColdRead, FetchIsolation, FetchPartitionData
from odradek.replication.partition import Partition
from odradek.replication.purgatory import DelayedOperation, Purgatory
from odradek.results import PendingResult, Result
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS, Pause, begin, sliced

if TYPE_CHECKING:
    import asyncio

    from odradek.environment.clock import Clock
    from odradek.ids import Uuid
    from odradek.log.log_read import LogReadInfo

CONSUMER = -1
"""The replica id of consumers."""
REPLICA_VERIFICATION = -2
"""The replica id of tools that compare replicas. They read as consumers, from any replica."""

LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

COLD_PASSES_MAX = 100
"""A fetch that reads from the disk may be overtaken by appends and has to read again. After this
many passes it responds with the data of the last one."""

UNTIMED_MAX = 8
"""Partitions between two readings of the clock. A fetch with fewer does not read it."""

UNWATCHED_PER_SLICE = 500
"""Partitions that a completed fetch stops watching in one time slice."""

FetchData = list[FetchPartitionData]


class FetchManager(Protocol):
    """The part of `ReplicaManager` that a fetch uses."""

    @property
    def clock(self) -> Clock: ...

    @property
    def fetches(self) -> Purgatory: ...

    @property
    def is_out_of_files(self) -> bool: ...

    def find(self, topic: str | Uuid, partition: int) -> Partition | None: ...

    def unknown_code(self, topic: str | Uuid, partition: int) -> ErrorCode: ...

    def leader_elsewhere(self, topic: str | Uuid, partition: int) -> tuple[int, int] | None: ...

    def read_in_thread(self, read: Callable[[], LogReadInfo]) -> asyncio.Future[LogReadInfo]: ...


class FetchTarget(Protocol):
    """The request for one partition of a fetch. `topic` is a name or a topic id."""

    topic: str | Uuid
    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int


@dataclass(slots=True)
class FetchParams:
    """The properties of a fetch that hold for all of its partitions (Kafka's ``FetchParams``).

    Attributes:
        reads_zstd: Whether the client can read zstd. If not, topics with this compression.type get
            the error UNSUPPORTED_COMPRESSION_TYPE.
    """

    isolation: FetchIsolation
    replica_id: int
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    reads_zstd: bool = True


class LogRead:
    """One pass over the partitions of a fetch, within max.bytes.

    Attributes:
        data: The data of each partition, in the order of the targets. Its regions are open.
        size_bytes: The size of the regions.
        has_news: The response must not wait. A partition has an error or a divergence, or was not
            read because the regions of responses hold too many files.
        partitions: The partitions that exist on this broker.
        delayed: The operation that watches each partition from the time of its read, if any.
        was_cold: The pass waited, for the disk or a time slice, while no operation watched the
            partitions. They may have changed since their limits were taken.
        slice_elements: Number of partitions that are read in one time slice.
    """

    slice_elements = ELEMENTS_PER_SLICE

    __slots__ = (
        "_cold_limits",
        "_manager",
        "_params",
        "data",
        "delayed",
        "has_news",
        "partitions",
        "size_bytes",
        "was_cold",
    )

    def __init__(self, manager: FetchManager, params: FetchParams) -> None:
        self._manager = manager
        self._params = params
        self.data: FetchData = []
        self.size_bytes = 0
        self.has_news = False
        # A dictionary, because a partition that is read from the disk is added twice.
        self.partitions: dict[Partition, None] = {}
        self.delayed: DelayedFetch | None = None
        self.was_cold = False
        # By position in `data`: high watermark and last stable offset at the time when a read from
        # the disk was submitted to a thread. `data` has the values at the time when the thread
        # ended.
        self._cold_limits: dict[int, tuple[int, int]] = {}

    def delay(self, targets: Sequence[FetchTarget]) -> DelayedFetch:
        """Have an operation watch the partitions, which were read in this time slice."""
        manager, params = self._manager, self._params
        self.delayed = delayed = DelayedFetch(manager, params, targets)
        if manager.fetches.watch(delayed, params.max_wait_ms, len(targets)):
            for partition in self.partitions:
                delayed.watch(partition)
        return delayed

    def in_slices(
        self, targets: Sequence[FetchTarget], *, may_delay: bool = False
    ) -> Generator[Pause, None, None]:
        """Read all `targets`. Yield at the end of each time slice, and for reads from the disk.

        The clock ends a slice, too. For example, a read may have to open the files of a log.

        Args:
            targets: The partitions.
            may_delay: Whether the fetch is delayed if it does not end in one slice. Bytes that are
                appended between two slices are counted then.
        """
        clock, left = self._manager.clock, self.slice_elements
        ends_ms: float | None = None
        if targets[UNTIMED_MAX:]:
            ends_ms = clock.monotonic_ms() + SLICE_MS
        try:
            for target in targets:
                if not left or (
                    ends_ms is not None
                    and not left % UNTIMED_MAX
                    and clock.monotonic_ms() > ends_ms
                ):
                    if self.delayed is None:
                        if may_delay and not self.was_cold:
                            self.delay(targets)
                        else:
                            self.was_cold = True
                    yield None
                    left, ends_ms = self.slice_elements, clock.monotonic_ms() + SLICE_MS
                left -= 1
                try:
                    data = self._read(target)
                except ColdRead as cold:
                    data = yield from self._read_cold(target, cold)
                self.data.append(data)
        except BaseException:
            close_regions(self.data)
            raise

    def _read_cold(
        self, target: FetchTarget, cold: ColdRead
    ) -> Generator[Pause, None, FetchPartitionData]:
        """Read from the disk on a thread, and use the result if it is still valid.

        It is not valid if the topic was deleted and created again under its name in the meantime.
        """
        self.was_cold = True
        while True:
            partition = self._manager.find(target.topic, target.partition)
            if partition is not None:
                log = partition.log
                limits = (log.high_watermark, log.last_stable_offset)
                self._cold_limits[len(self.data)] = limits
            cold_read = self._manager.read_in_thread(cold.read)
            try:
                yield cold_read
            finally:  # a cancelled fetch also cancels a read that no thread has started
                cold_read.cancel()
            is_same = self._manager.find(target.topic, target.partition) is partition
            try:
                return self._read(target, cold_read.result if is_same else None)
            except ColdRead as again:
                cold = again

    def _read(
        self,
        target: FetchTarget,
        cold_result: Callable[[], LogReadInfo] | None = None,
    ) -> FetchPartitionData:
        params = self._params
        partition = self._manager.find(target.topic, target.partition)
        if partition is None:
            self.has_news = True
            return self._missing(target.topic, target.partition)
        self.partitions[partition] = None
        if self.delayed is not None:
            self.delayed.watch(partition)
        if self.size_bytes and cold_result is None and self._manager.is_out_of_files:
            self.has_news = True
            log = partition.log
            return FetchPartitionData(
                log.high_watermark, log.last_stable_offset, log.log_start_offset
            )
        remaining = params.max_bytes - self.size_bytes
        try:
            if params.replica_id >= 0:
                refuse_replica(partition, target.leader_epoch)
            if not params.reads_zstd and partition.log.config.compression_type == "zstd":
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            data = partition.read(
                target.fetch_offset,
                target.max_bytes if target.max_bytes < remaining else max(remaining, 0),
                not self.size_bytes,
                params.isolation,
                target.leader_epoch,
                target.last_fetched_epoch,
                cold_result,
                from_follower=params.replica_id == REPLICA_VERIFICATION,
            )
        except KafkaError as error:
            self.has_news = True
            leader = (partition.leader, partition.leader_epoch)
            current_leader = leader if error.code in LEADER_ERRORS else None
            return FetchPartitionData(error=error.code, current_leader=current_leader)
        if data.region is not None:
            self.size_bytes += data.region.length
        elif data.diverging_epoch != UNDEFINED_EPOCH:
            self.has_news = True
        return data

    def _missing(self, topic: str | Uuid, partition: int) -> FetchPartitionData:
        """Return the error for a partition that is not on this broker."""
        manager = self._manager
        code, leader = manager.unknown_code(topic, partition), None
        if code in LEADER_ERRORS:
            leader = manager.leader_elsewhere(topic, partition)
        return FetchPartitionData(error=code, current_leader=leader)

    def is_outdated(self, targets: Sequence[FetchTarget]) -> bool:
        """Return whether a partition has more to read, or an error, since this pass read it."""
        for at, (target, data) in enumerate(zip(targets, self.data, strict=True)):
            partition = self._manager.find(target.topic, target.partition)
            if partition is None or partition.error:
                return True
            log = partition.log
            read = self._cold_limits.get(at, (data.high_watermark, data.last_stable_offset))
            if (log.high_watermark, log.last_stable_offset) != read:
                return True
        return False


def refuse_replica(partition: Partition, leader_epoch: int) -> NoReturn:
    """Raise the error for a replica's fetch: no other broker is a replica of the partition.

    Follows ``Partition.followerReplicaOrThrow``.
    """
    partition.check_leader_epoch(leader_epoch)
    raise KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leader_epoch == UNDEFINED_EPOCH
        else ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def close_regions(data: FetchData) -> None:
    """Close the regions of data that will not be sent."""
    for each in data:
        if each.region is not None:
            each.region.close()


class DelayedFetch(DelayedOperation):
    """A fetch that is delayed, or may become delayed after its first read.

    A fetch of many partitions watches them from the time of its first read.
    """

    __slots__ = (
        "_bytes_missing",
        "_manager",
        "_params",
        "_partitions",
        "_result",
        "_scheduled",
        "_targets",
    )

    def __init__(
        self, manager: FetchManager, params: FetchParams, targets: Sequence[FetchTarget]
    ) -> None:
        super().__init__()
        self._manager = manager
        self._params = params
        self._targets = targets
        self._bytes_missing = params.min_bytes
        self._partitions: list[Partition] = []
        self._scheduled = False
        # None until the first read has ended. Until then no result has been returned.
        self._result: PendingResult[FetchData] | None = None

    def watch(self, partition: Partition) -> None:
        """Count the bytes that are appended to `partition` from now on."""
        if not self.completed:
            self._partitions.append(partition)
            partition.watch_fetch(self, self._params.isolation)

    def wait(self, read: LogRead) -> Result[FetchData]:
        """Return the data of the next read. `read` is the first one, which was not sufficient."""
        close_regions(read.data)
        result: PendingResult[FetchData] = PendingResult(on_cancel=self.cancel)
        self._result = result
        if self.completed:  # while the first read ran
            self.on_complete()
        else:
            self.appended(read.size_bytes)
        return result

    # Reports of partitions.

    def appended(self, size_bytes: int) -> None:
        """Subtract `size_bytes`, which became readable in a partition, from the missing bytes."""
        self._bytes_missing -= size_bytes
        if self._bytes_missing <= 0:
            self._schedule()

    def interrupt(self) -> None:
        """Read again as soon as possible, for a reason other than appended bytes."""
        self._bytes_missing = 0
        self._schedule()

    def _schedule(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        self._manager.fetches.loop.call_soon(self.try_complete)

    # The methods of `DelayedOperation`.

    def try_complete(self) -> bool:
        if self._bytes_missing <= 0:
            self.force_complete()
        return self.completed

    def release(self) -> None:
        self._manager.fetches.forget(self)
        if self._partitions[UNWATCHED_PER_SLICE:]:
            begin(self._unwatching(), "the end of a delayed fetch")
        else:
            for partition in self._partitions:
                partition.unwatch_fetch(self)

    def _unwatching(self) -> Generator[None, None, None]:
        """Stop watching in time slices. Reports between two slices have no effect."""
        for count, partition in enumerate(self._partitions, 1):
            partition.unwatch_fetch(self)
            if not count % UNWATCHED_PER_SLICE:
                yield

    def on_complete(self) -> None:
        """Read the partitions again. The data of this read is the result."""
        result = self._result
        if result is None:
            return
        try:
            last_read = sliced(self._last_read())
        except Exception as error:  # noqa: BLE001 - the caller is an event, and the fetch must end
            result.fail(error)
        else:
            result.follow(last_read)

    def _last_read(self) -> Generator[Pause, None, Result[FetchData]]:
        read = LogRead(self._manager, self._params)
        yield from read.in_slices(self._targets)
        return Result(read.data)


def fetch(
    manager: FetchManager, params: FetchParams, targets: Sequence[FetchTarget]
) -> Generator[Pause, None, Result[FetchData]]:
    """Read the targets in time slices. Wait and read again if the data is not sufficient."""
    read = LogRead(manager, params)
    if targets[ELEMENTS_PER_SLICE:]:
        read.delay(targets)
    try:
        yield from read.in_slices(targets, may_delay=params.max_wait_ms > 0)
        if read.was_cold and read.delayed is None:
            read = yield from _caught_up(read, manager, params, targets)
    except BaseException:
        if read.delayed is not None:
            read.delayed.cancel()
        raise
    delayed = read.delayed
    if (
        read.size_bytes >= params.min_bytes
        or read.has_news
        or params.max_wait_ms <= 0
        or not read.partitions
    ):
        if delayed is not None:
            delayed.cancel()
        return Result(read.data)
    if delayed is None:
        delayed = read.delay(targets)
        if read.was_cold and read.is_outdated(targets):
            delayed.interrupt()
    return delayed.wait(read)


def _caught_up(
    read: LogRead, manager: FetchManager, params: FetchParams, targets: Sequence[FetchTarget]
) -> Generator[Pause, None, LogRead]:
    """Read again while partitions change during the reads from the disk, up to min.bytes.

    `COLD_PASSES_MAX` limits the number of passes.
    """
    for _ in range(COLD_PASSES_MAX if params.max_wait_ms > 0 else 0):
        if read.size_bytes >= params.min_bytes or read.has_news or not read.is_outdated(targets):
            break
        close_regions(read.data)
        read = LogRead(manager, params)
        yield from read.in_slices(targets)
    return read
