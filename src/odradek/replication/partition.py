"""One partition on this broker: who leads it, what is committed, and who waits for it to grow.

No files, no event loop, no clock: the log does the first, and those who wait are told by a call.
The rules are Kafka's (``kafka.cluster.Partition``): acks=all needs min.insync.replicas before
anything is appended; consumers see records below the high watermark only; a request that names a
leader epoch must name ours.

On a single node the in-sync replicas are this broker, so the high watermark follows the log's
end: at once, or, when the topic's flush.messages asks for it, after the flush that covers the
records. While such a flush is due the high watermark stays behind it, so that no consumer reads
what may still be lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.config.log_config import LONG_MAX
from odradek.errors import ErrorCode, KafkaError
from odradek.log.residency import NotResident

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.ids import TopicPartition, Uuid
    from odradek.log.state.verification import Origin, VerificationGuard
    from odradek.log.unified_log import LogAppendInfo, LogReadInfo, UnifiedLog
    from odradek.records.region import FileRegion

ACKS_ALL = -1
ACKS_LEADER = 1
NO_LEADER = -1
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1
# The bytes between two high watermarks are not counted: those who wait look for themselves.
_WAKE_ANYBODY = _END_OF_TIME = 1 << 62


class FetchWaiter(Protocol):
    """Somebody who waits for bytes of a partition, or for a reason to wait no longer."""

    def appended(self, size_bytes: int) -> None: ...

    def wake(self) -> None: ...


class ProduceWaiter(Protocol):
    """Somebody who waits until the high watermark has passed what was appended."""

    def committed(self, partition: Partition) -> None: ...

    def failed(self, partition: Partition, error: ErrorCode) -> None: ...


class PartitionRead(NamedTuple):
    """What a read found: a region (None when there is nothing), or where the reader's log
    diverged. `info` is what the log said, None when it was not read.
    """

    region: FileRegion | None
    diverging_epoch: int = UNDEFINED_EPOCH
    diverging_end_offset: int = UNDEFINED_EPOCH_OFFSET
    info: LogReadInfo | None = None


class Partition:
    """Leader state of one partition. Owned by `ReplicaManager`; used on the event loop only."""

    __slots__ = (
        "error",
        "fetch_waiters",
        "flush_due_offset",
        "internal",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "opened",
        "plain",
        "produce_waiters",
        "prompt",
        "recompressed",
        "replicas",
        "stable_offset_told",
        "stable_waiters",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid, log: UnifiedLog) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader = NO_LEADER
        # Below every epoch: a new topic begins with epoch 0, which must count as a new one here.
        self.leader_epoch = UNDEFINED_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        # Why this broker cannot serve the partition, or NONE while it leads it.
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The offset up to which a flush has been asked for and has not ended; 0 when none is due.
        self.flush_due_offset = 0
        self.fetch_waiters: set[FetchWaiter] = set()
        # Readers of committed records: they are told when the last stable offset moves.
        self.stable_waiters: set[FetchWaiter] = set()
        self.stable_offset_told = 0
        self.produce_waiters: list[tuple[int, ProduceWaiter]] = []
        self.internal = topic_partition.topic in INTERNAL_TOPICS
        # What clients send is looked at record by record: internal and compacted topics.
        self.opened = False
        self.recompressed = False
        # Neither opened nor recompressed: one look for the produce path.
        self.plain = False
        # Plain, and what is appended is committed at once: no flush is ever due, no replica waited
        # for.
        self.prompt = False
        self.config_changed()

    def config_changed(self) -> None:
        """Takes over what produce must know of the log's configs; called when they were changed."""
        config = self.log.config
        self.opened = self.internal or config.cleanup_compact
        self.recompressed = config.compression_type != "producer"
        self.plain = not self.opened and not self.recompressed
        self.prompt = self.plain and config.flush_messages == LONG_MAX and len(self.replicas) <= 1

    def become_leader(
        self, leader: int, leader_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...]
    ) -> None:
        """Take over leadership, or the replicas and the ISR of an epoch that this broker leads.

        A new epoch is recorded in the log before any request is served (R6). An empty log records
        it with its first record, because topics are created by the dozen. An unchanged epoch leaves
        the high watermark, the epoch cache and the delayed operations alone: records that wait for
        a flush are still to be flushed. An older epoch is ignored.

        Raises:
            KafkaError: The epoch cannot be written.
        """
        if leader_epoch < self.leader_epoch:
            return
        is_new_epoch = leader_epoch > self.leader_epoch or self.error is not ErrorCode.NONE
        if is_new_epoch and self.log.log_end_offset:
            self.log.begin_leader_epoch(leader_epoch)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.error = ErrorCode.NONE
        self.config_changed()
        if is_new_epoch and not self.flush_due_offset:
            self._advance_high_watermark(self.log.log_end_offset)

    def become_follower(self, leader: int, leader_epoch: int) -> None:
        """Stop serving: `leader` (-1: no broker) leads the partition in `leader_epoch`."""
        self.leader = leader
        self.leader_epoch = max(leader_epoch, self.leader_epoch)
        self.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def stop(self, error: ErrorCode) -> None:
        """The partition is deleted, led elsewhere, or its disk failed: all who wait hear
        `error`.
        """
        self.error = error
        waiters, self.produce_waiters = self.produce_waiters, []
        for _, waiter in waiters:
            waiter.failed(self, error)
        self._wake_all()

    def append(
        self, batch: memoryview, acks: int, now_ms: int, origin: Origin | None = None
    ) -> LogAppendInfo:
        """Appends one batch as leader, synchronously; the high watermark follows unless a flush
        is due. `origin` says more of a batch that is transactional or the broker's own.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS
        (nothing is appended then), and what the log's validation finds."""
        if self.error:
            raise KafkaError(self.error)
        log = self.log
        if acks == ACKS_ALL and len(self.isr) < log.config.min_insync_replicas:
            self._check_min_isr()
        info = log.append_as_leader(batch, self.leader_epoch, now_ms=now_ms, origin=origin)
        if info.must_flush:
            self.flush_due_offset = info.last_offset + 1
        elif not self.flush_due_offset and not info.duplicate:
            log.high_watermark = info.last_offset + 1
            if self.fetch_waiters:
                size_bytes = len(batch)
                for waiter in tuple(self.fetch_waiters):
                    waiter.appended(size_bytes)
            if self.stable_waiters:
                self._tell_stable_waiters(info.first_offset, len(batch))
        return info

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, epoch_bump: bool = False
    ) -> VerificationGuard | None:
        """The guard with which the producer's first batch of a transaction may be appended, once
        the coordinator has vouched for it; None when the transaction is open here already.

        `epoch_bump`: each transaction of the producer has its own epoch. Raises KafkaError when
        this broker does not lead the partition.
        """
        if self.error:
            raise KafkaError(self.error)
        producers = self.log.producers
        if producers.has_ongoing(producer_id, epoch):
            return None
        return producers.verifications.start(producer_id, epoch, sequence, now_ms, epoch_bump)

    def _tell_stable_waiters(self, first_offset: int, size_bytes: int) -> None:
        """Tells the readers of committed records that there may be more of them.

        `size_bytes` were appended at `first_offset`. They are what can be read now when all before
        them was stable already; when more became stable at once, nobody knows how much that is.
        """
        stable_offset = self.log.last_stable_offset
        told, self.stable_offset_told = self.stable_offset_told, stable_offset
        if stable_offset <= told:
            return
        if told < first_offset:
            size_bytes = _WAKE_ANYBODY
        for waiter in tuple(self.stable_waiters):
            waiter.appended(size_bytes)

    def wait_stable(self, waiter: FetchWaiter) -> None:
        """`waiter` has read up to the last stable offset and waits for it to move."""
        self.stable_offset_told = self.log.last_stable_offset
        self.stable_waiters.add(waiter)

    def _wake_all(self) -> None:
        for waiter in (*self.fetch_waiters, *self.stable_waiters):
            waiter.wake()

    def _check_min_isr(self) -> None:
        """R2: the effective minimum is never more than there are replicas."""
        needed = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, {needed} needed",
            )

    def flushed(self, offset: int) -> bool:
        """A flush that covers all below `offset` has ended. True when another one is already
        due.
        """
        if self.flush_due_offset > offset:
            self._advance_high_watermark(offset)
            return True
        self.flush_due_offset = 0
        self._advance_high_watermark(self.log.log_end_offset)
        return False

    def _advance_high_watermark(self, offset: int) -> None:
        """Commits everything below `offset` and tells those who wait for it; it never goes back."""
        log = self.log
        size_bytes = 0
        if offset > log.high_watermark:
            log.high_watermark = offset
            size_bytes = _WAKE_ANYBODY
        waiting = self.produce_waiters
        if waiting:
            self.produce_waiters = [entry for entry in waiting if entry[0] > log.high_watermark]
            for required_offset, waiter in waiting:
                if required_offset <= log.high_watermark:
                    waiter.committed(self)
        if size_bytes:
            for fetch in tuple(self.fetch_waiters):
                fetch.appended(size_bytes)
            if self.stable_waiters:
                self._tell_stable_waiters(_END_OF_TIME, size_bytes)

    def check_leader_epoch(self, leader_epoch: int) -> None:
        """Raises unless this broker leads and `leader_epoch` is the current one or -1 (not
        given).
        """
        if self.error:
            raise KafkaError(self.error)
        if leader_epoch == self.leader_epoch or leader_epoch == UNDEFINED_EPOCH:
            return
        if leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def read(
        self,
        offset: int,
        max_bytes: int,
        min_one_message: bool,
        leader_epoch: int = UNDEFINED_EPOCH,
        last_fetched_epoch: int = UNDEFINED_EPOCH,
        max_offset: int = _END_OF_TIME,
        with_aborted: bool = False,
        found: Callable[[], LogReadInfo] | None = None,
    ) -> PartitionRead:
        """Committed batches from `offset` on, below `max_offset`; see `UnifiedLog.read`. Raises
        KafkaError, and NotResident where the disk would have to be read: then the same call is
        repeated with `found`, which returns (or raises) the outcome of `UnifiedLog.read` on a
        thread.

        With `last_fetched_epoch` the reader says which epoch its last record is of; where our log
        does not agree, the answer is the end of the largest epoch that both may share (KIP-320).
        """
        if self.error or leader_epoch >= 0:
            self.check_leader_epoch(leader_epoch)
        if last_fetched_epoch >= 0:
            diverging = self._diverging(offset, last_fetched_epoch)
            if diverging is not None:
                return diverging
        log = self.log
        if max_offset > log.high_watermark:
            max_offset = log.high_watermark
        if found is None:
            info = log.read_resident(
                offset, max_bytes, max_offset, min_one_message, with_aborted=with_aborted
            )
        else:
            info = found()
            if not log.confirm(offset, info):
                raise NotResident
        if info.first_batch_cut and info.region is not None:
            # Less than a batch is of no use to anybody; Kafka sends nothing then.
            info.region.close()
            return PartitionRead(None)
        return PartitionRead(info.region, info=info)

    def _diverging(self, offset: int, last_fetched_epoch: int) -> PartitionRead | None:
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_EPOCH_OFFSET:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the end of epoch {last_fetched_epoch} of {self.topic_partition} is not known",
            )
        if offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < offset:
            return PartitionRead(None, epoch, end_offset)
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset), or (-1, -1) when it is not known (F3)."""
        log = self.log
        if epoch == self.leader_epoch or (
            not log.log_end_offset and 0 <= epoch < self.leader_epoch
        ):
            return epoch, log.log_end_offset
        return log.end_offset_for_epoch(epoch)

    @property
    def earliest_epoch(self) -> int:
        """The epoch in which the first record was, or will be, written; -1 when it is not known."""
        if not self.log.log_end_offset:
            return self.leader_epoch
        return self.log.epochs.epoch_for(self.log.log_start_offset)

    def log_start_offset_raised(self) -> None:
        """Records were deleted: fetches that wait below the new start find it out by looking
        again.
        """
        self._wake_all()
