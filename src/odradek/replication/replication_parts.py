"""The parts of a cluster that partitions with several replicas use. A single broker has none.

`ReplicaManager` and `Partition` see the other brokers only through these interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.ids import BrokerId

if TYPE_CHECKING:
    from odradek.environment.clock import Clock
    from odradek.ids import TopicPartition
    from odradek.replication.partition import Partition, ProposalSender
    from odradek.replication.replication_state import Brokers


class FollowedPartition(NamedTuple):
    """A partition that this broker follows, with the leader to fetch from."""

    partition: Partition
    leader: BrokerId
    leader_epoch: int


class Fetchers(Protocol):
    """The fetchers of the partitions that this broker follows.

    A fetcher appends to `Partition.log` with the leader epoch of the `FollowedPartition`, and then
    calls `Partition.follower_appended`. It calls `Partition.truncation_ended` after each truncation
    of a log, also when the partition is no longer followed. After an I/O error it calls
    `Partition.storage_failed`.
    """

    def follow(self, followed: Sequence[FollowedPartition]) -> None:
        """Fetch these partitions. An entry replaces an earlier one of the same partition."""

    def unfollow(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions no longer. Responses in flight change nothing."""

    async def stop(self) -> None:
        """End all fetches."""


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    """The parts of a cluster for partitions with other replicas.

    Attributes:
        broker_epoch: Returns the epoch of this broker's registration.

    The others are those of `LeaderParts`.
    """

    fetchers: Fetchers
    isr_proposals: ProposalSender
    brokers: Callable[[], Brokers]
    broker_epoch: Callable[[], int]
    clock: Clock
    replica_lag_time_max_ms: int
