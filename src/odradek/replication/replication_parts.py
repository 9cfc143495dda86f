"""The parts of a cluster that partitions with several replicas use.

`ReplicaManager` and `Partition` see the other brokers only through `ReplicationParts`. A single
broker has none, and does not import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.ids import BrokerId, TopicPartition
from odradek.replication.leader_replication import LeaderLease, LeaderReplication, ProposalSender

if TYPE_CHECKING:
    from odradek.environment.clock import Clock
    from odradek.log.unified_log import UnifiedLog
    from odradek.metadata.image import PartitionImage
    from odradek.replication.partition import Partition
    from odradek.replication.replication_state import Brokers


class FollowedPartition(NamedTuple):
    """A partition that this broker follows, with the leader to fetch from."""

    partition: Partition
    leader: BrokerId
    leader_epoch: int


class Fetchers(Protocol):
    """The fetchers of the partitions that this broker follows.

    A fetcher appends to `Partition.log` with the leader epoch of the `FollowedPartition`, and then
    calls `Partition.follower_appended`. After an I/O error it calls `Partition.storage_failed`.
    """

    def follow(self, followed: Sequence[FollowedPartition]) -> None:
        """Fetch these partitions. An entry replaces an earlier one of the same partition."""

    def unfollow(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions no longer. Responses in flight change nothing."""

    async def stop(self) -> None:
        """End all fetches."""

    def when_truncated(self, log: UnifiedLog, change: Callable[[], None]) -> None:
        """Call `change` when the truncation of `log` has ended. It replaces an earlier one.

        The partition may be no longer followed by then.
        """


class FetcherChanges:
    """Partitions to follow, and to follow no longer, until the end of a time slice."""

    def __init__(self, fetchers: Fetchers) -> None:
        self._fetchers = fetchers
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._unfollowed: dict[TopicPartition, None] = {}

    def follow(self, partition: Partition, leader: BrokerId, leader_epoch: int) -> None:
        """Fetch the partition from a leader. It replaces an earlier change of the partition."""
        followed = FollowedPartition(partition, leader, leader_epoch)
        self._followed[partition.topic_partition] = followed

    def unfollow(self, key: TopicPartition) -> None:
        """Fetch the partition no longer."""
        self._followed.pop(key, None)
        self._unfollowed[key] = None

    def pass_on(self) -> None:
        """Pass the changes since the last call on to the fetchers."""
        followed, self._followed = self._followed, {}
        unfollowed, self._unfollowed = self._unfollowed, {}
        if unfollowed:
            self._fetchers.unfollow(tuple(unfollowed))
        if followed:
            self._fetchers.follow(tuple(followed.values()))


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    """The parts of a cluster for partitions with other replicas (`ReplicationFactory`).

    The attributes are those of `LeaderParts`.
    """

    fetchers: Fetchers
    isr_proposals: ProposalSender
    brokers: Callable[[], Brokers]
    clock: Clock
    replica_lag_time_max_ms: int
    lease: LeaderLease = field(default_factory=LeaderLease)

    def lead(self, partition: Partition, image: PartitionImage) -> LeaderReplication:
        """Return the state of the other replicas for a new leader epoch of this broker."""
        return LeaderReplication(partition, image, self)

    def fetcher_changes(self) -> FetcherChanges:
        """Return an empty collection of changes for the fetchers."""
        return FetcherChanges(self.fetchers)
