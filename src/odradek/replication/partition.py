"""One partition on this broker: its leader, its committed offset and its delayed operations.

The partition uses no files or event loop. The log accesses the files, and delayed operations are
notified by calls. The rules are Kafka's (``kafka.cluster.Partition``). acks=all needs
min.insync.replicas before the append. Consumers read only records below the high watermark. A
leader epoch in a request must be equal to the partition's.

If this broker is the only replica, the high watermark follows the log's end. It is advanced by the
append itself, or, if the topic sets flush.messages, after the flush that covers the records. While
such a flush is due the high watermark stays behind it, so that consumers do not read records that
may still be lost.

With other replicas, a `LeaderReplication` decides on high watermark and ISR. The partition passes
events on to it. The object lives for one leader epoch, and only a broker of a cluster has one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.config.log_config import LONG_MAX
from odradek.errors import ErrorCode, KafkaError
from odradek.log.residency import NotResident
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
from odradek.metadata.image import NO_LEADER
from odradek.metadata.topics import INTERNAL_TOPICS
from odradek.replication.fetch_data import ColdRead, FetchIsolation, FetchPartitionData
from odradek.replication.waiting_operations import WaitingOperation, WaitingOperations

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.ids import BrokerId, TopicPartition, Uuid
    from odradek.log.log_append_info import LogAppendInfo
    from odradek.log.log_read import LogReadInfo
    from odradek.log.state.verification import Origin, VerificationGuard
    from odradek.log.unified_log import UnifiedLog
    from odradek.metadata.image import PartitionImage
    from odradek.records.validate import Writable
    from odradek.replication.leader_replication import LeaderLease, LeaderReplication

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
# The number of bytes between two offsets is not known: a delayed fetch reads again.
_ANY_SIZE = 1 << 62


# A lookup in an enum costs as much as a call, and each fetch would make three.
_LOG_END, _COMMITTED = FetchIsolation.LOG_END, FetchIsolation.COMMITTED


class ReplicationFactory(Protocol):
    """Creates the objects for partitions with other replicas. A single broker has none."""

    def lead(self, partition: Partition, image: PartitionImage) -> LeaderReplication:
        """Return a new object for the leader epoch of the image."""

    @property
    def lease(self) -> LeaderLease: ...


class Partition(WaitingOperations["Partition"]):
    """One replica of this broker: leader or follower. Owned by `ReplicaManager`.

    Used on the event loop only.

    Args:
        topic_partition: The name of the topic, and the number of the partition.
        topic_id: The id of the topic.
        log: The log, in which the fetcher of a follower appends.
        factory: Creates the state of other replicas. None in a single broker.
    """

    __slots__ = (
        "_factory",
        "_when_truncated",
        "acknowledges_on_append",
        "appends_as_received",
        "commits_on_append",
        "error",
        "flush_due_offset",
        "internal",
        "is_suspended",
        "isr",
        "leader",
        "leader_epoch",
        "needs_recompression",
        "needs_record_validation",
        "replicas",
        "replication",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        log: UnifiedLog,
        factory: ReplicationFactory | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        super().__init__(log)
        self._factory = factory
        # The other replicas, while this broker leads a partition that has some.
        self.replication: LeaderReplication | None = None
        self.leader: int = NO_LEADER
        # Below every epoch, so that epoch 0 of a new topic counts as a new epoch.
        self.leader_epoch = UNDEFINED_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        # The reason why this broker cannot serve the partition; NONE while it leads the partition.
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # This broker leads the partition in the metadata, but must not serve it (`suspend`).
        self.is_suspended = False
        # The offset up to which a flush was requested and has not ended; 0 when no flush is due.
        self.flush_due_offset = 0
        self.internal = topic_partition.topic in INTERNAL_TOPICS
        # Each record of a client's batch is validated: internal and compacted topics.
        self.needs_record_validation = False
        self.needs_recompression = False
        # Neither of the two. A single attribute, because the produce path reads it.
        self.appends_as_received = False
        # Batches are appended unopened, and a flush is never due: the append alone is acknowledged
        # with acks=1.
        self.acknowledges_on_append = False
        # In addition no other replica has to confirm: the append commits the batch.
        self.commits_on_append = False
        self.config_changed()

    def config_changed(self) -> None:
        """Derive the properties of appends from the log's configs, whenever these change."""
        config = self.log.config
        self.needs_record_validation = self.internal or config.cleanup_compact
        self.needs_recompression = config.compression_type != "producer"
        self.appends_as_received = not self.needs_record_validation and not self.needs_recompression
        self.acknowledges_on_append = self.appends_as_received and config.flush_messages == LONG_MAX
        self.commits_on_append = self.acknowledges_on_append and len(self.replicas) <= 1
        if self.replication is not None:
            self.replication.configure()

    def become_leader(self, image: PartitionImage) -> None:
        """Become the leader, or update the replicas and the ISR of an epoch that this broker leads.

        A new epoch is added to the log's epoch cache before any request is served. For an empty
        log this is postponed to its first record, because many topics may be created at the same
        time. If this broker has no lease, the partition begins suspended: the image may be older
        than the end of the lease. If the epoch is unchanged, the high watermark, the epoch cache
        and the delayed operations stay unchanged: records that wait for a flush still need it. An
        older epoch is ignored. If the unflushed records that recovery found reach flush.messages,
        the caller starts a flush.
        """
        leader_epoch = image.leader_epoch
        if leader_epoch < self.leader_epoch:
            return
        is_stopped = self.error is not ErrorCode.NONE and not self.is_suspended
        is_new_epoch = is_stopped or leader_epoch > self.leader_epoch
        if is_new_epoch:
            factory = self._factory if len(image.replicas) > 1 else None
            self.is_suspended = factory is not None and factory.lease.is_expired
        if is_new_epoch and self.log.log_end_offset:
            self.log.begin_leader_epoch(leader_epoch)
        self.leader = image.leader
        self.leader_epoch = leader_epoch
        self.replicas = image.replicas
        self.isr = image.isr
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER if self.is_suspended else ErrorCode.NONE
        log = self.log
        if (
            is_new_epoch
            and not self.flush_due_offset
            and log.unflushed_messages >= log.config.flush_messages
        ):
            # Even a duplicate of a recovered record is acknowledged only after the fsync.
            self.flush_due_offset = log.log_end_offset
        if self._factory is not None and len(image.replicas) > 1:
            self._lead_replicas(self._factory, image, is_new_epoch)
        else:
            is_new_epoch = is_new_epoch or self.replication is not None
            self.replication = None
            if is_new_epoch and not self.flush_due_offset:
                self.advance_high_watermark(log.log_end_offset)
        self.config_changed()

    def _lead_replicas(
        self, factory: ReplicationFactory, image: PartitionImage, is_new_epoch: bool
    ) -> None:
        replication = self.replication
        if replication is not None and not is_new_epoch:
            replication.partition_changed(image)
            for follower in self.followers:
                if follower.replica_id not in image.isr:
                    # It may have caught up before it was removed, and joins at its next visit.
                    follower.changed(self)
            return
        log = self.log
        committable_offset = log.log_end_offset
        if self.flush_due_offset:
            committable_offset = max(log.high_watermark, log.recovery_point)
        replication = self.replication = factory.lead(self, image)
        replication.flushed(committable_offset)
        for follower in tuple(self.followers):
            follower.interrupt(self)

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
        self.advance_high_watermark(min(leader_high_watermark, log.log_end_offset))
        if leader_log_start_offset > log.log_start_offset:
            log.raise_log_start(min(leader_log_start_offset, log.high_watermark))
            self.log_start_offset_raised()

    def storage_failed(self) -> None:
        """Stop the partition, because its log cannot be written."""
        self.stop(ErrorCode.KAFKA_STORAGE_ERROR)

    # --- the end ---

    def stop(self, error: ErrorCode) -> None:
        """Stop serving: the partition is deleted, another broker leads it, or its disk failed.

        Delayed produce requests fail with `error`. Delayed fetches read again. A flush is no longer
        due: another leader may truncate the records that need it. `become_leader` counts the
        unflushed records again.
        """
        self.flush_due_offset = 0
        self.replication = None
        self.is_suspended = False
        self._refuse(error)

    def suspend(self) -> None:
        """Stop serving a partition that this broker leads, until `resume` or a new leader epoch.

        The state of the other replicas is kept: a proposed ISR may be in flight. A new state for
        the same epoch would not count with the larger of the two ISRs.
        """
        self.is_suspended = True
        self._refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def resume(self) -> None:
        """Serve a suspended partition again, in the same leader epoch.

        A flush may have ended in the meantime. It counts from now on.
        """
        if self.is_suspended:
            self.is_suspended = False
            self.error = ErrorCode.NONE
            if self.replication is not None and not self.flush_due_offset:
                self.replication.flushed(self.log.log_end_offset)

    def _refuse(self, error: ErrorCode) -> None:
        self.error = error
        for waiting in (self._produces, self._flushed_produces, self._deletions):
            for operation in waiting.remove_all():
                operation.resolve(self, error)
        self._interrupt_fetches()

    # --- delayed operations ---

    def acknowledgement(self, required_offset: int, *, committed: bool) -> ErrorCode | None:
        """Return the result of a produce request, or None while it has to wait (rule R3).

        Args:
            required_offset: The offset after the last record of the request.
            committed: Whether the records have to be committed. Otherwise only a flush has to
                cover them, if one is due.
        """
        if self.error:
            return self.error
        if self.replication is not None:
            return self.replication.acknowledgement(required_offset, committed=committed)
        return ErrorCode.NONE if self.log.high_watermark >= required_offset else None

    def watch_produce(
        self, produce: WaitingOperation[Partition], required_offset: int, *, committed: bool = True
    ) -> None:
        """Resolve `produce` when `acknowledgement` returns a result."""
        is_flush = not committed and self.replication is not None
        queue = self._flushed_produces if is_flush else self._produces
        queue.add(produce, required_offset)

    @property
    def low_watermark(self) -> int:
        """The lowest log start of the replicas that are alive; -1 while one is not known."""
        if self.replication is None:
            return self.log.log_start_offset
        return self.replication.low_watermark

    def _interrupt_fetches(self) -> None:
        for fetch in (*self._fetches, *self._committed_fetches):
            fetch.interrupt()
        for follower in tuple(self.followers):
            follower.interrupt(self)

    # --- appends ---

    def append(  # noqa: C901 - calls are what this path costs
        self, batch: Writable, acks: int, now_ms: int, origin: Origin | None = None
    ) -> LogAppendInfo:
        """Append one batch as leader, synchronously.

        Without other replicas the append commits the batch, unless a flush is due.

        Args:
            origin: Further properties of a batch that is transactional or written by the broker.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS (nothing is
                appended then), or an error of the log's validation.
        """
        replication = self.replication
        if self.error:
            raise KafkaError(self.error)
        if replication is not None and replication.lease.is_expired:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        if acks == ACKS_ALL and len(self.isr) < log.config.min_insync_replicas:
            self._check_min_isr()
        info = log.append_as_leader(
            batch,
            self.leader_epoch,
            now_ms=now_ms,
            origin=origin,
            commit=replication is None and not self.flush_due_offset,
        )
        if info.must_flush:
            # A duplicate may precede records that wait for the same flush.
            self.flush_due_offset = max(self.flush_due_offset, info.last_offset + 1)
        if replication is not None:
            if not info.duplicate:
                size_bytes = len(batch)
                for follower in self.followers:
                    follower.appended(self, size_bytes)
                replication.appended(info.first_offset, size_bytes, self.flush_due_offset)
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

        `size_bytes` were committed from `first_offset` on. If everything before was already stable,
        these are the readable bytes. If earlier records became stable as well, the size is not
        known.
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
        if self.replication is not None and self.replication.state.has_enough_replicas:
            return
        needed = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, and "
                f"min.insync.replicas needs {needed}.",
            )

    def flushed(self, offset: int) -> None:
        """Handle the end of a flush up to `offset` that began in this leader epoch.

        Afterwards `flush_due_offset` says whether another flush is due.
        """
        if self.flush_due_offset <= offset:
            self.flush_due_offset = 0
            offset = self.log.log_end_offset
        if not self.error:
            self._flush_ended(offset)

    def _flush_ended(self, committable_offset: int) -> None:
        """Acknowledge the records below the offset, which need no further flush."""
        replication = self.replication
        if replication is None:
            self.advance_high_watermark(committable_offset)
        else:
            replication.flushed(committable_offset)
        while produce := self._flushed_produces.first_up_to(committable_offset):
            code = self.acknowledgement(committable_offset, committed=False)
            produce.resolve(self, ErrorCode.NONE if code is None else code)

    def advance_high_watermark(self, offset: int) -> None:
        """Commit all records below `offset` and complete the operations that wait for it.

        The high watermark never decreases.
        """
        log = self.log
        committed_offset = log.high_watermark
        if not log.advance_high_watermark(offset):
            return
        size_bytes = None
        if self.replication is not None:
            size_bytes = self.replication.take_committed(committed_offset, offset)
        if size_bytes is None:
            size_bytes = _ANY_SIZE
        for follower in self.followers:
            follower.changed(self)
        while produce := self._produces.first_up_to(offset):
            replication = self.replication
            code = None if replication is None else replication.state.acknowledgement(offset)
            produce.resolve(self, self.error if code is None else code)
        for fetch in tuple(self._fetches):
            fetch.appended(size_bytes)
        if self._committed_fetches:
            self._stable_offset_moved(committed_offset, size_bytes)

    # --- followers ---

    @property
    def is_follower(self) -> bool:
        """Whether another broker leads the partition, and this broker follows it."""
        return (
            self.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
            and self.leader != NO_LEADER
            and not self.is_suspended
        )

    def is_in_isr(self, replica_id: BrokerId) -> bool:
        return replica_id in self.isr

    def isr_committed(self, isr: tuple[BrokerId, ...]) -> None:
        """Take over the ISR that the controller has committed."""
        self.isr = isr

    def follower_moved_back(self, replica_id: BrokerId, offset: int) -> None:
        """Have the sessions of a replica with a larger offset visit the partition again."""
        for follower in self.followers:
            if follower.replica_id == replica_id:
                follower.moved_back(self, offset)

    def low_watermark_moved(self, low_watermark: int) -> None:
        """Complete the DeleteRecords requests up to the low watermark."""
        while deletion := self._deletions.first_up_to(low_watermark):
            deletion.resolve(self, ErrorCode.NONE)

    # --- reads ---

    def check_leader_epoch(self, leader_epoch: int, *, or_follower: bool = False) -> None:
        """Check that this broker leads the partition in `leader_epoch`, or that it is -1 (not set).

        The epochs are compared first (rule F1). A follower with an older epoch may be the next
        leader, and the reader has to ask it again.

        Args:
            leader_epoch: The epoch of a request.
            or_follower: Whether this broker may also follow the leader of that epoch.

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, or the partition's error.
        """
        error = self.error
        if error and error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise KafkaError(error)
        if leader_epoch != self.leader_epoch and leader_epoch != UNDEFINED_EPOCH:
            if leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if error and not (or_follower and self.is_follower):
            raise KafkaError(error)

    def read(  # noqa: C901 - calls are what this path costs
        self,
        offset: int,
        max_bytes: int,
        min_one_message: bool,
        isolation: FetchIsolation,
        leader_epoch: int = UNDEFINED_EPOCH,
        last_fetched_epoch: int = UNDEFINED_EPOCH,
        cold_result: Callable[[], LogReadInfo] | None = None,
        *,
        from_follower: bool = False,
    ) -> FetchPartitionData:
        """Read batches from `offset` up to the offset that `isolation` allows.

        `last_fetched_epoch` is the epoch of the reader's last record. If this log does not agree,
        the result has the end of the largest epoch that both logs may share (KIP-320).

        Args:
            cold_result: Returns or raises the outcome of `ColdRead.read`, after that was run.
            from_follower: Whether this broker may also be a follower of the partition.

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
            self.check_leader_epoch(leader_epoch, or_follower=from_follower)
        if last_fetched_epoch >= 0 and self.diverges(offset, last_fetched_epoch, data):
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

    def is_behind_epoch(self, isolation: FetchIsolation) -> bool:
        """Return whether a consumer may know a larger latest offset from an earlier leader (R6).

        The high watermark of a new leader is behind until the followers have fetched.
        """
        return (
            self.replication is not None
            and isolation is not FetchIsolation.LOG_END
            and not self.replication.state.is_high_watermark_of_epoch
        )

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    def diverges(self, offset: int, last_fetched_epoch: int, data: FetchPartitionData) -> bool:
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
        for fetch in (*self._fetches, *self._committed_fetches):
            fetch.interrupt()
        for follower in self.followers:
            follower.changed(self)
        if self.replication is not None:
            self.replication.log_start_raised()
