"""One partition that this broker follows: its phase, and the position of its next fetch. Pure."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from odradek.ids import Uuid
from odradek.replication.follower_decisions import FetchPosition

if TYPE_CHECKING:
    from odradek.ids import BrokerId
    from odradek.replication.partition import Partition


ReplicaKey = tuple[Uuid, int]
"""Topic id and number of a partition, its name in requests to other brokers."""


class ReplicaPhase(Enum):
    """Whether a replica is fetched."""

    FETCHING = auto()
    PAUSED = auto()
    """New, or its log is flushed, or the leader's offsets are looked up, or the rest of a response
    is applied before its log is truncated. The end of that work resumes it.
    """
    TRUNCATING = auto()
    """Its log is truncated, possibly for an earlier leader. The end of that resumes it."""
    BACKING_OFF = auto()
    """After an error, until `replica.fetch.backoff.ms` has passed."""
    STOPPED = auto()
    """The end. A new epoch or another leader makes a new object."""


class FollowedReplica:
    """A partition that this broker follows in one leader epoch. Owned by the `FetchPlan`.

    Attributes:
        partition: The partition, whose log is appended to.
        key: The name in requests.
        leader: The broker that leads the partition.
        leader_epoch: The leader epoch, from the metadata.
        phase: Whether it is fetched.
        generation: Increased when the replica is paused. Responses to earlier fetches are void.
        is_in_sync: The replica is fetched on the connection for replicas in sync.
        responses_behind: The number of consecutive responses after which it was still behind.
        error: The code of the last error, so that a repeated one is logged once.
        short_backoffs: The number of short delays after errors of different metadata.
    """

    __slots__ = (
        "error",
        "generation",
        "is_in_sync",
        "key",
        "leader",
        "leader_epoch",
        "log",
        "partition",
        "phase",
        "responses_behind",
        "short_backoffs",
    )

    def __init__(self, partition: Partition, leader: BrokerId, leader_epoch: int) -> None:
        self.partition = partition
        self.log = partition.log
        self.key: ReplicaKey = (partition.topic_id, partition.topic_partition.partition)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.phase = ReplicaPhase.PAUSED
        self.generation = 0
        self.is_in_sync = False
        self.responses_behind = 0
        self.error = 0
        self.short_backoffs = 0

    def __repr__(self) -> str:
        return f"<{self.partition.topic_partition} of leader {self.leader}, {self.phase.name}>"

    @property
    def position(self) -> FetchPosition:
        """The state of the log for which the next fetch is sent."""
        log = self.log
        end = log.log_end_offset
        return FetchPosition(self.leader_epoch, end, log.epochs.epoch_for(end - 1))
