"""The leader's view of one replicated partition, from its election on. Pure decisions.

`ReplicationState` holds the positions of the followers, the ISR and the high watermark of a
partition that this broker leads. It has no clock, files or event loop: times are arguments, and
each event returns `Effects` for the caller to perform. The rules are Kafka's
(``kafka.cluster.Partition`` and ``Replica``), numbered as in docs/kafka-semantics.md.

The ISR exists three times:

* The *committed* ISR is the latest ISR of which the controller has informed this leader. It decides
  whether the partition has enough replicas (rules R2 and R5).
* The *pending proposal* is a change that the controller has not confirmed yet.
* The *maximal* ISR is the union of both. The high watermark counts with it, because the controller
  may elect any member of either (rule R4).

An object lives for one leader epoch. A leader that is elected again gets a new object, so no
position of an earlier epoch counts (rule R6).

A fetch changes the state only after all of its checks have passed. The caller first checks the
leader epoch (rule F1) and the epoch of the follower's last record (rule F2). It calls
`follower_fetched` only for a fetch with neither an error nor a diverging epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import NO_OFFSET, BrokerId
from odradek.metadata.image import (
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionImage,
)

NEVER_MS = -(1 << 62)
"""The time of an event that has not happened."""

Brokers = Mapping[BrokerId, BrokerRegistration]


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A change of the ISR that the leader sends to the controller (AlterPartition).

    Attributes:
        isr: The new ISR as (broker id, broker epoch), in the order of ids. The epoch is the one of
            the member's last fetch (KIP-903), or -1 for a member that has not fetched from this
            leader yet.
        expands: Whether the change adds a replica. Otherwise it removes some.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]
    expands: bool
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@dataclass(slots=True)
class Effects:
    """Work for the caller after an event. A field that is None needs no work.

    Attributes:
        high_watermark: The high watermark has advanced to this offset. Operations that wait for an
            offset up to it are to be completed.
        low_watermark: A log start has moved, and this is the low watermark now. DeleteRecords
            requests that wait for an offset up to it are to be completed.
        proposal: A change of the ISR to send to the controller.
        moved_back: A follower whose offset was larger at an earlier fetch. Another session of it
            may have a newer offset, and has to report that again.
    """

    high_watermark: int | None = None
    low_watermark: int | None = None
    proposal: IsrProposal | None = None
    moved_back: FollowerState | None = None


NO_EFFECTS = Effects()


class FollowerState:
    """The position of one follower as of its last fetch (Kafka's ``ReplicaState``).

    Attributes:
        log_end_offset: The offset of the last fetch, -1 before the first one. The follower has all
            records below it.
        last_fetch_leader_end_offset: The leader's log end at the last fetch.
        last_caught_up_ms: The latest time at which the follower had all records of the leader.
        broker_epoch: The broker epoch in the last fetch, -1 before the first one.
        lacks_offset: A restarted process outside of the ISR has not fetched from this offset yet,
            the high watermark at its last fetch. The high watermark does not wait for it. -1: it
            has, or it was not restarted.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "in_isr",
        "in_maximal_isr",
        "lacks_offset",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.last_fetch_leader_end_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = NEVER_MS
        self.lacks_offset = NO_OFFSET
        self.in_isr = False
        self.in_maximal_isr = False


class ReplicationState:
    """A partition that this broker leads in one leader epoch. Owned by `Partition`.

    Args:
        partition: The image of the partition in which this broker is the leader.
        min_insync_replicas: The topic's config. The effective value is at most the replica count.
        log_end_offset: The log end when the epoch begins. This is the epoch's start offset.
        high_watermark: The high watermark of the log, which the leader keeps (rule R6).
        now_ms: Members of the ISR count as caught up at this time.

    After construction the caller performs `maybe_increment_high_watermark` once.
    """

    __slots__ = (
        "_followers",
        "_followers_by_id",
        "_maximal_isr_size",
        "_min_insync_replicas",
        "_min_isr",
        "broker_id",
        "committable_offset",
        "epoch_start_offset",
        "high_watermark",
        "isr",
        "leader_epoch",
        "leader_recovery_state",
        "log_end_offset",
        "log_start_offset",
        "partition_epoch",
        "pending",
        "replica_lag_time_max_ms",
        "replicas",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        partition: PartitionImage,
        *,
        min_insync_replicas: int,
        replica_lag_time_max_ms: int,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        assert partition.leader == broker_id
        self.broker_id = broker_id
        self.leader_epoch = partition.leader_epoch
        self.epoch_start_offset = log_end_offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # The end of the leader's own records that count for the high watermark. It is behind the
        # log end while a flush is due.
        self.committable_offset = log_end_offset
        self.high_watermark = high_watermark
        self.replica_lag_time_max_ms = replica_lag_time_max_ms
        self.pending: IsrProposal | None = None
        self._min_insync_replicas = min_insync_replicas
        self._followers_by_id: dict[BrokerId, FollowerState] = {}
        self._set_partition(partition, now_ms)

    # --- replicas and ISR ---

    def _set_partition(self, partition: PartitionImage, now_ms: int) -> None:
        self.replicas = partition.replicas
        self._min_isr = min(self._min_insync_replicas, len(self.replicas))
        followers = {
            replica: self._followers_by_id.get(replica) or FollowerState(replica)
            for replica in self.replicas
            if replica != self.broker_id
        }
        for replica, follower in followers.items():
            # A new follower of the ISR gets the whole lag time for its first fetch.
            if replica not in self._followers_by_id and replica in partition.isr:
                follower.last_caught_up_ms = now_ms
        self._followers_by_id = followers
        self._followers = tuple(followers.values())
        self._commit(partition.isr, partition.partition_epoch, partition.leader_recovery_state)

    def _commit(
        self,
        isr: tuple[BrokerId, ...],
        partition_epoch: int,
        leader_recovery_state: LeaderRecoveryState,
    ) -> None:
        """Set the committed ISR. A pending proposal has become void."""
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.leader_recovery_state = leader_recovery_state
        self.pending = None
        self._update_members()

    def _update_members(self) -> None:
        maximal = self.maximal_isr
        for follower in self._followers:
            follower.in_isr = follower.broker_id in self.isr
            follower.in_maximal_isr = follower.broker_id in maximal
        self._maximal_isr_size = len(maximal)

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR and the members that a pending expansion adds (rule R4)."""
        if self.pending is None or not self.pending.expands:
            return self.isr
        return tuple(broker for broker, _ in self.pending.isr)

    @property
    def followers(self) -> tuple[FollowerState, ...]:
        return self._followers

    @property
    def has_enough_replicas(self) -> bool:
        """Whether a request with acks=all may append (rule R2)."""
        return len(self.isr) >= self._min_isr

    @property
    def is_high_watermark_of_epoch(self) -> bool:
        """Whether the high watermark has reached the start of the epoch (rule R6).

        Before that, consumers get OFFSET_NOT_AVAILABLE for the latest offset, because an earlier
        leader may have given them a larger one.
        """
        return self.high_watermark >= self.epoch_start_offset

    @property
    def last_fetch_of_isr_ms(self) -> int:
        """The time of the latest fetch by a follower in the ISR, NEVER_MS without one."""
        return max(
            (each.last_fetch_ms for each in self._followers if each.in_isr), default=NEVER_MS
        )

    def low_watermark(self, brokers: Brokers) -> int:
        """Return the lowest log start of the leader and of the followers that are alive.

        It is -1 while a follower that is alive has not fetched yet. DeleteRecords waits for it.
        """
        low = self.log_start_offset
        for follower in self._followers:
            registration = brokers.get(follower.broker_id)
            if registration is not None and not registration.fenced:
                low = min(low, follower.log_start_offset)
        return low

    # --- events of the leader ---

    def configure(
        self,
        min_insync_replicas: int,
        replica_lag_time_max_ms: int,
        brokers: Brokers,
        now_ms: int,
    ) -> Effects:
        """Apply changed configs."""
        self._min_insync_replicas = min_insync_replicas
        self._min_isr = min(min_insync_replicas, len(self.replicas))
        self.replica_lag_time_max_ms = replica_lag_time_max_ms
        return self.maybe_increment_high_watermark(brokers, now_ms)

    def partition_changed(
        self, partition: PartitionImage, brokers: Brokers, now_ms: int
    ) -> Effects:
        """Apply a newer image of the partition in the same leader epoch. Ignore an older one.

        The committed ISR becomes the one of the image. A pending proposal is void, because its
        partition epoch is no longer current.
        """
        assert partition.leader_epoch == self.leader_epoch
        if partition.partition_epoch <= self.partition_epoch:
            return NO_EFFECTS
        self._set_partition(partition, now_ms)
        return self.maybe_increment_high_watermark(brokers, now_ms)

    def leader_appended(self, log_end_offset: int, committable_offset: int) -> bool:
        """Note the new log end after an append by the leader.

        Args:
            log_end_offset: The new log end.
            committable_offset: The end of the records that need no further flush. It is the log end
                unless `flush.messages` requires a flush.

        Returns:
            Whether the leader is the maximal ISR, so that the caller performs
            `maybe_increment_high_watermark`. Another member cannot have the new records yet.
        """
        self.log_end_offset = log_end_offset
        self.committable_offset = committable_offset
        return self._maximal_isr_size == 1

    def leader_flushed(self, committable_offset: int, brokers: Brokers, now_ms: int) -> Effects:
        """Note that the leader's records below `committable_offset` need no further flush."""
        self.committable_offset = committable_offset
        return self.maybe_increment_high_watermark(brokers, now_ms)

    def log_start_changed(self, log_start_offset: int, brokers: Brokers) -> Effects:
        """Note the new start of the leader's log."""
        self.log_start_offset = log_start_offset
        return Effects(low_watermark=self.low_watermark(brokers))

    # --- fetches of followers ---

    def follower_fetched(  # noqa: C901 - calls are the cost of this path
        self,
        replica_id: BrokerId,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        brokers: Brokers,
        now_ms: int,
    ) -> Effects:
        """Update a follower from its fetch (rules I1 and I3), before the log is read.

        The leader epoch and the follower's last epoch are already checked. A refused fetch changes
        nothing.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH, the replica is not assigned. NOT_LEADER_OR_FOLLOWER,
                the broker epoch is not the registered one. OFFSET_OUT_OF_RANGE, the offset is above
                the log end.
        """
        follower = self._followers_by_id.get(replica_id)
        if follower is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"replica {replica_id} is not assigned"
            )
        registration = brokers.get(replica_id)
        if registration is None or registration.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker epoch {broker_epoch} of replica {replica_id} is not the registered one",
            )
        end_offset = self.log_end_offset
        if fetch_offset >= end_offset:
            if fetch_offset > end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            caught_up_ms = now_ms
        elif fetch_offset >= follower.last_fetch_leader_end_offset:
            caught_up_ms = follower.last_fetch_ms
        else:
            caught_up_ms = NEVER_MS
        if caught_up_ms > follower.last_caught_up_ms:
            follower.last_caught_up_ms = caught_up_ms
        follower.last_fetch_ms = now_ms
        follower.last_fetch_leader_end_offset = end_offset
        if broker_epoch != follower.broker_epoch:
            follower.broker_epoch = broker_epoch
            follower.lacks_offset = self.high_watermark
        if follower.lacks_offset >= 0:
            is_lacking = fetch_offset < follower.lacks_offset and not follower.in_maximal_isr
            follower.lacks_offset = self.high_watermark if is_lacking else NO_OFFSET
        moved_back = fetch_offset < follower.log_end_offset
        follower.log_end_offset = fetch_offset
        start_moved = log_start_offset != follower.log_start_offset
        follower.log_start_offset = log_start_offset
        effects = NO_EFFECTS
        if not follower.in_maximal_isr:
            effects = self._maybe_expand_isr(follower, brokers)
        # The high watermark cannot pass the offset of this follower, if it counts with it.
        if fetch_offset > self.high_watermark:
            effects = self._with_high_watermark(effects, brokers, now_ms)
        if start_moved:
            if effects is NO_EFFECTS:
                effects = Effects()
            effects.low_watermark = self.low_watermark(brokers)
        if moved_back:
            if effects is NO_EFFECTS:
                effects = Effects()
            effects.moved_back = follower
        return effects

    def offset_of(self, replica_id: BrokerId) -> int:
        """Return the offset of a replica's last fetch, or -1."""
        follower = self._followers_by_id.get(replica_id)
        return NO_OFFSET if follower is None else follower.log_end_offset

    def follower_was_idle(self, replica_id: BrokerId, fetch_ms: int) -> None:
        """Note a fetch at `fetch_ms` in which the leader did not visit this partition.

        The caller calls this before the log end moves. Since its last visit the follower's offset
        and the log end are unchanged. So this has the effect that the visit would have had.
        """
        follower = self._followers_by_id.get(replica_id)
        if (
            follower is not None
            and follower.log_end_offset >= 0
            and fetch_ms > follower.last_fetch_ms
        ):
            if follower.log_end_offset == self.log_end_offset:
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, fetch_ms)
            follower.last_fetch_ms = fetch_ms

    # --- high watermark ---

    def maybe_increment_high_watermark(self, brokers: Brokers, now_ms: int) -> Effects:
        """Advance the high watermark if the ISR permits it (rule R5)."""
        return self._with_high_watermark(NO_EFFECTS, brokers, now_ms)

    def _with_high_watermark(self, effects: Effects, brokers: Brokers, now_ms: int) -> Effects:
        """Return the effects with the advance of the high watermark, if there is one.

        It is the lowest end of the maximal ISR, and of the followers that are about to join it.
        Without the latter an ISR of the leader alone would advance it so fast that no follower ever
        reaches it.
        """
        if len(self.isr) < self._min_isr:
            return effects
        offset = self.committable_offset
        for follower in self._followers:
            if follower.log_end_offset < offset and (
                follower.in_maximal_isr or self._is_about_to_join(follower, brokers, now_ms)
            ):
                offset = follower.log_end_offset
        if offset <= self.high_watermark:
            return effects
        self.high_watermark = offset
        if effects is NO_EFFECTS:
            return Effects(high_watermark=offset)
        effects.high_watermark = offset
        return effects

    def _is_about_to_join(self, follower: FollowerState, brokers: Brokers, now_ms: int) -> bool:
        """Return whether the high watermark waits for a follower outside of the maximal ISR.

        As in Kafka it waits for a follower that was caught up within the lag time. A broker that
        was down for seconds is one, and in Kafka requests with acks=all wait until it has read what
        it lacks. Here its new process has to reach the high watermark of a fetch first.
        """
        return (
            follower.lacks_offset < 0
            and (
                now_ms - follower.last_caught_up_ms <= self.replica_lag_time_max_ms
                or follower.log_end_offset == self.log_end_offset
            )
            and self._is_eligible(follower, brokers)
        )

    def acknowledgement(self, required_offset: int) -> ErrorCode | None:
        """Return the result of a request with acks=all, or None while it has to wait (rule R3).

        Args:
            required_offset: The offset after the last record of the request.
        """
        if self.high_watermark < required_offset:
            return None
        if self._maximal_isr_size < self._min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # --- changes of the ISR ---

    def _is_eligible(self, follower: FollowerState, brokers: Brokers) -> bool:
        """Return whether the follower may join the ISR: alive, and of the process that fetched."""
        registration = brokers.get(follower.broker_id)
        return (
            registration is not None
            and not registration.fenced
            and not registration.in_controlled_shutdown
            and registration.epoch == follower.broker_epoch
        )

    def _is_in_sync(self, follower: FollowerState) -> bool:
        """Return whether the follower has reached the high watermark and the epoch's start (I2).

        The high watermark of a new leader may be behind the true one, but records below the start
        of its epoch may be committed. A replica without them must not become electable.

        A follower whose log ends where the leader's log starts has none of the leader's records.
        Its own records may be of a deposed leader, because the leader's epochs no longer show a
        divergence there. It joins after it has removed them.
        """
        end_offset = follower.log_end_offset
        if end_offset <= self.log_start_offset != follower.log_start_offset:
            return False
        return end_offset >= max(self.high_watermark, self.epoch_start_offset)

    def _maybe_expand_isr(self, follower: FollowerState, brokers: Brokers) -> Effects:
        if (
            self.pending is not None
            or not self._is_in_sync(follower)
            or not self._is_eligible(follower, brokers)
        ):
            return NO_EFFECTS
        return self._propose((*self.isr, follower.broker_id), expands=True)

    def maybe_shrink_isr(self, now_ms: int) -> Effects:
        """Propose to remove the followers that are out of sync (rule I1).

        The caller checks every half of `replica.lag.time.max.ms`.
        """
        if self.pending is not None:
            return NO_EFFECTS
        out_of_sync = [
            follower.broker_id
            for follower in self._followers
            if follower.in_isr
            and follower.log_end_offset != self.log_end_offset
            and now_ms - follower.last_caught_up_ms > self.replica_lag_time_max_ms
        ]
        if not out_of_sync:
            return NO_EFFECTS
        remaining = tuple(broker for broker in self.isr if broker not in out_of_sync)
        return self._propose(remaining, expands=False)

    def _propose(self, isr: tuple[BrokerId, ...], *, expands: bool) -> Effects:
        proposal = IsrProposal(
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=tuple((broker, self._broker_epoch(broker)) for broker in sorted(isr)),
            expands=expands,
        )
        self.pending = proposal
        self._update_members()
        return Effects(proposal=proposal)

    def _broker_epoch(self, broker: BrokerId) -> int:
        follower = self._followers_by_id.get(broker)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch

    def alter_partition_succeeded(
        self, proposal: IsrProposal, committed: PartitionImage, brokers: Brokers, now_ms: int
    ) -> Effects:
        """Apply the controller's response to a proposal (rule I5).

        It is ignored unless it is for the pending proposal, has this leader epoch, and is not older
        than the committed state. An equal partition epoch means that the proposal changed nothing.

        The caller applies a response after the image of the same metadata offset, because a raised
        `min.insync.replicas` may be in flight. The controller fills the ELR with the new value.
        """
        if (
            self.pending != proposal
            or committed.leader_epoch != self.leader_epoch
            or committed.partition_epoch < self.partition_epoch
        ):
            return NO_EFFECTS
        self._commit(committed.isr, committed.partition_epoch, committed.leader_recovery_state)
        return self.maybe_increment_high_watermark(brokers, now_ms)

    def alter_partition_failed(
        self, proposal: IsrProposal, error: ErrorCode, brokers: Brokers, now_ms: int
    ) -> Effects:
        """Apply the controller's error for a proposal, or the loss of the response (rule I5).

        A refused replica reverts to the committed ISR. Errors that say that the leader's view is
        old leave the proposal pending until newer metadata arrives. After any other error the same
        proposal is sent again.
        """
        if self.pending != proposal:
            return NO_EFFECTS
        if error in _REVERTED:
            self._commit(self.isr, self.partition_epoch, self.leader_recovery_state)
            return self.maybe_increment_high_watermark(brokers, now_ms)
        if error in _PENDING_UNTIL_NEW_METADATA:
            return NO_EFFECTS
        return Effects(proposal=proposal)


_REVERTED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
_PENDING_UNTIL_NEW_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
