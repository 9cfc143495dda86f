"""The parts of a cluster for the tests of this folder, and a leader with two followers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.metadata.image import BrokerRegistration, PartitionImage
from odradek.records.record import Record, build_batch
from odradek.replication.delayed_fetch import refuse_replica
from odradek.replication.fetch_data import FetchPartitionData
from odradek.replication.leader_replication import LeaderReplication, Proposer
from odradek.replication.partition import Partition
from odradek.replication.replication_parts import FollowedPartition, ReplicationParts
from odradek.replication.replication_state import IsrProposal
from tests.helpers.led_partitions import led

LEADER, A, B = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = (LEADER, A, B)
EPOCH = 70
"""The broker epoch of each broker."""
LAG_MS = 1_000
TOPIC_ID = Uuid(bytes(15) + b"t")
TP = TopicPartition("t", 0)


class RecordedFetchers:
    """Fetchers that record which partitions they fetch."""

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, FollowedPartition] = {}
        self.calls = 0
        self._when_truncated: dict[UnifiedLog, Callable[[], None]] = {}

    def follow(self, followed: Sequence[FollowedPartition]) -> None:
        self.calls += 1
        for each in followed:
            assert each.partition.topic_partition not in self.followed or (
                self.followed[each.partition.topic_partition] != each
            )
            self.followed[each.partition.topic_partition] = each

    def unfollow(self, topic_partitions: Collection[TopicPartition]) -> None:
        for each in topic_partitions:
            self.followed.pop(each, None)

    async def stop(self) -> None:
        self.followed.clear()

    def when_truncated(self, log: UnifiedLog, change: Callable[[], None]) -> None:
        self._when_truncated[log] = change

    def truncation_ended(self, log: UnifiedLog) -> None:
        """Perform the change that waits for the end of the truncation."""
        self._when_truncated.pop(log)()


class RecordedProposals:
    """Proposals that the test answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[Proposer, IsrProposal]] = []

    def propose(self, proposer: Proposer, proposal: IsrProposal) -> None:
        self.sent.append((proposer, proposal))

    def pop(self) -> IsrProposal:
        ((_, proposal),) = self.sent
        self.sent.clear()
        return proposal


class Cluster:
    """The parts of broker 1 in a cluster of three brokers that are alive."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.fetchers = RecordedFetchers()
        self.proposals = RecordedProposals()
        self.brokers = {each: BrokerRegistration(each, "", 0, epoch=EPOCH) for each in ALL}
        self.parts = ReplicationParts(
            self.fetchers,
            self.proposals,
            lambda: self.brokers,
            self.clock,
            LAG_MS,
        )

    def change_broker(self, broker: BrokerId, **changes: Any) -> None:
        self.brokers[broker] = replace(self.brokers[broker], **changes)


@dataclass(eq=False)
class Target:
    """The request for one partition of a follower's fetch."""

    fetch_offset: int
    leader_epoch: int = 5
    last_fetched_epoch: int = -1
    follower_log_start_offset: int = 0
    max_bytes: int = 1 << 20
    topic: str | Uuid = TOPIC_ID
    partition: int = 0


def refused(call: Callable[[], object]) -> ErrorCode:
    """Return the error code with which a call fails."""
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def replication_of(partition: Partition) -> LeaderReplication:
    """Return the leader's side of a replicated partition that broker 1 leads."""
    assert partition.replication is not None
    return partition.replication


class Leader:
    """A partition with a real log that broker 1 leads in epoch 5, with followers 2 and 3."""

    def __init__(
        self,
        logs: LogManager,
        isr: tuple[BrokerId, ...] = ALL,
        *,
        min_isr: int = 1,
        **configs: Any,
    ) -> None:
        self.cluster = Cluster()
        config = replace(LogConfig(), min_insync_replicas=min_isr, **configs)
        self.log = logs.create(TP, TOPIC_ID, config)
        self.partition = Partition(TP, TOPIC_ID, self.log, self.cluster.parts)
        self.image = led(5, ALL, isr, partition_epoch=10)
        self.partition.become_leader(self.image)

    def append(self, acks: int = 1, value: bytes = b"x") -> int:
        """Append a batch of one record. Return its offset."""
        records = memoryview(build_batch([Record(None, value, 0)]))
        return self.partition.append(records, acks, 0).last_offset

    def fetch(
        self,
        replica: BrokerId,
        offset: int,
        *,
        broker_epoch: int = EPOCH,
        updates: bool = True,
        **target: int,
    ) -> FetchPartitionData:
        """Fetch as a follower."""
        requested = Target(offset, **target)
        if self.partition.replication is None:
            refuse_replica(self.partition, requested.leader_epoch)
        return self.replication.fetch(replica, broker_epoch, requested, 1 << 20, updates=updates)

    @property
    def replication(self) -> LeaderReplication:
        return replication_of(self.partition)

    def change(self, **changes: Any) -> PartitionImage:
        """Apply an image with changes, which has the next partition epoch."""
        epoch = self.image.partition_epoch + 1
        self.image = replace(self.image, **{"partition_epoch": epoch, **changes})
        self.partition.become_leader(self.image)
        return self.image

    def positions(self) -> tuple[Any, ...]:
        """Return everything that a fetch may change."""
        state = self.replication.state
        followers = [
            [getattr(each, name) for name in type(each).__slots__] for each in state.followers
        ]
        return followers, state.pending, self.log.high_watermark, self.cluster.proposals.sent[:]
