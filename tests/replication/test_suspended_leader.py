"""A leader that must not serve for a time, because it may have been deposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.log_manager import LogManager
from tests.helpers.led_partitions import led
from tests.replication.cluster_fakes import ALL, LEADER, A, B, Leader
from tests.replication.fakes import FakeDelayedOperation

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([str(tmp_path)], LogConfig(), ManualClock())
    manager.load("cluster", 1)
    yield manager
    manager.close(clean=False)


def refused(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


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
