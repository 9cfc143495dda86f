"""The other replicas of a partition that this broker leads, in one leader epoch.

A `Partition` has a `LeaderReplication` while this broker leads it and it has replicas on other
brokers. `ReplicationState` decides on high watermark and ISR. This module passes the events of log,
followers and controller on to it, with the time and the registered brokers, and performs the
effects. Only a broker of a cluster imports it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.errors import ErrorCode, KafkaError
from odradek.log.follower_read import read_for_follower
from odradek.log.residency import NotResident
from odradek.metadata.image import LeaderRecoveryState, PartitionImage
from odradek.replication.fetch_data import ColdRead, FetchPartitionData, FollowerTarget
from odradek.replication.replication_state import NO_EFFECTS, Effects, ReplicationState
from odradek.replication.uncommitted_sizes import UncommittedSizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.environment.clock import Clock
    from odradek.ids import BrokerId, TopicPartition, Uuid
    from odradek.log.log_read import LogReadInfo
    from odradek.log.unified_log import UnifiedLog
    from odradek.replication.replication_state import Brokers, IsrProposal


class LedPartition(Protocol):
    """The partition as its `LeaderReplication` sees it; see `Partition`."""

    topic_partition: TopicPartition
    topic_id: Uuid
    log: UnifiedLog
    error: ErrorCode
    is_suspended: bool

    @property
    def replication(self) -> object:
        """The object of the current leader epoch, or None."""

    def check_leader_epoch(self, leader_epoch: int) -> None: ...

    def diverges(self, offset: int, last_fetched_epoch: int, data: FetchPartitionData) -> bool: ...

    def advance_high_watermark(self, offset: int) -> None: ...

    def low_watermark_moved(self, low_watermark: int) -> None: ...

    def isr_committed(self, isr: tuple[BrokerId, ...]) -> None: ...

    def log_start_offset_raised(self) -> None: ...

    def follower_moved_back(self, replica_id: BrokerId, offset: int) -> None: ...

    def last_fetch_ms(self, replicas: tuple[BrokerId, ...], visited_ms: int) -> int: ...


class Proposer(Protocol):
    """The leader of a partition, as the sender of its proposals sees it."""

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def topic_partition(self) -> TopicPartition: ...

    def is_pending(self, proposal: IsrProposal) -> bool:
        """Return whether a proposed ISR still waits for the controller or for newer metadata."""

    def proposal_succeeded(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[BrokerId, ...],
        leader_recovery_state: LeaderRecoveryState,
    ) -> None:
        """Apply the controller's response to a proposed ISR."""

    def proposal_failed(self, proposal: IsrProposal, error: ErrorCode) -> None:
        """Apply the controller's error for a proposed ISR, or a lost response."""


class ProposalSender(Protocol):
    """Sends proposed ISRs to the controller."""

    def propose(self, proposer: Proposer, proposal: IsrProposal) -> None:
        """Send a proposal. It replaces an earlier one of the same leader."""


class LeaderLease:
    """The permission to serve partitions with other replicas. It ends for all of them at once.

    `broker.leadership_lease` decides. The partitions are suspended one by one afterwards.
    """

    __slots__ = ("is_expired",)

    def __init__(self) -> None:
        self.is_expired = False

    def expire(self) -> None:
        """Acknowledge nothing from now on that no other replica has confirmed."""
        self.is_expired = True

    def renew(self) -> None:
        """Serve again, except for the partitions that are suspended."""
        self.is_expired = False


class LeaderParts(Protocol):
    """The parts of a cluster for the leader of a partition with other replicas."""

    @property
    def isr_proposals(self) -> ProposalSender: ...

    @property
    def lease(self) -> LeaderLease: ...

    @property
    def brokers(self) -> Callable[[], Brokers]:
        """Returns the registered brokers of the newest image."""

    @property
    def clock(self) -> Clock:
        """The clock for lag times."""

    @property
    def replica_lag_time_max_ms(self) -> int:
        """A follower that has not caught up for longer leaves the ISR."""


class LeaderReplication:
    """The leader's side of one replicated partition. Owned by `Partition`, for one leader epoch.

    A new epoch has a new object, so no position of an earlier epoch counts. An object of an earlier
    epoch has no effect on the partition.

    Args:
        partition: The partition, which this broker leads in the epoch of the image.
        image: The image of the partition.
        parts: The parts of a cluster.

    Attributes:
        state: The decisions.
        lease: The permission to append, and to acknowledge what only this broker has.
    """

    __slots__ = ("_log", "_partition", "_parts", "_uncommitted", "lease", "state")

    def __init__(self, partition: LedPartition, image: PartitionImage, parts: LeaderParts) -> None:
        log = self._log = partition.log
        self._partition = partition
        self._parts = parts
        self.lease = parts.lease
        self._uncommitted = UncommittedSizes()
        self.state = ReplicationState(
            image.leader,
            image,
            min_insync_replicas=log.config.min_insync_replicas,
            replica_lag_time_max_ms=parts.replica_lag_time_max_ms,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            now_ms=self._now_ms(),
        )

    def _now_ms(self) -> int:
        """Return the time for lag times."""
        return int(self._parts.clock.monotonic_ms())

    def _perform(self, effects: Effects) -> None:
        """Perform the effects of an event."""
        if effects is NO_EFFECTS:
            return
        if effects.proposal is not None:
            self._parts.isr_proposals.propose(self, effects.proposal)
        if effects.high_watermark is not None:
            self._partition.advance_high_watermark(effects.high_watermark)
        if effects.low_watermark is not None:
            self._partition.low_watermark_moved(effects.low_watermark)
        if effects.moved_back is not None:
            follower = effects.moved_back
            self._partition.follower_moved_back(follower.broker_id, follower.log_end_offset)

    # --- events of the metadata and of the leader's log ---

    def configure(self) -> None:
        """Apply changed configs of the log."""
        parts = self._parts
        effects = self.state.configure(
            self._log.config.min_insync_replicas,
            parts.replica_lag_time_max_ms,
            parts.brokers(),
            self._now_ms(),
        )
        self._perform(effects)

    def partition_changed(self, image: PartitionImage) -> None:
        """Apply a newer image of the same leader epoch."""
        self._perform(self.state.partition_changed(image, self._parts.brokers(), self._now_ms()))

    def appended(self, first_offset: int, size_bytes: int, flush_due_offset: int) -> None:
        """Note an append to the leader's log. An offset of 0 says that no flush is due."""
        state = self.state
        end_offset = self._log.log_end_offset
        self._uncommitted.add(first_offset, end_offset, size_bytes)
        committable_offset = state.committable_offset if flush_due_offset else end_offset
        if state.leader_appended(end_offset, committable_offset):
            brokers, now_ms = self._parts.brokers(), self._now_ms()
            self._perform(state.maybe_increment_high_watermark(brokers, now_ms))

    def flushed(self, committable_offset: int) -> None:
        """Note that the leader's records below the offset need no further flush."""
        brokers, now_ms = self._parts.brokers(), self._now_ms()
        self._perform(self.state.leader_flushed(committable_offset, brokers, now_ms))

    def log_start_raised(self) -> None:
        """Note the new start of the leader's log."""
        log_start_offset = self._log.log_start_offset
        self._perform(self.state.log_start_changed(log_start_offset, self._parts.brokers()))

    def take_committed(self, committed_offset: int, high_watermark: int) -> int | None:
        """Return the size of the records that a new high watermark commits, None if not known."""
        return self._uncommitted.take(committed_offset, high_watermark)

    # --- decisions for waiting requests ---

    def acknowledgement(self, required_offset: int, *, committed: bool) -> ErrorCode | None:
        """Return the result of a produce request, as `Partition.acknowledgement` does."""
        if committed:
            return self.state.acknowledgement(required_offset)
        if self.lease.is_expired:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if self.state.committable_offset >= required_offset else None

    @property
    def low_watermark(self) -> int:
        """The lowest log start of the replicas that are alive; -1 while one is not known."""
        return self.state.low_watermark(self._parts.brokers())

    @property
    def last_fetch_of_isr_ms(self) -> int:
        """The monotonic time of the last fetch by a follower in the ISR, NEVER_MS without one."""
        state = self.state
        return self._partition.last_fetch_ms(state.isr, state.last_fetch_of_isr_ms)

    # --- fetches of followers ---

    def fetch(
        self,
        replica_id: BrokerId,
        broker_epoch: int,
        target: FollowerTarget,
        max_bytes: int,
        cold_result: Callable[[], LogReadInfo] | None = None,
        *,
        updates: bool,
    ) -> FetchPartitionData:
        """Return the records from the offset of a follower's fetch up to the log end.

        The steps have the order of rules F1, F2, I1 and R3: leader epoch, last epoch, position of
        the follower, high watermark, produce requests, read. A fetch that is refused or diverges
        changes nothing.

        Args:
            replica_id, broker_epoch: The follower.
            target: Its request.
            max_bytes: The limit of the records, unless the first batch is larger. 0: no records.
            cold_result: As for `Partition.read`.
            updates: Whether the fetch changes the position of the follower. A fetch that was
                delayed reads again, and does not.

        Raises:
            KafkaError: As for `Partition.read`, and the errors of
                `ReplicationState.follower_fetched`.
            ColdRead: The disk would have to be read.
        """
        partition, log, offset = self._partition, self._log, target.fetch_offset
        partition.check_leader_epoch(target.leader_epoch)
        data = FetchPartitionData(log.high_watermark, log.high_watermark, log.log_start_offset)
        if target.last_fetched_epoch >= 0 and partition.diverges(
            offset, target.last_fetched_epoch, data
        ):
            return data
        if offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if updates:
            parts = self._parts
            effects = self.state.follower_fetched(
                replica_id,
                broker_epoch,
                offset,
                target.follower_log_start_offset,
                parts.brokers(),
                int(parts.clock.monotonic_ms()),
            )
            if effects is not NO_EFFECTS:
                self._perform(effects)
                if partition.error:
                    raise KafkaError(partition.error)
        data.high_watermark = data.last_stable_offset = log.high_watermark
        if max_bytes > 0 and (offset != log.log_end_offset or cold_result is not None):
            self._read(data, offset, max_bytes, cold_result)
        return data

    def _read(
        self,
        data: FetchPartitionData,
        offset: int,
        max_bytes: int,
        cold_result: Callable[[], LogReadInfo] | None,
    ) -> None:
        """Read committed records into `data`, or a copy of uncommitted ones if there are none."""
        log, high_watermark = self._log, data.high_watermark
        try:
            if cold_result is None:
                info = read_for_follower(log, offset, max_bytes, high_watermark, wait=False)
            else:
                info = cold_result()
                if not log.confirm(offset, info):
                    raise NotResident
        except NotResident:
            read = partial(read_for_follower, log, offset, max_bytes, high_watermark, wait=True)
            raise ColdRead(read) from None
        data.region, data.copied = info.region, info.copied

    # --- changes of the ISR ---

    def check_followers(self) -> None:
        """Propose to remove followers that are out of sync. Note a log start that has moved.

        The caller calls it every half of `replica.lag.time.max.ms`.
        """
        partition, state = self._partition, self.state
        if partition.is_suspended:
            return
        if state.log_start_offset != self._log.log_start_offset:
            partition.log_start_offset_raised()
        now_ms = self._now_ms()
        self._perform(state.maybe_shrink_isr(now_ms))
        if state.high_watermark < state.log_end_offset:
            # A follower that is out of the ISR holds the high watermark for the lag time only.
            self._perform(state.maybe_increment_high_watermark(self._parts.brokers(), now_ms))

    @property
    def topic_id(self) -> Uuid:
        return self._partition.topic_id

    @property
    def topic_partition(self) -> TopicPartition:
        return self._partition.topic_partition

    def is_pending(self, proposal: IsrProposal) -> bool:
        """Return whether a proposed ISR still waits for the controller or for newer metadata."""
        return self._is_current and self.state.pending is proposal

    @property
    def _is_current(self) -> bool:
        """Whether this leader epoch has not ended."""
        return self._partition.replication is self

    def proposal_succeeded(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[BrokerId, ...],
        leader_recovery_state: LeaderRecoveryState,
    ) -> None:
        """Apply the controller's response to a proposed ISR (rule I5).

        A response with a later partition epoch has no effect: the image with that partition epoch
        is about to arrive, together with all earlier changes of configs.
        """
        state = self.state
        if not self._is_current or partition_epoch > state.partition_epoch:
            return
        image = PartitionImage(
            self.topic_partition.partition,
            state.broker_id,
            leader_epoch,
            partition_epoch,
            state.replicas,
            isr,
            leader_recovery_state=leader_recovery_state,
        )
        brokers, now_ms = self._parts.brokers(), self._now_ms()
        effects = state.alter_partition_succeeded(proposal, image, brokers, now_ms)
        self._partition.isr_committed(state.isr)
        self._perform(effects)

    def proposal_failed(self, proposal: IsrProposal, error: ErrorCode) -> None:
        """Apply the controller's error for a proposed ISR, or a lost response (rule I5)."""
        if self._is_current:
            brokers, now_ms = self._parts.brokers(), self._now_ms()
            self._perform(self.state.alter_partition_failed(proposal, error, brokers, now_ms))
