"""The append of a produce request's records to the partitions that this broker leads.

Each entry is one batch for one partition. Entries are appended in order, and the partition is
looked up immediately before its append, because metadata may change between two time slices.
Batches of internal, compacted and recompressed topics are opened first: their records are validated
or recompressed (`odradek.records.validate_body`). Batches that take longer than a slice are
appended after all others, one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.errors import ErrorCode, KafkaError, RecordsRefused
from odradek.replication.partition import ACKS_ALL, Partition
from odradek.result_tasks import run
from odradek.results import PendingResult, Result
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS

if TYPE_CHECKING:
    from odradek.environment.clock import Clock
    from odradek.ids import TopicPartition, Uuid
    from odradek.log.log_append_info import LogAppendInfo
    from odradek.log.state.verification import Origin
    from odradek.offloading import Step, Work, WorkRunner
    from odradek.records.validate import Writable

OPENED_BATCH_ELEMENTS = 50
"""Elements of a time slice that the first slice of an opened batch counts as."""


class AppendManager(Protocol):
    """The part of `ReplicaManager` that an append uses."""

    @property
    def decompression(self) -> WorkRunner: ...

    def find(self, topic: str | Uuid, partition: int) -> Partition | None: ...

    def unknown_code(self, topic: str | Uuid, partition: int) -> ErrorCode: ...

    def leader_elsewhere(self, topic: str | Uuid, partition: int) -> tuple[int, int] | None: ...

    def wait_committed(
        self,
        required_offsets: dict[Partition, int],
        timeout_ms: int | None,
        on_ready: Callable[[dict[Partition, ErrorCode]], None],
        *,
        committed: bool = True,
    ) -> None: ...


@dataclass(slots=True)
class AppendEntry:
    """The records for one partition.

    Attributes:
        topic: A name or a topic id.
        records: One batch, which is changed in place. None if the request has no records.
        origin: Set for a batch of a transaction.
        error: The error of a batch that the request does not allow. The batch is not appended.
    """

    topic: str | Uuid
    partition: int
    records: memoryview | None
    origin: Origin | None = None
    error: KafkaError | None = None


@dataclass(slots=True)
class AppendResult:
    """The outcome for one entry: `info`, or `error` and the data that clients need to handle it."""

    info: LogAppendInfo | None
    error: KafkaError | None = None
    topic_partition: TopicPartition | None = None
    log_start_offset: int = -1
    current_leader: tuple[int, int] | None = None


class _Opening(NamedTuple):
    """A batch that is being opened. Its result replaces the one at `position`."""

    position: int
    partition: Partition
    entry: AppendEntry
    work: Work[Writable]
    step: Step


class RecordAppend:
    """One call of `ReplicaManager.append_records`."""

    __slots__ = (
        "_acks",
        "_appended",
        "_internal_topics_allowed",
        "_manager",
        "_now_ms",
        "_opening",
        "_required_offsets",
        "_timeout_ms",
        "results",
    )

    def __init__(
        self,
        manager: AppendManager,
        now_ms: int,
        acks: int,
        timeout_ms: int,
        internal_topics_allowed: bool,
    ) -> None:
        self._manager = manager
        self._now_ms = now_ms
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._internal_topics_allowed = internal_topics_allowed
        self.results: list[AppendResult] = []
        # The high watermarks that appended records need before they are acknowledged, the positions
        # of their results, and the leader epochs of the records.
        self._required_offsets: dict[Partition, int] = {}
        self._appended: dict[Partition, tuple[int, int]] = {}
        self._opening: list[_Opening] = []

    def in_slices(
        self, entries: Sequence[AppendEntry], clock: Clock
    ) -> Generator[None, None, Result[list[AppendResult]]]:
        """Append all entries. Yield at the end of each time slice.

        The clock ends a slice, too. The first append to a log creates its directory and files, the
        first one in a leader epoch writes a file, and any append may roll the segment.
        """
        left, ends_ms = ELEMENTS_PER_SLICE, clock.monotonic_ms() + SLICE_MS
        for entry in entries:
            if left <= 0 or clock.monotonic_ms() > ends_ms:
                yield
                left, ends_ms = ELEMENTS_PER_SLICE, clock.monotonic_ms() + SLICE_MS
            left -= self.append(entry)
        self._fail_lost_records()
        return self.finish()

    def include(self, partition: Partition, outcome: LogAppendInfo | KafkaError) -> None:
        """Include an append that the caller has made in this time slice."""
        if isinstance(outcome, KafkaError):
            self.results.append(refused(partition, outcome))
            return
        self.results.append(AppendResult(outcome))
        if partition.log.high_watermark <= outcome.last_offset:
            self._require(partition, outcome, len(self.results) - 1)

    def append(self, entry: AppendEntry) -> int:
        """Append one entry, or begin to open it. Return its cost in elements of a slice."""
        partition = self._manager.find(entry.topic, entry.partition)
        try:
            if partition is None:
                self.results.append(self._missing(entry))
                return 1
            records = entry.records
            if records is None or entry.error is not None or not partition.appends_as_received:
                records = self._checked(partition, entry)
                if not partition.appends_as_received:
                    self._open(partition, entry, records)
                    return 1 + OPENED_BATCH_ELEMENTS
            info = partition.append(records, self._acks, self._now_ms, entry.origin)
        except KafkaError as error:
            self.results.append(refused(partition, error))
            return 1
        self.results.append(AppendResult(info))
        if partition.log.high_watermark <= info.last_offset:
            self._require(partition, info, len(self.results) - 1)
        return 1

    def _missing(self, entry: AppendEntry) -> AppendResult:
        """Return the error for a partition that is not on this broker."""
        manager = self._manager
        code = manager.unknown_code(entry.topic, entry.partition)
        result = AppendResult(None, KafkaError(code))
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            result.current_leader = manager.leader_elsewhere(entry.topic, entry.partition)
        return result

    def _checked(self, partition: Partition, entry: AppendEntry) -> memoryview:
        if partition.internal and not self._internal_topics_allowed:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Cannot append to internal topic {partition.topic_partition.topic}",
            )
        if entry.records is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "there must be at least one record batch per partition"
            )
        if entry.error is not None:
            raise entry.error
        return entry.records

    def _require(self, partition: Partition, info: LogAppendInfo, position: int) -> None:
        """Delay the result until its records are flushed or committed, if `acks` requires that.

        A duplicate is acknowledged no sooner than its original. acks=1 waits only for a flush that
        its own records made due.
        """
        if self._acks == ACKS_ALL or info.must_flush or info.duplicate:
            self._required_offsets[partition] = info.last_offset + 1
            self._appended[partition] = position, partition.leader_epoch

    def _fail_lost_records(self) -> None:
        """Fail the records whose leader epoch has ended since their append, between two slices.

        Another leader may have truncated them before this broker was elected again. The offsets
        that they needed are then the offsets of other records, whose commit acknowledges nothing.
        """
        for partition, (position, leader_epoch) in self._appended.items():
            if partition.leader_epoch != leader_epoch and partition in self._required_offsets:
                del self._required_offsets[partition]
                error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self.results[position] = refused(partition, error)

    # --- batches that are opened ---

    def _open(self, partition: Partition, entry: AppendEntry, records: memoryview) -> None:
        """Open a batch and append it: immediately if this takes one slice, otherwise later."""
        from odradek.records.scan import is_usual
        from odradek.records.validate_body import open_batch

        position = len(self.results)
        if not partition.needs_recompression and is_usual(records):
            self.results.append(self._append_opened(partition, entry, records, position))
            return
        work = open_batch(
            records,
            partition.log.config,
            self._now_ms,
            checked=partition.needs_record_validation,
            where=str(partition.topic_partition),
        )
        try:
            step = next(work)
        except StopIteration as opened:
            self.results.append(self._append_opened(partition, entry, opened.value, position))
        else:
            self.results.append(AppendResult(None))
            self._opening.append(_Opening(position, partition, entry, work, step))

    def _append_opened(
        self, partition: Partition, entry: AppendEntry, records: Writable, position: int
    ) -> AppendResult:
        try:
            info = partition.append(records, self._acks, self._now_ms, entry.origin)
        except KafkaError as error:
            return refused(partition, error)
        if partition.log.high_watermark <= info.last_offset:
            self._require(partition, info, position)
        return AppendResult(info)

    async def _append_later(self) -> Result[list[AppendResult]]:
        """Append the batches that take more than one slice, one at a time."""
        try:
            for position, partition, entry, work, step in self._opening:
                try:
                    records = await self._manager.decompression.finish(work, step)
                except KafkaError as error:
                    self.results[position] = refused(partition, error)
                else:
                    result = self._append_opened(partition, entry, records, position)
                    self.results[position] = result
        finally:
            for opening in self._opening:
                opening.work.close()
            self._opening.clear()
        self._fail_lost_records()
        return self._wait()

    # --- the end ---

    def finish(self) -> Result[list[AppendResult]]:
        """Return the result, after every entry was begun. It is executed when all are appended."""
        if self._opening:
            return run(self._append_later())
        if self._required_offsets:
            return self._wait()
        return Result(self.results)

    def _wait(self) -> Result[list[AppendResult]]:
        """Wait until the records below the required offsets are committed or flushed."""
        if not self._required_offsets:
            return Result(self.results)
        result: PendingResult[list[AppendResult]] = PendingResult()

        def ready(errors: dict[Partition, ErrorCode]) -> None:
            for partition, code in errors.items():
                failed = AppendResult(None, KafkaError(code), partition.topic_partition)
                position, _ = self._appended[partition]
                self.results[position] = failed
            result.complete(self.results)

        # With acks=0 and 1 the request waits for a flush. Kafka flushes within the request and has
        # no timeout for it.
        committed = self._acks == ACKS_ALL
        timeout_ms = self._timeout_ms if committed else None
        self._manager.wait_committed(self._required_offsets, timeout_ms, ready, committed=committed)
        return result


def refused(partition: Partition | None, error: KafkaError) -> AppendResult:
    """Return the result for records that were not appended."""
    if partition is None:
        return AppendResult(None, error)
    result = AppendResult(None, error, partition.topic_partition)
    if isinstance(error, RecordsRefused):
        result.log_start_offset = partition.log.log_start_offset
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        result.current_leader = (partition.leader, partition.leader_epoch)
    return result
