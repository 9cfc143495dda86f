"""A leader that must not serve for a time: without a lease, or possibly deposed."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.log.directories.log_manager import LogManager
from tests.helpers.led_partitions import led
from tests.replication.cluster_fakes import ALL, LEADER, A, B, Leader, refused
from tests.replication.fakes import FakeDelayedOperation

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_suspended_leader_refuses_requests_and_fails_those_that_wait(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append(-1)
    produce = FakeDelayedOperation()
    leader.partition.watch_produce(produce, 1)
    leader.partition.suspend()
    assert produce.ended == [NOT_LEADER]
    before = leader.positions()
    assert refused(lambda: leader.append(1)) is NOT_LEADER
    assert refused(lambda: leader.fetch(A, 1)) is NOT_LEADER
    assert leader.positions() == before
    assert not leader.partition.is_follower
    assert leader.log.log_end_offset == 1


@pytest.mark.parametrize("new_epoch", [False, True])
def test_flush_that_ends_during_the_suspension_counts_when_the_leader_is_resumed(
    logs: LogManager, *, new_epoch: bool
) -> None:
    leader = Leader(logs, flush_messages=1)
    leader.append(-1)
    if new_epoch:
        leader.cluster.parts.lease.expire()
        leader.change(leader_epoch=6)
        leader.cluster.parts.lease.renew()
    leader.partition.suspend()
    leader.log.flush()
    leader.partition.flushed(1)
    leader.partition.resume()
    for replica in ALL[1:]:
        leader.fetch(replica, 1, leader_epoch=leader.partition.leader_epoch)
    assert leader.log.high_watermark == 1


def test_leader_that_is_resumed_before_the_end_of_a_flush_still_waits_for_it(
    logs: LogManager,
) -> None:
    leader = Leader(logs, flush_messages=1)
    leader.append(-1)
    leader.partition.suspend()
    leader.partition.resume()
    for replica in ALL[1:]:
        leader.fetch(replica, 1)
    assert leader.log.high_watermark == 0
    leader.log.flush()
    leader.partition.flushed(1)
    assert leader.log.high_watermark == 1


def test_leader_that_is_resumed_keeps_its_positions_and_its_proposal(logs: LogManager) -> None:
    leader = Leader(logs, (LEADER, A))
    leader.append(-1)
    leader.fetch(A, 1)
    leader.fetch(B, 1)
    state = leader.partition.replication
    assert state is not None and state.state.pending is not None
    before = leader.positions()
    leader.partition.suspend()
    leader.partition.resume()
    assert leader.partition.replication is state
    assert state.state.pending is not None and leader.positions() == before
    assert leader.append(1) == 1


def test_suspended_leader_takes_a_new_isr_and_stays_suspended(logs: LogManager) -> None:
    leader = Leader(logs)
    state = leader.partition.replication
    leader.partition.suspend()
    leader.change(isr=(LEADER, A))
    assert leader.partition.replication is state
    assert leader.partition.isr == (LEADER, A)
    assert refused(lambda: leader.append(1)) is NOT_LEADER
    leader.partition.resume()
    assert leader.append(1) == 0


def test_suspended_leader_proposes_no_smaller_isr(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append(-1)
    leader.partition.suspend()
    leader.cluster.clock.advance(1_000_000)
    leader.replication.check_followers()
    assert leader.replication.state.pending is None


def test_new_leader_epoch_ends_the_suspension(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append(-1)
    state = leader.partition.replication
    leader.partition.suspend()
    leader.change(leader_epoch=6)
    assert leader.partition.replication is not state
    assert not leader.partition.is_suspended
    assert leader.append(1) == 1


def test_suspended_leader_becomes_a_follower(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.partition.suspend()
    assert leader.partition.become_follower(led(6, ALL, leader=A, partition_epoch=11))
    assert leader.partition.is_follower and leader.partition.replication is None
    leader.partition.resume()
    assert refused(lambda: leader.append(1)) is NOT_LEADER


def test_partition_without_suspension_is_not_changed_by_resume(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.partition.storage_failed()
    leader.partition.resume()
    assert refused(lambda: leader.append(1)) is ErrorCode.KAFKA_STORAGE_ERROR


# --- without a lease ---


@pytest.mark.parametrize("acks", [1, -1])
def test_leader_without_a_lease_appends_nothing(logs: LogManager, acks: int) -> None:
    leader = Leader(logs)
    leader.cluster.parts.lease.expire()
    assert refused(lambda: leader.append(acks)) is NOT_LEADER
    assert leader.log.log_end_offset == 0
    leader.cluster.parts.lease.renew()
    assert leader.append(acks) == 0


def test_leader_without_a_lease_does_not_acknowledge_after_a_flush(logs: LogManager) -> None:
    """With acks=1 no other replica has the records."""
    leader = Leader(logs, flush_messages=1)
    leader.append()
    produce, late = FakeDelayedOperation(), FakeDelayedOperation()
    leader.partition.watch_produce(produce, 1, committed=False)
    leader.cluster.parts.lease.expire()
    assert leader.partition.acknowledgement(1, committed=False) is NOT_LEADER
    leader.partition.flushed(1)
    assert produce.ended == [NOT_LEADER]
    leader.cluster.parts.lease.renew()
    leader.append()
    leader.partition.watch_produce(late, 2, committed=False)
    leader.partition.flushed(2)
    assert late.ended == [ErrorCode.NONE]


def test_leader_without_a_lease_acknowledges_what_all_replicas_have(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.append(-1)
    produce = FakeDelayedOperation()
    leader.partition.watch_produce(produce, 1)
    leader.cluster.parts.lease.expire()
    for replica in ALL[1:]:
        leader.fetch(replica, 1)
    assert produce.ended == [ErrorCode.NONE]


def test_new_leader_epoch_of_an_older_image_does_not_end_the_suspension(logs: LogManager) -> None:
    """The delta of an election is applied after the end of the session."""
    leader = Leader(logs)
    leader.cluster.parts.lease.expire()
    leader.partition.suspend()
    leader.change(leader_epoch=6)
    leader.cluster.parts.lease.renew()
    assert leader.partition.is_suspended and not leader.partition.is_follower
    assert refused(lambda: leader.append()) is NOT_LEADER
    assert refused(lambda: leader.fetch(A, 0, leader_epoch=6)) is NOT_LEADER
    leader.partition.resume()
    assert leader.append() == 0


def test_partition_without_other_replicas_needs_no_lease(logs: LogManager) -> None:
    leader = Leader(logs)
    leader.cluster.parts.lease.expire()
    leader.partition.become_leader(led(6))
    assert leader.append() == 0
