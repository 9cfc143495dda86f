"""The partitions of this broker: updated from the metadata image, appended to, read, flushed.

`apply` is called with each change of the metadata, and visits what changed. It creates the logs of
new partitions and takes over leadership. It deletes the logs of topics whose deletion is recorded
(`deletions`), and passes changed topic configs on to the logs.

All methods run on the event loop. The executor runs only the calls that wait for the disk: reads,
the sync of log directories with deleted logs, and fsync (`partition_flushes`). A flush that fails
takes the log directory offline and is not repeated: after a failed fsync the page cache may report
data as clean that never reached the disk.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName, TopicPartition, Uuid, uuid_to_string
from odradek.log.state.leader_epochs import UNDEFINED_EPOCH
from odradek.log.state.verification import NO_GUARD, Origin, VerificationGuard
from odradek.metadata.image import NO_LEADER, MetadataImage
from odradek.records.batch import LOW_ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from odradek.records.control import EndTransactionMarker, build_marker
from odradek.replication.delayed_fetch import (
    CONSUMER,
    REPLICA_VERIFICATION,
    FetchParams,
    FetchTarget,
    fetch,
)
from odradek.replication.delayed_produce import (
    DelayedProduce,
    HighWatermarkWait,
)
from odradek.replication.deletions import LOGS_DELETED_A_SLICE, TopicDeletions
from odradek.replication.fetch_data import FetchPartitionData
from odradek.replication.offset_lookup import OffsetLookup
from odradek.replication.partition import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Partition
from odradek.replication.partition_flushes import PartitionFlushes
from odradek.replication.purgatory import Deadlines, Purgatory
from odradek.replication.record_append import AppendEntry, AppendResult, RecordAppend
from odradek.replication.record_deletions import RecordDeletions
from odradek.results import PendingResult, Result
from odradek.slicing import ELEMENTS_PER_SLICE, end_slice, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping, Sequence
    from concurrent.futures import Executor

    from odradek.config.log_config import LogConfig
    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timers
    from odradek.log.directories.log_manager import LogManager
    from odradek.log.log_append_info import LogAppendInfo
    from odradek.log.log_dir import LogDir
    from odradek.log.log_read import LogReadInfo
    from odradek.log.state.producer_state_manager import ProducerEntry
    from odradek.log.unified_log import UnifiedLog
    from odradek.metadata.delta import MetadataDelta, TopicDelta
    from odradek.metadata.image import PartitionImage, TopicImage
    from odradek.offloading import WorkRunner
    from odradek.replication.fetch_data import FetchIsolation
    from odradek.replication.follower_fetch import FollowerData
    from odradek.replication.follower_news import FollowerNews
    from odradek.replication.replication_parts import ReplicationParts

VALID_ACKS = (ACKS_NONE, ACKS_LEADER, ACKS_ALL)
PARTITIONS_APPLIED_A_SLICE = 25
"""Changed partitions that are applied in one time slice. A new one costs some 30 microseconds."""

R = TypeVar("R")

logger = logging.getLogger(__name__)


class ReplicaManager:
    """Owner of all `Partition`s of this broker. Used on the event loop only."""

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        clock: Clock,
        timers: Timers,
        executor: Executor,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        loop: asyncio.AbstractEventLoop,
        decompression: WorkRunner,
        deletions_finished: Callable[[Collection[Uuid]], None] = lambda _: None,
        replication: ReplicationParts | None = None,
    ) -> None:
        self._node_id = node_id
        self._log_manager = log_manager
        self.clock = clock
        self._executor = executor
        self._log_config = log_config
        self._loop = loop
        self.decompression = decompression
        self._replication = replication
        # Changes for the fetchers, which are passed on at the end of a time slice.
        self._fetcher_changes = None if replication is None else replication.fetcher_changes()
        # Increased by each change of a partition's existence, leadership or configs. Caches that
        # were filled in an older generation must not be used (`broker.requests.repeated_produce`,
        # `broker.requests.repeated_fetch`).
        self.generation = 0
        # The key of a lookup may be a plain (topic, partition) tuple: it equals the
        # TopicPartition.
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._partitions_by_id: dict[tuple[Uuid, int], Partition] = {}
        self._topic_ids: set[Uuid] = set()
        # The newest image that was applied, for the leaders of partitions on other brokers.
        self._image = MetadataImage()
        self.fetches = Purgatory(loop, timers)
        self._deadlines = Deadlines(clock, timers)
        self._flushes = PartitionFlushes(executor, loop, timers, self._fail_partition)
        self._record_deletions = RecordDeletions(self._deadlines)
        self._deletions = TopicDeletions(log_manager, executor, loop, timers, deletions_finished)
        self._leadership_changed: Callable[[TopicPartition], object] = lambda _: None

    # --- metadata ---

    def on_leadership(self, changed: Callable[[TopicPartition], object]) -> None:
        """Call `changed` with each internal partition that this broker begins or ends to lead.

        `led_epoch` then returns its leader epoch. Repeated calls are possible.
        """
        self._leadership_changed = changed

    def _report_leadership(self, partition: Partition) -> None:
        if partition.internal:
            self._leadership_changed(partition.topic_partition)

    def apply(
        self, delta: MetadataDelta, old_image: MetadataImage, new_image: MetadataImage
    ) -> Generator[None, None, None]:
        """Create, update and remove the partitions that a delta changes, in time slices.

        Between slices a new partition may not exist yet, and a removed one may still exist. Clients
        try again, as they do in a cluster.
        """
        try:
            for _ in self._applying(delta, old_image, new_image):
                self._update_fetchers()
                yield
        finally:
            self._update_fetchers()

    def _applying(
        self, delta: MetadataDelta, old_image: MetadataImage, new_image: MetadataImage
    ) -> Generator[None, None, None]:
        is_start = not old_image.offset
        if is_start:
            yield from self._deletions.settle_conflicts(new_image)
            yield from self._deletions.finish_recorded(new_image.deletions)
        yield from self._remove_topics(delta, new_image)
        if delta.brokers.changed:
            yield from self._record_deletions.brokers_changed()
        # Before the partitions: the high watermark must not advance with a new ISR and an earlier
        # min.insync.replicas. The controller chose the ELR with the new value (KIP-966). A deposed
        # leader stops first: it must not commit records with an earlier ISR and a lower minimum.
        yield from self._apply_changed_configs(delta, new_image)
        left = PARTITIONS_APPLIED_A_SLICE
        for changes in delta.topics.changed.values():
            for _ in self._apply_topic(changes, new_image, is_start):
                left -= 1
                if not left:
                    left = PARTITIONS_APPLIED_A_SLICE
                    yield
        self._image = new_image
        if is_start:
            yield from self._handle_unknown_logs()

    def _handle_unknown_logs(self) -> Generator[None, None, None]:
        """At the start, set the logs of unknown partitions aside, or report them."""
        if self._replication is None:
            self._deletions.report_unknown(self._partitions)
        else:
            yield from self._deletions.set_aside_unknown(self._partitions)

    def _remove_topics(
        self, delta: MetadataDelta, new_image: MetadataImage
    ) -> Generator[None, None, None]:
        """Remove the topics that are gone, and the logs of those whose deletion is recorded."""
        for removed, (topic_id, topic) in enumerate(delta.topics.removed.items(), 1):
            yield from self._remove_topic(topic, topic_id in new_image.deletions)
            if not removed % LOGS_DELETED_A_SLICE:
                yield
        # Topics that were gone before their deletion was recorded.
        recorded = {
            topic_id: deletion
            for topic_id, deletion in delta.deletions.changed.items()
            if deletion is not None
            and topic_id not in delta.topics.removed
            and delta.deletions.before(topic_id) is None
        }
        if recorded and delta.image.offset:
            yield from self._deletions.finish_recorded(recorded)

    def _apply_topic(
        self, changes: TopicDelta, new_image: MetadataImage, is_start: bool
    ) -> Generator[None, None, None]:
        """Apply the changed partitions of a topic. Yield after each of them, and at the end."""
        name, topic_id = changes.name, changes.topic_id
        log_config: LogConfig | None = None
        self._topic_ids.add(topic_id)
        for number, image in changes.partitions.items():
            key = TopicPartition(name, number)
            partition = self._partitions.get(key)
            if self._node_id in image.replicas:
                if partition is None:
                    if log_config is None:
                        log_config = self._log_config(new_image.topic_configs.get(name, {}))
                    partition = self._create(key, topic_id, log_config, is_start)
                self._apply_leadership(partition, image)
            elif partition is not None:
                self._release(partition)
            yield
        yield

    def _release(self, partition: Partition) -> None:
        """Stop a partition of which this broker is no longer a replica. Its log is kept."""
        self.generation += 1
        key = partition.topic_partition
        del self._partitions[key]
        self._partitions_by_id.pop((partition.topic_id, key.partition), None)
        partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._report_leadership(partition)
        self._unfollow(key)
        logger.warning("this broker is no longer a replica of %s: its log is kept", key)

    def _create(
        self, key: TopicPartition, topic_id: Uuid, config: LogConfig, is_start: bool
    ) -> Partition:
        log = self._log_manager.get(key)
        if log is not None and log.topic_id not in (None, topic_id):
            reason = f"it belongs to the unknown topic id {uuid_to_string(log.topic_id)}"
            self._deletions.set_aside(key, reason)
            log = None
        elif log is not None and log.has_torn_topic_id:
            # A power cut has brought back the directory of another topic, or tore a new one.
            self._deletions.set_aside(key, "its topic id is damaged and no record was flushed")
            log = None
        if log is None:
            log = self._log_manager.create(key, topic_id, config, is_new=not is_start)
        else:
            self._log_manager.assign(key)
            if log.config != config:
                log.update_config(config)
        if log.topic_id is None and not log.log_dir.offline:
            _assign_topic_id(log, topic_id)
        partition = Partition(key, topic_id, log, self._replication)
        if log.log_dir.offline or log.topic_id is None:
            partition.stop(ErrorCode.KAFKA_STORAGE_ERROR)
        self.generation += 1
        self._partitions[key] = partition
        self._partitions_by_id[topic_id, key.partition] = partition
        return partition

    def _apply_leadership(self, partition: Partition, image: PartitionImage) -> None:
        if partition.error is ErrorCode.KAFKA_STORAGE_ERROR:
            return
        self.generation += 1
        key = partition.topic_partition
        if image.leader != self._node_id:
            if partition.become_follower(image):
                self._report_leadership(partition)
                if image.leader == NO_LEADER:
                    self._unfollow(key)
                elif self._fetcher_changes is not None:
                    self._fetcher_changes.follow(partition, image.leader, image.leader_epoch)
            return
        self._unfollow(key)
        if self._replication is not None and partition.log.is_truncating:
            # The fetcher truncates the log on a thread. A leader appends to it afterwards.
            self._update_fetchers()
            change = partial(self._lead_truncated, partition, image)
            self._replication.fetchers.when_truncated(partition.log, change)
            return
        partition.become_leader(image)
        if partition.flush_due_offset:
            self.start_flush(partition)
        self._report_leadership(partition)

    def _lead_truncated(self, partition: Partition, image: PartitionImage) -> None:
        """Become the leader after a truncation, unless the partition has changed since."""
        is_current = self._partitions.get(partition.topic_partition) is partition
        if is_current and image.leader_epoch >= partition.leader_epoch:
            self._apply_leadership(partition, image)

    def _unfollow(self, key: TopicPartition) -> None:
        if self._fetcher_changes is not None:
            self._fetcher_changes.unfollow(key)

    def _update_fetchers(self) -> None:
        """Pass the changes since the last call on to the fetchers."""
        if self._fetcher_changes is not None:
            self._fetcher_changes.pass_on()

    def _update_config(self, partition: Partition, config: LogConfig) -> None:
        if partition.log.config != config:
            self.generation += 1
            partition.log.update_config(config)
            partition.config_changed()

    def _apply_changed_configs(
        self, delta: MetadataDelta, new_image: MetadataImage
    ) -> Generator[None, None, None]:
        names = dict.fromkeys(delta.topic_configs.changed)
        if delta.broker_configs.changed:
            names = {}
            for count, key in enumerate(tuple(self._partitions), 1):
                names[TopicName(key[0])] = None
                if not count % ELEMENTS_PER_SLICE:
                    yield
        left = PARTITIONS_APPLIED_A_SLICE
        for name in names:
            topic = new_image.topics_by_name.get(name)
            if topic is None:
                continue
            for _ in self._apply_configs(topic, new_image.topic_configs.get(name, {})):
                left -= 1
                if not left:
                    left = PARTITIONS_APPLIED_A_SLICE
                    yield

    def _apply_configs(
        self, topic: TopicImage, configs: Mapping[str, str]
    ) -> Generator[None, None, None]:
        """Apply the configs of a topic. Yield after each partition."""
        log_config = self._log_config(configs)
        for image in topic.partitions:
            partition = self._partitions.get((topic.name, image.partition))
            if partition is not None:
                if image.leader != self._node_id and image.leader_epoch > partition.leader_epoch:
                    self._apply_leadership(partition, image)
                self._update_config(partition, log_config)
            yield

    def _remove_topic(self, topic: TopicImage, recorded: bool) -> Generator[None, None, None]:
        """Stop the topic's partitions, and delete their logs if the deletion is recorded."""
        keys = []
        self.generation += 1
        for image in topic.partitions:
            if not (image.partition + 1) % PARTITIONS_APPLIED_A_SLICE:
                yield
            key = TopicPartition(topic.name, image.partition)
            partition = self._partitions.pop(key, None)
            self._partitions_by_id.pop((topic.topic_id, image.partition), None)
            if partition is not None:
                partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self._report_leadership(partition)
                self._unfollow(key)
                keys.append(key)
        self.generation += 1  # again: a cache that was filled between two slices is out of date
        self._update_fetchers()  # before the logs are deleted
        self._topic_ids.discard(topic.topic_id)
        if recorded:
            yield from self._deletions.delete(topic.topic_id, keys)
        else:
            self._log_manager.unassign(keys)
            logger.warning(
                "topic %s (%s) is gone from the metadata without a deletion. Its logs are kept. "
                "Remove their directories if you do not need the records",
                topic.name,
                uuid_to_string(topic.topic_id),
            )

    # --- lookups ---

    def find(self, topic: str | Uuid, partition: int) -> Partition | None:
        """Return the partition of a topic, which is identified by its name or by its id."""
        if topic.__class__ is str:
            return self._partitions.get((topic, partition))
        return self._partitions_by_id.get((topic, partition))  # type: ignore[arg-type]

    def leader_elsewhere(self, topic: str | Uuid, partition: int) -> tuple[int, int] | None:
        """Return leader and leader epoch of a partition that only other brokers have."""
        image = self._image
        found = (
            image.topics_by_name.get(TopicName(topic))
            if isinstance(topic, str)
            else image.topics_by_id.get(topic)
        )
        if found is None or not 0 <= partition < found.partition_count:
            return None
        elsewhere = found.partitions[partition]
        if self._node_id in elsewhere.replicas:
            return None
        return elsewhere.leader, elsewhere.leader_epoch

    def unknown_code(self, topic: str | Uuid, partition: int) -> ErrorCode:
        """Return the error code for a partition that `find` does not find."""
        if self.leader_elsewhere(topic, partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if isinstance(topic, str) or topic in self._topic_ids:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.UNKNOWN_TOPIC_ID

    def partition(self, topic: str, partition: int) -> Partition:
        """Return the partition.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or NOT_LEADER_OR_FOLLOWER if only other brokers
                have it.
        """
        found = self._partitions.get((topic, partition))
        if found is None:
            raise KafkaError(self.unknown_code(topic, partition))
        return found

    def log(self, topic_partition: TopicPartition) -> UnifiedLog:
        """Return the log of a partition that this broker leads.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or the partition's error.
        """
        return self._led(topic_partition, -1).log

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        """Return the epoch in which this broker leads and serves a partition, or None."""
        partition = self._partitions.get(topic_partition)
        return None if partition is None or partition.error else partition.leader_epoch

    def _led(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: int,
        replica_id: int = CONSUMER,
        *,
        or_follower: bool = False,
    ) -> Partition:
        """Return a partition that this broker leads in that epoch, or in any if it is -1.

        In a cluster, a replica gets only partitions that it is assigned to.

        Args:
            topic_partition: The partition.
            current_leader_epoch: The epoch that the client knows, or -1.
            replica_id: The replica that asks, or a negative id.
            or_follower: Whether this broker may also be a follower of the partition.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, or
                the partition's error.
        """
        partition = self.partition(*topic_partition)
        partition.check_leader_epoch(current_leader_epoch, or_follower=or_follower)
        is_replica = replica_id >= 0 and self._replication is not None
        if is_replica and replica_id not in partition.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def offset_lookup(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: int,
        timestamp: int,
        isolation: FetchIsolation,
        *,
        replica_id: int = CONSUMER,
    ) -> OffsetLookup:
        """Return the lookup of an offset, which is not begun.

        A tool that compares replicas may ask a follower.

        Args:
            topic_partition: The partition.
            current_leader_epoch: The epoch that the client knows, or -1.
            timestamp: In milliseconds, or a special timestamp of `offset_lookup`.
            isolation: The limit below which the offset must be.
            replica_id: The replica that asks, or a negative id.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, or
                the partition's error.
        """
        partition = self._led(
            topic_partition,
            current_leader_epoch,
            replica_id,
            or_follower=replica_id == REPLICA_VERIFICATION,
        )
        return OffsetLookup(partition, timestamp, isolation)

    def end_offset_for_epoch(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: int,
        epoch: int,
        *,
        replica_id: int = CONSUMER,
    ) -> tuple[int, int]:
        """Return (largest epoch <= `epoch`, its end offset), or (-1, -1) when it is not known.

        Only the leader responds. The log of a follower may end earlier, and a consumer would take
        that for a truncation.

        Raises:
            KafkaError: As for `offset_lookup`.
        """
        partition = self._led(topic_partition, current_leader_epoch, replica_id)
        return partition.end_offset_for_epoch(epoch)

    def replica_log_dir(self, topic_partition: TopicPartition) -> LogDir | None:
        """Return the log directory of this broker's replica, or None if it has no replica."""
        partition = self._partitions.get(topic_partition)
        return None if partition is None else partition.log.log_dir

    def active_producers(self, topic_partition: TopicPartition) -> Mapping[int, ProducerEntry]:
        """Return the state of the log's producers, by producer id. The next append may change it.

        Raises:
            KafkaError: As for `log`.
        """
        return self.log(topic_partition).producers.producers

    # --- fetches ---

    def fetch_records(
        self, params: FetchParams, targets: Sequence[FetchTarget]
    ) -> Result[list[FetchPartitionData]]:
        """Read the targets. The result is done when `params.min_bytes` can be read, or time is up.

        The data is in the order of the targets. The caller closes its regions. The result is
        executed after the first read. `Result.cancel` ends the delay.
        """
        return sliced(fetch(self, params, targets))

    def fetch_for_follower(
        self,
        params: FetchParams,
        news: FollowerNews,
        respond: Callable[[FollowerData], Result[R]],
    ) -> Result[R]:
        """Visit the partitions of a follower's session that have news.

        The positions of the follower change before the data is read. The result is executed then.
        When `params.min_bytes` were read, or time is up, it is the result of `respond`, which
        closes the regions of the data.
        """
        from odradek.replication.follower_fetch import fetch_for_follower

        replication = self._replication
        if replication is not None:
            registration = replication.brokers().get(news.replica_id)
            if registration is not None and registration.epoch == news.broker_epoch:
                news.last_fetch_ms = int(replication.clock.monotonic_ms())
        return sliced(fetch_for_follower(self, params, news, respond))

    def end_delayed_fetches(self) -> None:
        """Complete all delayed fetches, and delay none from now on: the broker stops."""
        self.fetches.end_all()

    # --- appends ---

    def append_records(
        self,
        entries: Sequence[AppendEntry],
        acks: int,
        timeout_ms: int,
        *,
        internal_topics_allowed: bool = False,
    ) -> Result[list[AppendResult]]:
        """Append the entries, each to another partition, and wait as `acks` requires.

        The results are in the order of the entries. The result is executed when every entry is
        appended or refused. With acks=all it is done when the records are committed, or after
        `timeout_ms`. If records make a flush due, they are acknowledged after the flush, with any
        `acks`.
        """
        append = RecordAppend(self, self.clock.time_ms(), acks, timeout_ms, internal_topics_allowed)
        if acks not in VALID_ACKS:
            error = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
            return Result([AppendResult(None, error) for _ in entries])
        if entries[1:]:
            return sliced(append.in_slices(entries, self.clock))
        for entry in entries:
            append.append(entry)
        return append.finish()

    def start_verification(
        self,
        topic: str | Uuid,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        epoch_bump: bool = False,
    ) -> tuple[TopicPartition, VerificationGuard | None]:
        """Return the guard for a transaction's first batch; see `Partition.start_verification`.

        Raises:
            KafkaError: This broker does not lead the partition.
        """
        found = self.find(topic, partition)
        if found is None:
            raise KafkaError(self.unknown_code(topic, partition))
        now_ms = self.clock.time_ms()
        guard = found.start_verification(producer_id, producer_epoch, sequence, now_ms, epoch_bump)
        return found.topic_partition, guard

    def append_internal(
        self,
        topic_partition: TopicPartition,
        batch: bytearray,
        guard: VerificationGuard = NO_GUARD,
        leader_epoch: int = UNDEFINED_EPOCH,
    ) -> Result[LogAppendInfo]:
        """Append a coordinator's batch with acks=all, without a time limit.

        The result is done when the batch is committed. It fails with the KafkaError that prevented
        the commit. A transactional batch (of offsets) needs the `guard` of `start_verification`,
        unless its transaction is already open in the partition. With a `leader_epoch` (not -1), it
        is appended only in this epoch.

        Raises:
            KafkaError: Nothing was appended: NOT_LEADER_OR_FOLLOWER in another epoch, and others.
        """
        origin = None
        if batch[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK:
            origin = Origin(guard, coordinator=True)
        return self._append_committed(topic_partition, batch, origin, leader_epoch)

    def append_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        *,
        transaction_version: int = 1,
        leader_epoch: int = UNDEFINED_EPOCH,
    ) -> Result[LogAppendInfo]:
        """End the producer's transaction in one partition, as `append_internal` appends a batch.

        A marker is also appended when the producer has no open transaction in the partition.

        Raises:
            KafkaError: Nothing was appended: INVALID_PRODUCER_EPOCH or
                TRANSACTION_COORDINATOR_FENCED for an outdated marker, UNKNOWN_TOPIC_OR_PARTITION,
                NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR.
        """
        marker = EndTransactionMarker(committed, coordinator_epoch)
        now_ms = self.clock.time_ms()
        batch = build_marker(producer_id, producer_epoch, marker, now_ms)
        origin = Origin(NO_GUARD, True, marker, transaction_version)
        return self._append_committed(topic_partition, batch, origin, leader_epoch)

    def _append_committed(
        self,
        topic_partition: TopicPartition,
        batch: bytearray,
        origin: Origin | None,
        leader_epoch: int,
    ) -> Result[LogAppendInfo]:
        partition = self._partitions.get(topic_partition)  # `find` would be one more call
        if partition is None:
            raise KafkaError(self.unknown_code(*topic_partition))
        if leader_epoch not in (UNDEFINED_EPOCH, partition.leader_epoch):
            ended = f"leader epoch {leader_epoch} of {topic_partition} has ended"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, ended)
        info = partition.append(memoryview(batch), ACKS_ALL, self.clock.time_ms(), origin)
        if partition.log.high_watermark > info.last_offset:
            return Result(info)
        committed: PendingResult[LogAppendInfo] = PendingResult()

        def finish(errors: dict[Partition, ErrorCode]) -> None:
            if errors:
                committed.fail(KafkaError(errors[partition]))
            else:
                committed.complete(info)

        self.wait_committed({partition: info.last_offset + 1}, None, finish)
        return committed

    def wait_committed(
        self,
        required_offsets: dict[Partition, int],
        timeout_ms: int | None,
        on_ready: Callable[[dict[Partition, ErrorCode]], None],
        *,
        committed: bool = True,
    ) -> None:
        """Call `on_ready(errors)` when each partition has reached its offset, or has failed.

        A partition whose high watermark has not reached its offset after `timeout_ms` has the error
        REQUEST_TIMED_OUT. Without `committed` only the flushes that are due have to cover the
        records. Flushes that are due are started.
        """
        delayed = DelayedProduce(required_offsets, on_ready, committed=committed)
        if timeout_ms is not None:
            self._deadlines.add(delayed, timeout_ms)
        for partition in tuple(required_offsets):
            if partition.flush_due_offset:
                self.start_flush(partition)
        delayed.watch()

    def await_committed(
        self, topic_partition: TopicPartition, offset: int, reached: Callable[[int], object]
    ) -> None:
        """Call `reached` with the high watermark when all records below `offset` are committed.

        It is not called if this broker stops leading the partition before.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or the partition's error.
        """
        HighWatermarkWait(offset, reached).watch(self._led(topic_partition, UNDEFINED_EPOCH))

    # --- followers ---

    def check_followers(self) -> Generator[None, None, None]:
        """Propose to remove the followers that are out of sync, in time slices (rule I1).

        The caller calls it every half of `replica.lag.time.max.ms`.
        """
        for checked, partition in enumerate(tuple(self._partitions.values()), 1):
            if partition.replication is not None:
                partition.replication.check_followers()
            if not checked % ELEMENTS_PER_SLICE:
                yield

    # --- flushing ---

    def start_flush(self, partition: Partition) -> None:
        """Flush the log in the executor. If a flush is running, it is followed by another one."""
        self._flushes.start(partition)

    async def flushes_ended(self) -> None:
        """Wait for the running flushes, but not for their repetitions, which may never succeed."""
        await self._flushes.ended()

    def _fail_partition(self, partition: Partition) -> None:
        if self._partitions.get(partition.topic_partition) is partition:
            partition.storage_failed()
            self._report_leadership(partition)
            self._unfollow(partition.topic_partition)
            self._update_fetchers()

    def failing_log_dir(self, log_dir: LogDir) -> Generator[None, None, None]:
        """Stop the partitions of an offline log directory. Requests get KAFKA_STORAGE_ERROR."""
        for count, partition in enumerate(self.partitions(), 1):
            if partition.log.log_dir is log_dir:
                self._fail_partition(partition)
            if not count % PARTITIONS_APPLIED_A_SLICE:
                yield

    def expire_lease(self) -> None:
        """Refuse appends to all partitions with other replicas, which are suspended afterwards."""
        if self._replication is not None:
            self._replication.lease.expire()

    def renew_lease(self) -> None:
        """Serve again, except for suspended partitions."""
        if self._replication is not None:
            self._replication.lease.renew()

    def suspend(self, partition: Partition) -> None:
        """Stop serving a partition that this broker leads (`Partition.suspend`)."""
        self.generation += 1
        partition.suspend()

    def resume(self, partition: Partition) -> None:
        """Serve a suspended partition again (`Partition.resume`)."""
        self.generation += 1
        partition.resume()

    def partitions(self) -> Sequence[Partition]:
        """Return all partitions of this broker."""
        return tuple(self._partitions.values())

    # --- reading ---

    @property
    def is_out_of_files(self) -> bool:
        """Whether the regions of responses hold so many files that a response should add none."""
        return self._log_manager.pool.is_crowded

    def read_in_thread(self, read: Callable[[], LogReadInfo]) -> asyncio.Future[LogReadInfo]:
        """Run `UnifiedLog.read`, which may wait for the disk, in the executor."""
        return self._loop.run_in_executor(self._executor, read)

    # --- deleting records ---

    def delete_records(
        self, topic_partition: TopicPartition, offset: int, timeout_ms: int
    ) -> Result[int]:
        """Delete the records below `offset` (-1: the high watermark). Return the low watermark.

        The result is done when all replicas that are alive have deleted the records. After
        `timeout_ms` it fails with REQUEST_TIMED_OUT.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION for an internal topic, POLICY_VIOLATION if the
                topic is only compacted, OFFSET_OUT_OF_RANGE above the high watermark, and as for
                `log`.
        """
        return self._record_deletions.delete(self._led(topic_partition, -1), offset, timeout_ms)

    # --- the end ---

    async def stop(self) -> None:
        """Complete the delayed fetches and stop all partitions.

        Running flushes are left to their threads. Their records are not acknowledged, and the log
        is closed with the records that are synced by then.
        """
        self.end_delayed_fetches()
        await self._deletions.stop()
        await self._flushes.cancel_all()
        for count, partition in enumerate(tuple(self._partitions.values()), 1):
            partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if not count % ELEMENTS_PER_SLICE:
                await end_slice()


def _assign_topic_id(log: UnifiedLog, topic_id: Uuid) -> None:
    """Write the id of a log that was opened without one. If that fails, it is not served."""
    try:
        log.assign_topic_id(topic_id)
    except KafkaError as error:
        key = log.topic_partition
        logger.warning("the topic id of %s cannot be written: %s. It is not served", key, error)
