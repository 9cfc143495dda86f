"""The end of the lease of all partitions at once, and the visits of partitions in time slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker import leadership_lease
from odradek.broker.leadership_lease import PARTITIONS_A_SLICE, Heard, LeadershipLease
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, TopicPartition
from odradek.metadata.image import UNKNOWN_BROKER_EPOCH, PartitionImage
from odradek.metadata.store.interface import SessionState
from odradek.replication.replication_state import NEVER_MS

TIMEOUT_MS = 100
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FakePartition:
    """A partition that counts its visits."""

    def __init__(self, number: int, broker: Broker) -> None:
        self.topic_partition = TopicPartition(TopicName("t"), number)
        self.leader_epoch = 4
        self.is_suspended = False
        self._broker = broker

    @property
    def replication(self) -> Any:
        self._broker.visited += 1
        return SimpleNamespace(last_fetch_of_isr_ms=NEVER_MS)


class Broker:
    """A broker whose timers run when `step` is called. It is the `ReplicaManager`, too."""

    def __init__(self, partitions: int) -> None:
        self.now_ms = 1_000.0
        self.epoch = self.image_epoch = 5
        self.state = SessionState.CONNECTED
        self.led = [FakePartition(number, self) for number in range(partitions)]
        self.newest = dict.fromkeys(range(partitions), 4)
        self.is_expired = False
        self.visited = 0
        self.failures = 0
        """The number of further calls of `changed` that raise."""
        self.scheduled: list[Callable[[], object]] = []
        store: Any = SimpleNamespace(state=self.state, subscribe=lambda _: None)
        self.lease = LeadershipLease(
            store,
            lambda: self.epoch,
            lambda: Heard(self.image_epoch, -1e9),
            lambda: SimpleNamespace(partition=self.image_of),  # type: ignore[arg-type,return-value]
            self,  # type: ignore[arg-type]
            self.changed,
            SimpleNamespace(monotonic_ms=lambda: self.now_ms),  # type: ignore[arg-type]
            SimpleNamespace(call_later=self.call_later),  # type: ignore[arg-type]
            TIMEOUT_MS,
        )
        self.lease.check()  # as `start` does

    def image_of(self, _: str, number: int) -> PartitionImage:
        members = (BrokerId(1),)
        return PartitionImage(number, BrokerId(1), self.newest[number], 7, members, members)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        assert not delay_s
        self.scheduled.append(callback)

    def changed(self, _: TopicPartition) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("a delayed operation is defective")

    # --- ReplicaManager ---

    def partitions(self) -> tuple[FakePartition, ...]:
        return tuple(self.led)

    def expire_lease(self) -> None:
        self.is_expired = True

    def renew_lease(self) -> None:
        self.is_expired = False

    def suspend(self, partition: FakePartition) -> None:
        partition.is_suspended = True

    def resume(self, partition: FakePartition) -> None:
        partition.is_suspended = False

    # --- events ---

    def check(self) -> None:
        self.visited = 0
        self.lease.check()
        assert self.visited <= PARTITIONS_A_SLICE

    def step(self) -> bool:
        """Run the next time slice. Return whether there was one."""
        if not self.scheduled:
            return False
        self.visited = 0
        self.scheduled.pop(0)()
        assert self.visited <= PARTITIONS_A_SLICE
        return True

    def lose(self) -> None:
        self.epoch = UNKNOWN_BROKER_EPOCH
        self.check()

    def join(self) -> None:
        self.now_ms += 1
        self.epoch = int(self.now_ms)
        self.check()

    def learn(self) -> None:
        """Receive the image with the newest registration."""
        self.image_epoch = self.epoch
        self.check()

    def elect(self) -> None:
        """Elect this broker in an epoch that the partition has not applied yet."""
        self.newest[self.newest_number] += 1

    @property
    def newest_number(self) -> int:
        return sum(self.newest.values()) % len(self.led)

    def may_append(self) -> list[int]:
        if self.is_expired:
            return []
        return [at for at, partition in enumerate(self.led) if not partition.is_suspended]


def test_lost_session_ends_the_lease_of_all_partitions_before_the_first_slice_ends() -> None:
    broker = Broker(3 * PARTITIONS_A_SLICE)
    assert broker.visited == 0
    broker.lose()
    assert broker.may_append() == []
    assert [each.is_suspended for each in broker.led].count(True) == PARTITIONS_A_SLICE
    while broker.step():
        pass
    assert all(each.is_suspended for each in broker.led)


def test_lease_is_renewed_after_all_partitions_were_suspended() -> None:
    """The newest image has another leader epoch of the last partition, which is not applied yet."""
    broker = Broker(3 * PARTITIONS_A_SLICE)
    last = len(broker.led) - 1
    broker.newest[last] = 5
    broker.lose()
    broker.join()
    broker.learn()
    seen = []
    while broker.step():
        seen.append(broker.may_append())
    assert all(last not in each for each in seen)
    assert broker.may_append() == list(range(last))


@pytest.mark.parametrize("failures", [1, 2, 7])
def test_visits_that_fail_begin_again_with_the_next_check(
    failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the broker would serve no partition until it is restarted."""
    broker = Broker(2 * PARTITIONS_A_SLICE)
    partitions = list(range(len(broker.led)))

    def visit() -> None:
        for _ in range(failures + 1):
            broker.check()
            while broker.step():
                pass

    broker.failures = failures
    broker.lose()
    visit()
    assert all(each.is_suspended for each in broker.led)
    broker.join()
    broker.learn()
    broker.failures = failures
    visit()
    assert broker.may_append() == partitions
    assert [each.levelname for each in caplog.records].count("ERROR") == 2 * failures


def test_partitions_are_visited_only_without_a_lease() -> None:
    broker = Broker(3)
    for _ in range(5):
        broker.check()
    assert not broker.visited and not broker.scheduled
    broker.lose()
    broker.join()
    broker.learn()
    while broker.step():
        pass
    broker.check()
    assert not broker.visited and not broker.scheduled


def test_stopped_broker_leads_nothing_and_never_again() -> None:
    broker = Broker(3 * PARTITIONS_A_SLICE)
    asyncio.run(broker.lease.stop())
    assert broker.is_expired and all(each.is_suspended for each in broker.led)
    broker.join()
    broker.learn()
    broker.lease.image_changed(SimpleNamespace(brokers=SimpleNamespace(changed={1: 1})), None, None)  # type: ignore[arg-type]
    assert not broker.step() and broker.may_append() == []


def test_stop_ends_the_lease_also_if_a_partition_cannot_be_suspended() -> None:
    """The stop of the broker has further steps, among them the end of its session."""
    broker = Broker(3)
    broker.failures = 1
    asyncio.run(broker.lease.stop())
    assert broker.may_append() == []


def test_new_registration_in_the_image_renews_the_lease() -> None:
    broker = Broker(2)
    broker.lose()
    broker.join()
    broker.image_epoch = broker.epoch
    unrelated: Any = SimpleNamespace(brokers=SimpleNamespace(changed={}))
    broker.lease.image_changed(unrelated, None, None)  # type: ignore[arg-type]
    assert broker.may_append() == []
    own: Any = SimpleNamespace(brokers=SimpleNamespace(changed={1: 1}))
    broker.lease.image_changed(own, None, None)  # type: ignore[arg-type]
    while broker.step():
        pass
    assert broker.may_append() == [0, 1]


@given(st.lists(st.sampled_from(["lose", "join", "learn", "elect", "step", "check"])))
def test_no_partition_serves_after_a_lost_session_in_an_older_epoch(events: list[str]) -> None:
    broker = Broker(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leadership_lease, "PARTITIONS_A_SLICE", 1)
        is_lost = False
        outdated: set[int] = set()
        for event in [*events, "join", "learn"]:
            getattr(broker, event)()
            if event == "lose":
                is_lost = True
            if event == "learn" and broker.epoch != UNKNOWN_BROKER_EPOCH:
                is_lost = False
            if event == "join":
                is_lost = True
            if is_lost:
                assert broker.may_append() == []
                outdated = {at for at in broker.newest if broker.newest[at] > 4}
            assert not outdated & set(broker.may_append())
        outdated = {at for at in broker.newest if broker.newest[at] > 4}
        while broker.step():
            pass
        assert set(broker.may_append()) >= set(broker.newest) - outdated
