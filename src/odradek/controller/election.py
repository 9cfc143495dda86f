"""Elections of partition leaders, and the ISR and ELR that go with them. Pure decisions.

Each function takes a `PartitionImage` and returns the changed one, or None when nothing changes.
The rules are those of Kafka's ``PartitionChangeBuilder`` with eligible leader replicas (KIP-966),
numbered E1 to E5 in docs/kafka-semantics.md. A change of the leader raises the leader epoch, and
any change raises the partition epoch.

The ELR keeps replicas that left the ISR while it was below the minimum. The high watermark does not
advance then (rule R5), so each of them still has all records below it. An unclean restart removes a
replica from both sets, because it may have lost records.

``last_known_elr`` has Kafka's meaning with the recovery of the last known leader. It holds at most
one replica: the leader at the time when the ISR became empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionImage,
)

NOT_NEEDED_TEXT = "Leader election not needed for topic partition."
NO_PREFERRED_LEADER_TEXT = "The preferred leader was not available."
NO_ELIGIBLE_LEADER_TEXT = "Eligible topic partition leaders are not available."

Acceptable = Callable[[BrokerId], bool]
"""Whether a broker may lead. `MetadataImage.is_eligible` for the image that contains the change."""


class Election(Enum):
    """The kind of an election (Kafka's ``PartitionChangeBuilder.Election``)."""

    ONLINE = auto()
    """Keep the partition online with a replica of the ISR, else of the ELR."""
    PREFERRED = auto()
    """The same, with the first replica as the first choice."""
    UNCLEAN = auto()
    """The same. If no such replica is available, any acceptable replica."""


@dataclass(frozen=True, slots=True)
class ElectionPolicy:
    """The configs that decide an election.

    Attributes:
        min_insync_replicas: The topic's config.
        unclean: The topic's config unclean.leader.election.enable.
        last_known_leader: Whether a leader that restarted uncleanly is elected again when the ISR
            and the ELR are empty, as in Kafka.
        avoided: Drained brokers. One of them leads only if no other electable replica may.
    """

    min_insync_replicas: int = 1
    unclean: bool = False
    last_known_leader: bool = True
    avoided: frozenset[BrokerId] = frozenset()


def changed_partition(
    partition: PartitionImage,
    acceptable: Acceptable,
    policy: ElectionPolicy,
    *,
    election: Election | None = None,
    isr: tuple[BrokerId, ...] | None = None,
    unclean_restarts: Collection[BrokerId] = (),
    leader_recovery_state: LeaderRecoveryState | None = None,
) -> PartitionImage | None:
    """Return the partition with a new ISR and the leader that follows from it.

    The leader stays if it may. Otherwise rule E1 applies.

    Args:
        election: None is UNCLEAN if the policy permits it, else ONLINE.
        isr: The new ISR. None keeps it.
        unclean_restarts: Replicas that cannot be in the ELR.
        leader_recovery_state: The new state. None keeps it.
    """
    if election is None:
        election = Election.UNCLEAN if policy.unclean else Election.ONLINE
    target_isr = partition.isr if isr is None else isr
    elr = _target_elr(partition, target_isr, unclean_restarts, policy.min_insync_replicas)
    leader, unclean = _elect(partition, target_isr, elr, acceptable, policy, election)
    recovery = leader_recovery_state
    if recovery is None:
        recovery = partition.leader_recovery_state
    if unclean:
        target_isr, elr, recovery = (leader,), (), LeaderRecoveryState.RECOVERING
    elif leader in elr:
        target_isr = (leader,)
        # A leader that is enough advances the high watermark, and the others fall behind it.
        is_enough = effective_min_isr(partition, policy.min_insync_replicas) <= 1
        elr = () if is_enough else tuple(each for each in elr if each != leader)
    last_known = _last_known(partition, leader, target_isr)
    if (leader, target_isr, elr, last_known, recovery) == (
        partition.leader,
        partition.isr,
        partition.elr,
        partition.last_known_elr,
        partition.leader_recovery_state,
    ):
        return None
    return replace(
        partition,
        leader=leader,
        isr=target_isr,
        elr=elr,
        last_known_elr=last_known,
        leader_recovery_state=recovery,
        leader_epoch=partition.leader_epoch + (unclean or leader != partition.leader),
        partition_epoch=partition.partition_epoch + 1,
    )


def effective_min_isr(partition: PartitionImage, min_insync_replicas: int) -> int:
    return min(min_insync_replicas, len(partition.replicas))


def _target_elr(
    partition: PartitionImage,
    isr: tuple[BrokerId, ...],
    unclean_restarts: Collection[BrokerId],
    min_insync_replicas: int,
) -> tuple[BrokerId, ...]:
    """Return the ELR for a new ISR (rule E4). Members are in the order of the replicas."""
    if len(isr) >= effective_min_isr(partition, min_insync_replicas):
        return ()
    return tuple(
        replica
        for replica in partition.replicas
        if (replica in partition.elr or replica in partition.isr)
        and replica not in isr
        and replica not in unclean_restarts
    )


def _elect(
    partition: PartitionImage,
    isr: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    acceptable: Acceptable,
    policy: ElectionPolicy,
    election: Election,
) -> tuple[BrokerId, bool]:
    """Return the leader, and whether the election is unclean."""
    # Only an empty ISR permits a leader from the ELR.
    electable = isr or elr
    preferred = partition.replicas[0]
    first: Iterable[BrokerId] = (partition.leader,)
    if election is Election.PREFERRED:
        first = (preferred, partition.leader)
    candidates: Iterable[BrokerId] = (*first, *partition.replicas)
    if policy.avoided:
        candidates = sorted(candidates, key=policy.avoided.__contains__)
    for replica in candidates:
        if replica in electable and acceptable(replica):
            return replica, False
    if policy.last_known_leader and not isr and not elr and len(partition.last_known_elr) == 1:
        last = partition.last_known_elr[0]
        if acceptable(last):
            return last, True
    if election is Election.UNCLEAN:
        for replica in partition.replicas:
            if acceptable(replica):
                return replica, True
    return NO_LEADER, False


def _last_known(
    partition: PartitionImage, leader: BrokerId, isr: tuple[BrokerId, ...]
) -> tuple[BrokerId, ...]:
    """Return the last known leader, while the partition has none."""
    if leader != NO_LEADER:
        return ()
    if not isr and partition.leader != NO_LEADER:
        return (partition.leader,)
    return partition.last_known_elr


# --- events of brokers ---


def without_brokers(
    partition: PartitionImage,
    brokers: Collection[BrokerId],
    acceptable: Acceptable,
    policy: ElectionPolicy,
    *,
    election: Election | None = None,
    unclean_restarts: Collection[BrokerId] = (),
) -> PartitionImage | None:
    """Remove brokers that are fenced, in controlled shutdown or restarted from the ISR (E1, E5).

    `acceptable` must refuse them. Members that leave an ISR below the minimum go to the ELR.
    """
    isr = tuple(each for each in partition.isr if each not in brokers)
    return changed_partition(
        partition,
        acceptable,
        policy,
        election=election,
        isr=isr,
        unclean_restarts=unclean_restarts,
    )


def broker_registered(
    partition: PartitionImage,
    broker: BrokerId,
    acceptable: Acceptable,
    policy: ElectionPolicy,
    *,
    clean: bool,
) -> PartitionImage | None:
    """Handle a new registration of a broker, before it is unfenced.

    The previous process of the broker has ended, so the broker leaves the ISR and any leadership,
    even if its session has not expired. The ELR keeps it only if `stopped_cleanly` (rule E4).
    """
    return without_brokers(
        partition,
        (broker,),
        lambda other: other != broker and acceptable(other),
        policy,
        unclean_restarts=() if clean else (broker,),
    )


def without_lost_log(
    partition: PartitionImage, broker: BrokerId, acceptable: Acceptable, policy: ElectionPolicy
) -> PartitionImage | None:
    """Remove a replica that begins again with an empty log, because its directory is lost.

    The other replicas may have records although they are not in sync. If the empty one led, they
    would lose them, so it is not the last known leader either (stricter than Kafka). A partition
    without other replicas has nothing to lose.
    """
    if len(partition.replicas) == 1:
        isr = tuple(each for each in partition.isr if each != broker)
        return changed_partition(partition, acceptable, policy, isr=isr, unclean_restarts=(broker,))
    others = tuple(each for each in partition.last_known_elr if each != broker)
    now = replace(partition, last_known_elr=others)
    if broker in now.isr or broker in now.elr:
        now = broker_registered(now, broker, acceptable, policy, clean=False) or now
    others = tuple(each for each in now.last_known_elr if each != broker)
    now = replace(now, last_known_elr=others)
    if now == partition:
        return None
    return replace(now, partition_epoch=partition.partition_epoch + 1)


def min_isr_changed(
    partition: PartitionImage, acceptable: Acceptable, policy: ElectionPolicy
) -> PartitionImage | None:
    """Clear the ELR of a partition whose ISR reaches a lowered minimum."""
    return changed_partition(partition, acceptable, policy)


# --- ElectLeaders ---


def elect_preferred(
    partition: PartitionImage, acceptable: Acceptable, policy: ElectionPolicy
) -> PartitionImage:
    """Perform an ElectLeaders request of type PREFERRED (rule E2).

    Raises:
        KafkaError: ELECTION_NOT_NEEDED, the first replica leads already.
            PREFERRED_LEADER_NOT_AVAILABLE, it is not in the ISR or not acceptable, or it is drained
            (Kafka's error for a broker in controlled shutdown).
    """
    if partition.leader == partition.replicas[0]:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED_TEXT)
    changed = changed_partition(partition, acceptable, policy, election=Election.PREFERRED)
    if changed is None or changed.leader != partition.replicas[0]:
        text = NO_PREFERRED_LEADER_TEXT
        if partition.replicas[0] in policy.avoided:
            text = f"Broker {partition.replicas[0]} is drained, and another replica can lead."
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
    return changed


def elect_unclean(
    partition: PartitionImage, acceptable: Acceptable, policy: ElectionPolicy
) -> PartitionImage:
    """Perform an ElectLeaders request of type UNCLEAN (rule E3).

    Raises:
        KafkaError: ELECTION_NOT_NEEDED, the partition has a leader.
            ELIGIBLE_LEADERS_NOT_AVAILABLE, no replica is acceptable.
    """
    if partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED_TEXT)
    changed = changed_partition(partition, acceptable, policy, election=Election.UNCLEAN)
    if changed is None or changed.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_ELIGIBLE_LEADER_TEXT)
    return changed


# --- proof of a clean stop, controlled shutdown ---


def stopped_cleanly(
    previous: BrokerRegistration | None,
    clean_shutdown_epoch: int,
    boot_id: str,
    directories: Collection[Uuid],
) -> bool:
    """Return whether a broker that registers again still has all records that it had appended.

    There are two proofs. The clean-shutdown file has the broker epoch of the last registration. Or
    the machine was not booted since, so that the page cache survived a SIGKILL. Both need all log
    directories of the last registration, and the second one their ids. The controller removes the
    boot id from a registration whose last log directory has failed.

    Args:
        previous: The last registration of this id. None for a new broker, which has no records.
        clean_shutdown_epoch: The broker epoch in the clean-shutdown files, -1 without them.
        boot_id: The boot id of the machine, "" when it is unknown.
        directories: The ids of the log directories that are online.
    """
    if previous is None:
        return True
    if not set(previous.directories) <= set(directories):
        return False
    same_boot = bool(boot_id and previous.directories) and boot_id == previous.boot_id
    return same_boot or clean_shutdown_epoch == previous.epoch >= 0


def may_shut_down(
    broker: BrokerId,
    led_partitions: int,
    shutdown_offset: int,
    applied_offsets: Mapping[BrokerId, int],
) -> bool:
    """Return whether a broker in controlled shutdown may stop (rule E5).

    It leads no partition, and the other brokers that are alive know that.

    Args:
        led_partitions: The number of partitions that the broker leads.
        shutdown_offset: The metadata offset of the change that moved its leaderships.
        applied_offsets: The metadata offset that each broker that is alive has applied.
    """
    return not led_partitions and all(
        offset >= shutdown_offset for other, offset in applied_offsets.items() if other != broker
    )
