"""One partition on this broker: its leader, its committed offset and its delayed operations.

The partition uses no files, event loop or clock. The log accesses the files, and delayed operations
are notified by calls. The rules are Kafka's (``kafka.cluster.Partition``). acks=all needs
min.insync.replicas before the append. Consumers read only records below the high watermark. A
leader epoch in a request must be equal to the partition's.

On a single node this broker is the only in-sync replica, so the high watermark follows the log's
end. It is advanced by the append itself, or, if the topic sets flush.messages, after the flush that
covers the records. While such a flush is due the high watermark stays behind it, so that consumers
do not read records that may still be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

from odradek.config.log_config import LONG_MAX
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import NO_OFFSET
from odradek.log.residency import NotResident
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
from odradek.metadata.image import NO_LEADER
from odradek.metadata.topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.environment.clock import Clock
    from odradek.ids import TopicPartition, Uuid
    from odradek.log.log_append_info import LogAppendInfo
    from odradek.log.log_read import LogReadInfo
    from odradek.log.state.verification import Origin, VerificationGuard
    from odradek.log.unified_log import UnifiedLog
    from odradek.metadata.image import PartitionImage
    from odradek.records.region import FileRegion
    from odradek.records.validate import Writable
    from odradek.replication.replication_state import Brokers, IsrProposal

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
# The number of bytes between two high watermarks is not known: a delayed fetch reads again.
_ANY_SIZE = _END_OF_TIME = 1 << 62


READ_COMMITTED = 1
"""The isolation level of a request that reads only committed transactions (KIP-98)."""


class FetchIsolation(Enum):
    """The limit up to which a fetch reads (Kafka's ``FetchIsolation``)."""

    LOG_END = auto()
    """Replicas."""
    HIGH_WATERMARK = auto()
    """Consumers."""
    COMMITTED = auto()
    """Consumers with isolation level read_committed: up to the last stable offset."""


# A lookup in an enum costs as much as a call, and each fetch would make three.
_LOG_END, _COMMITTED = FetchIsolation.LOG_END, FetchIsolation.COMMITTED


class WaitingFetch(Protocol):
    """A delayed fetch as a partition sees it: it counts bytes, and can be interrupted."""

    def appended(self, size_bytes: int) -> None: ...

    def interrupt(self) -> None: ...


class WaitingProduce(Protocol):
    """A produce request that waits until the high watermark has passed its records."""

    def resolve(self, partition: Partition, error: ErrorCode) -> None: ...


class ProposalSender(Protocol):
    """Sends proposed ISRs to the controller."""

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send a proposal. It replaces an earlier one of the same partition."""


class LeaderParts(Protocol):
    """What the leader of a partition with other replicas needs from the cluster."""

    @property
    def isr_proposals(self) -> ProposalSender: ...

    @property
    def brokers(self) -> Callable[[], Brokers]:
        """Returns the registered brokers of the newest image."""

    @property
    def clock(self) -> Clock:
        """The clock for lag times."""

    @property
    def replica_lag_time_max_ms(self) -> int:
        """A follower that has not caught up for longer leaves the ISR."""


class ColdRead(Exception):
    """The signal that a read would have to wait for the disk.

    Attributes:
        read: Reads from the disk, on any thread.
    """

    def __init__(self, read: Callable[[], LogReadInfo]) -> None:
        super().__init__()
        self.read = read


@dataclass(slots=True)
class FetchPartitionData:
    """The data of one partition in a fetch, or its error.

    Attributes:
        region: The records. None when there are none, or when the reader's log diverged.
        aborted_transactions: (producer id, first offset) of the aborted transactions that overlap
            the region, for `FetchIsolation.COMMITTED` only.
        diverging_epoch: The largest epoch that the reader's log and this one may share (KIP-320).
        current_leader: The leader's id and epoch, set with an error that says that this broker does
            not lead the partition in the requested epoch.
    """

    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    region: FileRegion | None = None
    aborted_transactions: list[tuple[int, int]] | None = None
    diverging_epoch: int = UNDEFINED_EPOCH
    diverging_end_offset: int = UNDEFINED_EPOCH_OFFSET
    error: ErrorCode = ErrorCode.NONE
    current_leader: tuple[int, int] | None = None


class Partition:
    """One replica of this broker: leader or follower. Owned by `ReplicaManager`.

    Used on the event loop only.

    Args:
        topic_partition: The name of the topic, and the number of the partition.
        topic_id: The id of the topic.
        log: The log, in which the fetcher of a follower appends.
        parts: The parts of a cluster. None in a single broker.
    """

    __slots__ = (
        "_committed_fetches",
        "_fetches",
        "_parts",
        "_produce_count",
        "_produces",
        "_stable_offset_seen",
        "_when_truncated",
        "appends_as_received",
        "commits_on_append",
        "error",
        "flush_due_offset",
        "internal",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "needs_recompression",
        "needs_record_validation",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: UnifiedLog,
        parts: LeaderParts | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self._parts = parts
        # The change of leadership that waits for the end of a truncation.
        self._when_truncated: Callable[[], None] | None = None
        self.leader: int = NO_LEADER
        # Below every epoch, so that epoch 0 of a new topic counts as a new epoch.
        self.leader_epoch = UNDEFINED_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        # The reason why this broker cannot serve the partition; NONE while it leads the partition.
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The offset up to which a flush was requested and has not ended; 0 when no flush is due.
        self.flush_due_offset = 0
        # Dictionaries, because the order of a set depends on addresses.
        self._fetches: dict[WaitingFetch, None] = {}
        # Fetches of committed records. They wait for the last stable offset to advance.
        self._committed_fetches: dict[WaitingFetch, None] = {}
        self._stable_offset_seen = 0
        # A heap ordered by the required high watermark, with a count as the tie-breaker.
        self._produces: list[tuple[int, int, WaitingProduce]] = []
        self._produce_count = 0
        self.internal = topic_partition.topic in INTERNAL_TOPICS
        # Each record of a client's batch is validated: internal and compacted topics.
        self.needs_record_validation = False
        self.needs_recompression = False
        # Neither of the two. A single attribute, because the produce path reads it.
        self.appends_as_received = False
        # Batches are appended unopened and the append commits them: a flush is never due, and no
        # other replica has to confirm.
        self.commits_on_append = False
        self.config_changed()

    def config_changed(self) -> None:
        """Derive the properties of appends from the log's configs, whenever these change."""
        config = self.log.config
        self.needs_record_validation = self.internal or config.cleanup_compact
        self.needs_recompression = config.compression_type != "producer"
        self.appends_as_received = not self.needs_record_validation and not self.needs_recompression
        self.commits_on_append = (
            self.appends_as_received
            and config.flush_messages == LONG_MAX
            and len(self.replicas) <= 1
        )

    def become_leader(self, image: PartitionImage) -> None:
        """Become the leader, or update the replicas and the ISR of an epoch that this broker leads.

        A new epoch is added to the log's epoch cache before any request is served. For an empty
        log this is postponed to its first record, because many topics may be created at the same
        time. If the epoch is unchanged, the high watermark, the epoch cache and the delayed
        operations stay unchanged: records that wait for a flush still need it. An older epoch is
        ignored. If the unflushed records that recovery found reach flush.messages, the caller
        starts a flush.
        """
        leader_epoch = image.leader_epoch
        if leader_epoch < self.leader_epoch:
            return
        is_new_epoch = leader_epoch > self.leader_epoch or self.error is not ErrorCode.NONE
        if is_new_epoch and self.log.log_end_offset:
            self.log.begin_leader_epoch(leader_epoch)
        self.leader = image.leader
        self.leader_epoch = leader_epoch
        self.replicas = image.replicas
        self.isr = image.isr
        self.error = ErrorCode.NONE
        self.config_changed()
        if is_new_epoch and not self.flush_due_offset:
            if self.log.unflushed_messages >= self.log.config.flush_messages:
                # Even a duplicate of a recovered record is acknowledged only after the fsync.
                self.flush_due_offset = self.log.log_end_offset
            else:
                self._advance_high_watermark(self.log.log_end_offset)

    def become_follower(self, image: PartitionImage) -> bool:
        """Stop leading the partition, which the image's leader (-1: none) leads.

        An image of an older leader epoch is ignored.

        Returns:
            Whether the fetcher has to fetch from another leader, or in another leader epoch.
        """
        if image.leader_epoch < self.leader_epoch:
            return False
        is_new = (image.leader, image.leader_epoch) != (self.leader, self.leader_epoch)
        was_leader = self.error is not ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.replicas, self.isr = image.replicas, image.isr
        if is_new or was_leader:
            self.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return is_new

    # --- the calls of a follower's fetcher ---

    def follower_appended(self, leader_high_watermark: int, leader_log_start_offset: int) -> None:
        """Take over the leader's high watermark and log start, after an append to the log.

        The high watermark of a follower is at most its log end (rule R8).
        """
        log = self.log
        self._advance_high_watermark(min(leader_high_watermark, log.log_end_offset))
        if leader_log_start_offset > log.log_start_offset:
            log.raise_log_start(min(leader_log_start_offset, log.high_watermark))
            self.log_start_offset_raised()

    def storage_failed(self) -> None:
        """Stop the partition, because its log cannot be written."""
        self.stop(ErrorCode.KAFKA_STORAGE_ERROR)

    def truncation_ended(self) -> None:
        """Perform the change of leadership that waited for the end of a truncation."""
        change, self._when_truncated = self._when_truncated, None
        if change is not None and not self.log.is_truncating:
            change()

    def when_truncated(self, change: Callable[[], None]) -> None:
        """Call `change` when the truncation of the log has ended. It replaces an earlier one."""
        self._when_truncated = change

    # --- the end ---

    def stop(self, error: ErrorCode) -> None:
        """Stop serving: the partition is deleted, another broker leads it, or its disk failed.

        Delayed produce requests fail with `error`. Delayed fetches read again.
        """
        self.error = error
        produces, self._produces = self._produces, []
        for _, _, produce in sorted(produces, key=lambda each: each[:2]):
            produce.resolve(self, error)
        self._interrupt_fetches()

    # --- delayed operations ---

    def watch_fetch(self, fetch: WaitingFetch, isolation: FetchIsolation) -> None:
        """Report to `fetch` the bytes that become readable, and other reasons to read again."""
        if isolation is FetchIsolation.COMMITTED:
            self._stable_offset_seen = self.log.last_stable_offset
            self._committed_fetches[fetch] = None
        else:
            self._fetches[fetch] = None

    def unwatch_fetch(self, fetch: WaitingFetch) -> None:
        self._fetches.pop(fetch, None)
        self._committed_fetches.pop(fetch, None)

    def watch_produce(self, produce: WaitingProduce, required_offset: int) -> None:
        """Resolve `produce` when the high watermark reaches `required_offset`, or on an error."""
        self._produce_count += 1
        heappush(self._produces, (required_offset, self._produce_count, produce))

    def unwatch_produce(self, produce: WaitingProduce) -> None:
        self._produces = [each for each in self._produces if each[2] is not produce]
        heapify(self._produces)

    def _interrupt_fetches(self) -> None:
        for fetch in (*self._fetches, *self._committed_fetches):
            fetch.interrupt()

    # --- appends ---

    def append(
        self, batch: Writable, acks: int, now_ms: int, origin: Origin | None = None
    ) -> LogAppendInfo:
        """Append one batch as leader, synchronously. Commit it unless a flush is due.

        Args:
            origin: Further properties of a batch that is transactional or written by the broker.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS (nothing is
                appended then), or an error of the log's validation.
        """
        if self.error:
            raise KafkaError(self.error)
        log = self.log
        if acks == ACKS_ALL and len(self.isr) < log.config.min_insync_replicas:
            self._check_min_isr()
        info = log.append_as_leader(
            batch,
            self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            commit=not self.flush_due_offset,
        )
        if info.must_flush:
            # A duplicate may precede records that wait for the same flush.
            self.flush_due_offset = max(self.flush_due_offset, info.last_offset + 1)
        elif not self.flush_due_offset and not info.duplicate:
            if self._fetches:
                size_bytes = len(batch)
                for fetch in tuple(self._fetches):
                    fetch.appended(size_bytes)
            if self._committed_fetches:
                self._stable_offset_moved(info.first_offset, len(batch))
        return info

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """Return the guard that the first batch of a producer's transaction needs for its append.

        The guard is valid after the transaction coordinator has confirmed the transaction. Return
        None if the transaction is already open in this partition.

        Args:
            epoch_bump: Whether each transaction of the producer has its own epoch.

        Raises:
            KafkaError: This broker does not lead the partition.
        """
        if self.error:
            raise KafkaError(self.error)
        producers = self.log.producers
        if producers.has_ongoing(producer_id, epoch):
            return None
        return producers.verifications.start(producer_id, epoch, sequence, now_ms, epoch_bump)

    def _stable_offset_moved(self, first_offset: int, size_bytes: int) -> None:
        """Report to the fetches of committed records how many more bytes they can read.

        `size_bytes` were appended at `first_offset`. If everything before was already stable, these
        are the readable bytes. If earlier records became stable as well, the size is not known.
        """
        stable_offset = self.log.last_stable_offset
        seen, self._stable_offset_seen = self._stable_offset_seen, stable_offset
        if stable_offset <= seen:
            return
        if seen < first_offset:
            size_bytes = _ANY_SIZE
        for fetch in tuple(self._committed_fetches):
            fetch.appended(size_bytes)

    def _check_min_isr(self) -> None:
        """Raise NOT_ENOUGH_REPLICAS. The minimum is at most the number of replicas."""
        needed = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, and "
                f"min.insync.replicas needs {needed}.",
            )

    def flushed(self, offset: int) -> bool:
        """Handle the end of a flush up to `offset`. Return True when another flush is due."""
        if self.flush_due_offset > offset:
            self._advance_high_watermark(offset)
            return True
        self.flush_due_offset = 0
        self._advance_high_watermark(self.log.log_end_offset)
        # A completed operation may have appended further records.
        return self.flush_due_offset > 0

    def _advance_high_watermark(self, offset: int) -> None:
        """Commit all records below `offset` and complete the operations that wait for it.

        The high watermark never decreases.
        """
        if not self.log.advance_high_watermark(offset):
            return
        while self._produces and self._produces[0][0] <= offset:
            heappop(self._produces)[2].resolve(self, ErrorCode.NONE)
        for fetch in tuple(self._fetches):
            fetch.appended(_ANY_SIZE)
        if self._committed_fetches:
            self._stable_offset_moved(_END_OF_TIME, _ANY_SIZE)

    # --- reads ---

    def check_leader_epoch(self, leader_epoch: int) -> None:
        """Check that this broker leads the partition in `leader_epoch`, or that it is -1 (not set).

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, or the partition's error.
        """
        if self.error:
            raise KafkaError(self.error)
        if leader_epoch == self.leader_epoch or leader_epoch == UNDEFINED_EPOCH:
            return
        if leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def read(  # noqa: C901 - calls are what this path costs
        self,
        offset: int,
        max_bytes: int,
        min_one_message: bool,
        isolation: FetchIsolation,
        leader_epoch: int = UNDEFINED_EPOCH,
        last_fetched_epoch: int = UNDEFINED_EPOCH,
        cold_result: Callable[[], LogReadInfo] | None = None,
    ) -> FetchPartitionData:
        """Read batches from `offset` up to the offset that `isolation` allows.

        `last_fetched_epoch` is the epoch of the reader's last record. If this log does not agree,
        the result has the end of the largest epoch that both logs may share (KIP-320).

        Args:
            cold_result: Returns or raises the outcome of `ColdRead.read`, after that was run.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, or an error of the leader epoch.
            ColdRead: The disk would have to be read.
        """
        log = self.log
        # Taken before the read, so that no response reports a limit that the read did not have.
        high_watermark = stable_offset = max_offset = log.high_watermark
        producers = log.producers
        if producers.ongoing or producers.unreplicated:
            stable_offset = log.stable_offset(high_watermark)
        committed = isolation is _COMMITTED
        if committed:
            max_offset = stable_offset
        elif isolation is _LOG_END:
            max_offset = log.log_end_offset
        data = FetchPartitionData(high_watermark, stable_offset, log.log_start_offset)
        if self.error or leader_epoch >= 0:
            self.check_leader_epoch(leader_epoch)
        if last_fetched_epoch >= 0 and self._diverges(offset, last_fetched_epoch, data):
            return data
        try:
            if cold_result is None:
                info = log.read_resident(
                    offset, max_bytes, max_offset, min_one_message, with_aborted=committed
                )
            else:
                info = cold_result()
                if not log.confirm(offset, info):
                    raise NotResident
        except NotResident:
            limits = (offset, max_bytes, max_offset, min_one_message)
            raise ColdRead(partial(log.read, *limits, with_aborted=committed)) from None
        region = info.region
        if region is not None and info.first_batch_cut:
            # A reader cannot use a part of a batch. Kafka sends nothing in this case.
            region.close()
            region = None
        elif committed:
            data.aborted_transactions = info.aborted or []
        data.region = region
        return data

    def end_offset(self, isolation: FetchIsolation) -> int:
        """Return the offset at which a read with this isolation ends."""
        if isolation is FetchIsolation.LOG_END:
            return self.log.log_end_offset
        if isolation is FetchIsolation.COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    def _diverges(self, offset: int, last_fetched_epoch: int, data: FetchPartitionData) -> bool:
        """Return whether the reader's log diverged.

        If so, `data` gets the end of the common part.
        """
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_EPOCH_OFFSET:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the end of epoch {last_fetched_epoch} of {self.topic_partition} is not known",
            )
        if offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < offset:
            data.diverging_epoch, data.diverging_end_offset = epoch, end_offset
            return True
        return False

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end offset), or (-1, -1) when it is not known."""
        log = self.log
        if epoch == self.leader_epoch or (
            not log.log_end_offset and 0 <= epoch < self.leader_epoch
        ):
            return epoch, log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    @property
    def earliest_epoch(self) -> int:
        """The epoch of the first record, existing or future; -1 when it is not known."""
        if not self.log.log_end_offset:
            return self.leader_epoch
        return self.log.epochs.epoch_for(self.log.log_start_offset)

    def log_start_offset_raised(self) -> None:
        """Interrupt delayed fetches, because their offsets may be below the new log start."""
        self._interrupt_fetches()
