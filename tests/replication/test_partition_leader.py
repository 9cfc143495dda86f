"""The rules of a leader with followers, from the calls of a partition to its effects."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode
from odradek.log.directories.log_manager import LogManager
from odradek.log.follower_read import read_for_follower
from odradek.log.truncation import truncate_to
from odradek.metadata.image import LeaderRecoveryState
from odradek.offloading import WorkRunner
from odradek.records.record import Record, build_batch
from odradek.replication.fetch_data import ColdRead, FetchIsolation
from odradek.replication.offset_lookup import EARLIEST, LATEST, OffsetLookup
from odradek.replication.partition import Partition
from odradek.replication.replication_state import IsrProposal
from tests.helpers.led_partitions import led
from tests.replication.cluster_fakes import (
    ALL,
    EPOCH,
    LAG_MS,
    LEADER,
    TOPIC_ID,
    TP,
    A,
    B,
    Cluster,
    Leader,
    Target,
    refused,
    replication_of,
)
from tests.replication.fakes import FakeDelayedOperation


class Follower:
    """A fetch session of a follower that counts the reports of partitions."""

    def __init__(self, replica_id: Any = A, last_fetch_ms: int = 0) -> None:
        self.replica_id = replica_id
        self.last_fetch_ms = last_fetch_ms
        self.reports: list[str] = []

    def appended(self, partition: Partition, size_bytes: int) -> None:
        self.reports.append("appended")
        state = replication_of(partition).state
        state.follower_was_idle(self.replica_id, self.last_fetch_ms)

    def changed(self, partition: Partition) -> None:
        self.reports.append("changed")

    def interrupt(self, partition: Partition) -> None:
        self.reports.append("interrupt")


def waiting(leader: Leader, offset: int, **options: bool) -> FakeDelayedOperation:
    """Return a produce request that waits until `offset` is committed."""
    produce = FakeDelayedOperation()
    assert leader.partition.acknowledgement(offset, committed=True) is None
    leader.partition.watch_produce(produce, offset, **options)
    return produce


def test_r2_append_below_min_isr_is_refused_and_appends_nothing(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER,), min_isr=2)
    assert refused(lambda: leader.append(-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.log.log_end_offset == 0
    assert leader.append(1) == 0


def test_r2_r5_minimum_of_a_changed_config_is_at_most_the_replica_count(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.log.update_config(replace(leader.log.config, min_insync_replicas=5))
    leader.partition.config_changed()
    leader.append(-1)
    produce = waiting(leader, 1)
    for replica in (A, B):
        leader.fetch(replica, 1)
    assert (produce.ended, leader.log.high_watermark) == ([ErrorCode.NONE], 1)


def test_r2_r5_minimum_of_a_changed_config_counts_as_one_for_a_single_replica(
    logs: LogManager,
) -> None:
    log = logs.create(TP, TOPIC_ID, LogConfig())
    partition = Partition(TP, TOPIC_ID, log, Cluster().parts)
    partition.become_leader(led(5, (LEADER,), (LEADER,)))
    log.update_config(replace(log.config, min_insync_replicas=2))
    partition.config_changed()
    partition.append(memoryview(build_batch([Record(None, b"x", 0)])), -1, 0)
    assert partition.acknowledgement(1, committed=True) is ErrorCode.NONE
    assert log.high_watermark == 1


def test_r3_acks_all_is_acknowledged_when_all_in_sync_replicas_have_fetched(
    logs: LogManager,
) -> None:
    leader = Leader(logs)
    leader.append(-1)
    produce = waiting(leader, 1)
    leader.fetch(A, 1)
    assert produce.ended == []
    leader.fetch(B, 1)
    assert produce.ended == [ErrorCode.NONE]
    assert leader.log.high_watermark == 1


def test_r3_isr_below_the_minimum_after_the_append(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append(-1)
    for replica in (A, B):
        leader.fetch(replica, 1)
    partition = leader.partition
    assert partition.acknowledgement(1, committed=True) is ErrorCode.NONE
    leader.change(isr=(LEADER,))
    leader.log.update_config(replace(leader.log.config, min_insync_replicas=2))
    partition.config_changed()
    code = partition.acknowledgement(1, committed=True)
    assert code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_r3_request_waits_while_the_isr_is_below_the_minimum(
    logs: LogManager,
) -> None:
    leader = Leader(logs, min_isr=2)
    leader.append(-1)
    produce = waiting(leader, 1)
    leader.partition.log.update_config(replace(leader.log.config, min_insync_replicas=3))
    leader.fetch(A, 1)
    leader.fetch(B, 1)
    assert produce.ended == [ErrorCode.NONE]  # the partition has not derived the new value yet
    leader.partition.config_changed()
    leader.append(-1)
    produce = waiting(leader, 2)
    leader.change(isr=(LEADER, A))
    leader.fetch(A, 2)
    leader.fetch(B, 2)
    assert produce.ended == []  # rule R5: the high watermark stands still
    leader.partition.log.update_config(replace(leader.log.config, min_insync_replicas=2))
    leader.partition.config_changed()
    assert produce.ended == [ErrorCode.NONE]


def test_r3_lost_leadership_fails_waiting_requests(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append(-1)
    produce = waiting(leader, 1)
    assert leader.partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    assert produce.ended == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert refused(lambda: leader.fetch(B, 1)) is ErrorCode.FENCED_LEADER_EPOCH
    assert refused(lambda: leader.fetch(B, 1, leader_epoch=6)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_r5_append_alone_in_the_isr_is_committed_at_once(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER,))
    leader.append()
    assert leader.log.high_watermark == 1


def test_r5_append_alone_in_the_isr_is_not_committed_below_the_minimum(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER,), min_isr=2)
    leader.append()
    assert leader.log.high_watermark == 0


def test_r5_high_watermark_waits_for_the_flush_of_the_leader(logs: LogManager) -> None:
    leader = Leader(logs, flush_messages=1)
    leader.append(-1)
    assert leader.partition.flush_due_offset == 1
    produce = waiting(leader, 1)
    leader.fetch(A, 1)
    leader.fetch(B, 1)
    assert (produce.ended, leader.log.high_watermark) == ([], 0)
    leader.partition.flushed(1)
    assert not leader.partition.flush_due_offset
    assert (produce.ended, leader.log.high_watermark) == ([ErrorCode.NONE], 1)


def test_acks_1_waits_for_the_flush_only(logs: LogManager) -> None:
    leader = Leader(logs, flush_messages=1)
    leader.append(1)
    partition = leader.partition
    assert partition.acknowledgement(1, committed=False) is None
    produce = FakeDelayedOperation()
    partition.watch_produce(produce, 1, committed=False)
    partition.flushed(1)
    assert not partition.flush_due_offset
    assert produce.ended == [ErrorCode.NONE]
    assert leader.log.high_watermark == 0
    assert partition.acknowledgement(1, committed=False) is ErrorCode.NONE


def test_r5_new_epoch_waits_for_the_flush_of_the_records_before_it(logs: LogManager) -> None:
    """The flush that is due began in the earlier epoch. A power cut may still lose the records."""
    leader = Leader(logs, flush_messages=1)
    leader.append(-1)
    leader.change(leader_epoch=6)
    for replica in (A, B):
        leader.fetch(replica, 1, leader_epoch=6)
    assert leader.log.high_watermark == 0
    leader.partition.flushed(1)
    assert not leader.partition.flush_due_offset
    assert leader.log.high_watermark == 1


def test_r8_log_start_of_a_follower_is_at_most_its_high_watermark(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    leader.append()
    follower = leader.partition
    follower.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    follower.follower_appended(leader_high_watermark=1, leader_log_start_offset=2)
    assert (leader.log.high_watermark, leader.log.log_start_offset) == (1, 1)


def test_flush_that_ends_in_a_follower_commits_nothing(logs: LogManager) -> None:
    leader = Leader(logs, flush_messages=1)
    leader.append(1)
    leader.partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    leader.partition.flushed(1)
    assert not leader.partition.flush_due_offset
    assert leader.log.high_watermark == 0


def test_r6_new_epoch_keeps_the_high_watermark_and_forgets_positions(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    leader.fetch(A, 1)
    leader.fetch(B, 1)
    leader.append()
    leader.fetch(A, 2)
    leader.change(leader_epoch=6)
    state = leader.replication.state
    assert [each.log_end_offset for each in state.followers] == [-1, -1]
    assert (leader.log.high_watermark, state.epoch_start_offset) == (1, 2)
    assert leader.log.end_offset_for_epoch(5) == (5, 2)
    # B has the position of the earlier epoch no longer, so A alone commits nothing.
    leader.fetch(A, 2, leader_epoch=6)
    assert leader.log.high_watermark == 1
    leader.fetch(B, 2, leader_epoch=6)
    assert leader.log.high_watermark == 2


def test_r6_election_in_a_later_epoch_without_news_of_the_one_between(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    leader.partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    leader.partition.become_leader(led(7, ALL, partition_epoch=12))
    leader.append()
    assert leader.log.epochs.latest == 7
    assert leader.partition.end_offset_for_epoch(6) == (5, 1)


def test_f1_fetch_of_another_leader_epoch_changes_nothing(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    before = leader.positions()
    fenced = refused(lambda: leader.fetch(A, 1, leader_epoch=4))
    assert fenced is ErrorCode.FENCED_LEADER_EPOCH
    unknown = refused(lambda: leader.fetch(A, 1, leader_epoch=6))
    assert unknown is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader.positions() == before


def test_f2_diverging_fetch_changes_nothing(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    leader.change(leader_epoch=6)
    leader.append()
    before = leader.positions()
    data = leader.fetch(A, 2, leader_epoch=6, last_fetched_epoch=5)
    assert (data.diverging_epoch, data.diverging_end_offset) == (5, 1)
    assert (data.region, data.copied) == (None, b"")
    assert leader.positions() == before


def test_f2_fetch_outside_of_the_log_changes_nothing(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER,))
    for _ in range(3):
        leader.append()
    leader.log.delete_records(2)
    before = leader.positions()
    for offset in (1, 4):
        assert refused(lambda at=offset: leader.fetch(A, at)) is ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[misc]
    assert leader.positions() == before


def test_i3_fetch_with_an_old_broker_epoch_changes_nothing(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    before = leader.positions()
    code = refused(lambda: leader.fetch(A, 1, broker_epoch=EPOCH - 1))
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.positions() == before


def test_fetch_of_a_replica_that_is_not_assigned_is_refused(logs: LogManager) -> None:
    leader = Leader(logs)
    other = type(A)(9)
    leader.cluster.brokers[other] = replace(leader.cluster.brokers[A], id=other)
    assert refused(lambda: leader.fetch(other, 0)) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_fetch_that_was_delayed_reads_and_moves_no_position(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    before = leader.positions()
    assert leader.fetch(A, 0, updates=False).copied
    assert leader.positions() == before


def test_records_above_the_high_watermark_are_copied(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append(value=b"uncommitted")
    data = leader.fetch(A, 0)
    assert data.region is None
    assert b"uncommitted" in data.copied
    leader.fetch(A, 1)
    leader.fetch(B, 1)
    leader.append()
    data = leader.fetch(B, 0)
    assert data.region is not None
    assert not data.copied
    data.region.close()


def test_response_has_the_high_watermark_that_its_own_fetch_advanced(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER, A))
    leader.append()
    assert leader.fetch(A, 1).high_watermark == 1


def test_consumers_are_completed_by_the_high_watermark_and_followers_by_the_append(
    logs: LogManager,
) -> None:
    """The high watermark alone does not complete a follower's fetch (KAFKA-9952)."""
    leader = Leader(logs)
    consumer, follower = FakeDelayedOperation(), Follower()
    leader.partition.watch_fetch(consumer, FetchIsolation.HIGH_WATERMARK)
    leader.partition.watch_follower(follower)
    leader.append()
    assert (consumer.size_bytes, follower.reports) == (0, ["appended"])
    leader.fetch(A, 1)
    assert consumer.size_bytes == 0
    leader.fetch(B, 1)
    assert consumer.size_bytes > 0
    assert follower.reports == ["appended", "changed"]


@pytest.mark.parametrize(
    "isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.COMMITTED], ids=lambda it: it.name
)
def test_long_poll_of_a_consumer_counts_the_bytes_below_the_high_watermark(
    logs: LogManager, isolation: FetchIsolation
) -> None:
    leader, consumer = Leader(logs), FakeDelayedOperation()
    leader.append()
    size_bytes = leader.log.size_bytes
    leader.partition.watch_fetch(consumer, isolation)
    leader.append()
    leader.append()
    for replica in (A, B):
        leader.fetch(replica, 2)
    assert consumer.size_bytes == 2 * size_bytes
    for replica in (A, B):
        leader.fetch(replica, 3)
    assert consumer.size_bytes == 3 * size_bytes


def test_followers_are_interrupted_by_a_new_epoch_and_by_a_stop(logs: LogManager) -> None:
    leader, follower = Leader(logs), Follower()
    leader.partition.watch_follower(follower)
    leader.change(leader_epoch=6)
    assert follower.reports == ["interrupt"]
    leader.partition.storage_failed()
    assert follower.reports == ["interrupt", "interrupt"]
    leader.partition.unwatch_follower(follower)
    leader.partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert follower.reports == ["interrupt", "interrupt"]


def test_i1_follower_of_an_idle_partition_was_caught_up_at_its_last_fetch(
    logs: LogManager,
) -> None:
    """A session does not visit partitions without news. These fetches count all the same."""
    leader = Leader(logs)
    leader.append()
    leader.fetch(A, 1)
    leader.fetch(B, 1)
    clock = leader.cluster.clock
    clock.advance(100 * LAG_MS)
    for replica in (A, B):
        leader.partition.watch_follower(Follower(replica, int(clock.monotonic_ms())))
    leader.append()
    leader.replication.check_followers()
    assert leader.cluster.proposals.sent == []
    clock.advance(LAG_MS + 1)
    leader.replication.check_followers()
    assert leader.cluster.proposals.pop().isr == ((LEADER, -1),)


def test_i1_follower_that_stopped_fetching_leaves_the_isr_after_the_lag_time(
    logs: LogManager,
) -> None:
    leader = Leader(logs)
    leader.fetch(A, 0)
    leader.append(-1)
    produce = waiting(leader, 1)
    leader.cluster.clock.advance(LAG_MS + 1)
    leader.fetch(A, 1)
    leader.replication.check_followers()
    proposal = leader.cluster.proposals.pop()
    assert proposal.isr == ((LEADER, -1), (A, EPOCH))
    assert produce.ended == []  # rule R4: until the controller has committed the change
    leader.change(isr=(LEADER, A))
    assert produce.ended == [ErrorCode.NONE]


def proposed(leader: Leader) -> IsrProposal:
    leader.fetch(B, leader.log.log_end_offset)
    return leader.cluster.proposals.pop()


def answer(leader: Leader, proposal: IsrProposal, partition_epoch: int) -> None:
    members = tuple(broker for broker, _ in proposal.isr)
    leader.replication.proposal_succeeded(
        proposal, 5, partition_epoch, members, LeaderRecoveryState.RECOVERED
    )


def test_i5_success_counts_when_the_image_of_its_partition_epoch_has_arrived(
    logs: LogManager,
) -> None:
    """A raised min.insync.replicas may be in flight, with which the controller filled the ELR."""
    leader = Leader(logs, (LEADER, A))
    proposal = proposed(leader)
    answer(leader, proposal, 11)
    assert leader.partition.isr == (LEADER, A)
    leader.change(isr=ALL)
    assert leader.partition.isr == ALL
    answer(leader, proposal, 11)
    assert leader.partition.isr == ALL


def test_i5_success_without_a_change_ends_the_pending_state(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER, A))
    proposal = proposed(leader)
    answer(leader, proposal, 10)
    state = leader.replication.state
    assert state.pending is None
    assert leader.partition.isr == ALL


def test_i5_error_that_says_nothing_of_the_proposal_sends_it_again(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER, A))
    proposal = proposed(leader)
    leader.replication.proposal_failed(proposal, ErrorCode.NOT_CONTROLLER)
    assert leader.cluster.proposals.pop() == proposal
    leader.replication.proposal_failed(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert leader.cluster.proposals.sent == []
    assert proposed(leader) == proposal


def test_answer_to_a_deposed_leader_changes_nothing(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER, A))
    proposal = proposed(leader)
    deposed = leader.replication
    leader.partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    for each in range(2):
        deposed.proposal_succeeded(proposal, 5, 10, (LEADER,), LeaderRecoveryState.RECOVERED)
        deposed.proposal_failed(proposal, ErrorCode.NOT_CONTROLLER)
        assert not deposed.is_pending(proposal)
        assert (leader.partition.isr, leader.cluster.proposals.sent) == (ALL, [])
        if not each:
            leader.partition.become_leader(led(7, ALL, partition_epoch=12))


def test_r8_follower_takes_the_leaders_high_watermark_up_to_its_log_end(logs: LogManager) -> None:
    leader = Leader(logs)
    for _ in range(3):
        leader.append()
    partition = leader.partition
    partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    partition.follower_appended(2, 0)
    assert partition.log.high_watermark == 2
    partition.follower_appended(9, 1)
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (3, 1)
    partition.follower_appended(1, 0)
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (3, 1)


def test_r8_deletion_waits_for_the_log_start_of_each_replica_that_is_alive(
    logs: LogManager,
) -> None:
    leader = Leader(logs)
    leader.append()
    for replica in (A, B):
        leader.fetch(replica, 1)
    leader.log.delete_records(1)
    leader.partition.log_start_offset_raised()
    deletion = FakeDelayedOperation()
    assert leader.partition.low_watermark == 0
    leader.partition.watch_low_watermark(deletion, 1)
    leader.fetch(A, 1, follower_log_start_offset=1)
    assert deletion.ended == []
    leader.fetch(B, 1, follower_log_start_offset=1)
    assert deletion.ended == [ErrorCode.NONE]
    leader.cluster.change_broker(B, fenced=True)
    assert leader.partition.low_watermark == 1


def test_retention_that_moved_the_log_start_is_news_for_followers(logs: LogManager) -> None:
    leader, follower = Leader(logs, (LEADER,)), Follower()
    leader.append()
    leader.partition.watch_follower(follower)
    leader.log.raise_log_start(1)
    leader.replication.check_followers()
    assert follower.reports == ["changed"]
    leader.replication.check_followers()
    assert follower.reports == ["changed"]


def test_follower_that_left_the_isr_is_visited_again(logs: LogManager) -> None:
    """It may have caught up before it was removed. Then no append of the leader is news for it."""
    leader, inside, outside = Leader(logs), Follower(A), Follower(B)
    leader.partition.watch_follower(inside)
    leader.partition.watch_follower(outside)
    leader.change(isr=(LEADER, A))
    assert (inside.reports, outside.reports) == ([], ["changed"])


def test_image_of_an_older_epoch_does_not_depose_a_leader(logs: LogManager) -> None:
    leader = Leader(logs)
    assert not leader.partition.become_follower(led(4, ALL, leader=A))
    assert leader.append() == 0


def test_last_fetch_of_the_isr_includes_fetches_that_found_no_news(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER, A))
    leader.cluster.clock.advance(5)
    leader.fetch(A, 0)
    leader.fetch(B, 0)
    assert leader.replication.last_fetch_of_isr_ms == 5
    leader.partition.watch_follower(Follower(B, 90))
    assert leader.replication.last_fetch_of_isr_ms == 5
    leader.partition.watch_follower(Follower(A, 70))
    assert leader.replication.last_fetch_of_isr_ms == 70


def test_single_replica_of_a_cluster_commits_on_append(logs: LogManager) -> None:
    leader = Leader(logs)
    partition = Partition(TP, TOPIC_ID, leader.log, leader.cluster.parts)
    partition.become_leader(led(6))
    assert partition.replication is None
    assert partition.commits_on_append


def test_r6_latest_offset_is_not_available_until_the_high_watermark_is_of_the_epoch(
    logs: LogManager,
) -> None:
    leader = Leader(logs)
    leader.append()
    leader.change(leader_epoch=6)
    partition = leader.partition
    lookup = OffsetLookup(partition, LATEST, FetchIsolation.HIGH_WATERMARK)
    assert refused(lookup.known) is ErrorCode.OFFSET_NOT_AVAILABLE
    of_replica = OffsetLookup(partition, LATEST, FetchIsolation.LOG_END).known()
    assert of_replica is not None
    assert of_replica.offset == 1
    assert OffsetLookup(partition, EARLIEST, FetchIsolation.COMMITTED).known() is not None
    for replica in (A, B):
        leader.fetch(replica, 1, leader_epoch=6)
    found = OffsetLookup(partition, LATEST, FetchIsolation.HIGH_WATERMARK).known()
    assert found is not None
    assert found.offset == 1


def test_r6_timestamp_of_a_record_above_the_high_watermark_is_not_available(
    logs: LogManager,
) -> None:
    leader = Leader(logs)
    leader.append()
    leader.change(leader_epoch=6)

    async def search(isolation: FetchIsolation) -> int:
        with ThreadPoolExecutor(1) as executor:
            runner = WorkRunner(executor, 1, asyncio.Lock())
            return (await OffsetLookup(leader.partition, 0, isolation).search(runner)).offset

    code = refused(lambda: asyncio.run(search(FetchIsolation.HIGH_WATERMARK)))
    assert code is ErrorCode.OFFSET_NOT_AVAILABLE
    assert asyncio.run(search(FetchIsolation.LOG_END)) == 0
    for replica in (A, B):
        leader.fetch(replica, 1, leader_epoch=6)
    assert asyncio.run(search(FetchIsolation.HIGH_WATERMARK)) == 0


def test_r5_recovered_records_of_a_new_leader_wait_for_their_flush(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    leader.append()
    leader.partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    leader.log.update_config(replace(leader.log.config, flush_messages=1))
    leader.partition.become_leader(led(7, ALL, partition_epoch=12))
    assert leader.partition.flush_due_offset == 2
    for replica in (A, B):
        leader.fetch(replica, 2, leader_epoch=7)
    assert leader.log.high_watermark == 0
    leader.partition.flushed(2)
    assert not leader.partition.flush_due_offset
    assert leader.log.high_watermark == 2


def test_r5_follower_outside_of_the_isr_holds_the_high_watermark_for_the_lag_time_only(
    logs: LogManager,
) -> None:
    """It was about to join the ISR and stopped. No fetch or append follows."""
    leader = Leader(logs, (LEADER, A))
    leader.fetch(B, 0)
    leader.cluster.change_broker(B, fenced=True)
    leader.replication.proposal_failed(leader.cluster.proposals.pop(), ErrorCode.INELIGIBLE_REPLICA)
    leader.cluster.change_broker(B, fenced=False)
    leader.append(-1)
    produce = waiting(leader, 1)
    leader.fetch(A, 1)
    assert produce.ended == []
    leader.cluster.clock.advance(LAG_MS + 1)
    leader.replication.check_followers()
    assert produce.ended == [ErrorCode.NONE]


def test_partition_that_is_stopped_by_the_requests_that_a_fetch_completes_is_not_read(
    logs: LogManager,
) -> None:
    leader = Leader(logs, (LEADER, A))
    leader.append()

    class Stopper(FakeDelayedOperation):
        def resolve(self, partition: Partition, error: ErrorCode) -> None:
            partition.stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    leader.partition.watch_produce(Stopper(), 1)
    assert refused(lambda: leader.fetch(A, 1)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_read_on_a_thread_is_repeated_after_a_truncation(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append()
    leader.append()
    found = read_for_follower(leader.log, 0, 1 << 20, 0, wait=True)
    leader.partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    truncate_to(leader.log, 1)
    leader.partition.become_leader(led(7, ALL, partition_epoch=12))
    with pytest.raises(ColdRead) as again:
        leader.replication.fetch(A, EPOCH, Target(0, 7), 1 << 20, lambda: found, updates=False)
    data = leader.replication.fetch(
        A, EPOCH, Target(0, 7), 1 << 20, again.value.read, updates=False
    )
    assert 0 < len(data.copied) < len(found.copied)


def test_partition_that_was_stopped_begins_anew_in_the_same_epoch(logs: LogManager) -> None:
    leader = Leader(logs)
    partition = Partition(TP, TOPIC_ID, leader.log)
    partition.become_leader(led(6))
    partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader.append()
    assert leader.log.high_watermark == 0
    partition.become_leader(led(6))
    assert leader.log.high_watermark == 1


def test_duplicate_is_no_news_for_followers(logs: LogManager) -> None:
    leader, follower = Leader(logs), Follower()
    options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    records = build_batch([Record(None, b"x", 0)], **options)
    leader.partition.append(memoryview(bytearray(records)), 1, 0)
    leader.partition.watch_follower(follower)
    assert leader.partition.append(memoryview(bytearray(records)), 1, 0).duplicate
    assert follower.reports == []


def test_partition_without_a_leader_serves_no_replica_verification(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.partition.become_follower(led(6, ALL, leader=-1, partition_epoch=11))
    assert not leader.partition.is_follower
    code = refused(lambda: leader.partition.check_leader_epoch(6, or_follower=True))
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
