"""A leader whose fetches visit only partitions with news decides as one that visits all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.ids import BrokerId, TopicName
from odradek.log.directories.log_manager import LogManager
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.replication.replication_state import Effects, IsrProposal, ReplicationState
from tests.replication.cluster_fakes import (
    ALL,
    EPOCH,
    LAG_MS,
    LEADER,
    TOPIC_ID,
    A,
    B,
    replication_of,
)
from tests.replication.leader_broker import Broker

PARTITIONS = 3
NUMBERS = range(PARTITIONS)
FOLLOWERS = (A, B)

numbers = st.integers(0, PARTITIONS - 1)
replicas = st.sampled_from(FOLLOWERS)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), numbers),
        st.tuples(st.just("fetch"), replicas),
        st.tuples(st.just("fetch"), replicas),
        st.tuples(st.just("receive"), replicas),
        st.tuples(st.just("advance"), st.sampled_from([1, LAG_MS // 2, LAG_MS, 3 * LAG_MS])),
        st.tuples(st.just("check"), st.none()),
        st.tuples(st.just("fence"), replicas),
        st.tuples(st.just("commit"), st.booleans()),
        st.tuples(st.just("elect"), st.none()),
        st.tuples(st.just("reconnect"), replicas),
        st.tuples(st.just("settle"), st.none()),
        st.tuples(st.just("idle"), st.sampled_from([(A,), (B,), (A, B)])),
    ),
    min_size=20,
    max_size=60,
)


class Oracle:
    """The states of all partitions. Each fetch visits each of them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.states: dict[int, ReplicationState] = {}

    @property
    def now_ms(self) -> int:
        return int(self.broker.cluster.clock.monotonic_ms())

    def elect(self, image: PartitionImage, end_offset: int) -> None:
        old = self.states.get(image.partition)
        self.states[image.partition] = ReplicationState(
            LEADER,
            image,
            min_insync_replicas=1,
            replica_lag_time_max_ms=LAG_MS,
            log_start_offset=0,
            log_end_offset=end_offset,
            high_watermark=0 if old is None else old.high_watermark,
            now_ms=self.now_ms,
        )

    def each(self, event: Callable[[ReplicationState, int], Effects]) -> None:
        for number, state in self.states.items():
            event(state, number)


class Machine:
    """A broker with news, the oracle, and two followers of both."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.oracle = Oracle(broker)
        # The log ends of the followers, and their log ends as of their last requests.
        self.ends = {replica: dict.fromkeys(NUMBERS, 0) for replica in FOLLOWERS}
        self.requested = {replica: dict.fromkeys(NUMBERS, -1) for replica in FOLLOWERS}
        self.news: dict[BrokerId, Any] = {}
        self.targets: dict[BrokerId, list[Any]] = {}
        self.received: dict[BrokerId, dict[int, int]] = {replica: {} for replica in FOLLOWERS}
        self.leader_epoch = 5
        for number in NUMBERS:
            self.oracle.elect(self.image(number), 0)
        for replica in FOLLOWERS:
            self.open(replica)

    def image(self, number: int) -> PartitionImage:
        return self.broker.image.topics_by_id[TOPIC_ID].partitions[number]

    def open(self, replica: BrokerId) -> None:
        """Begin a session in the current leader epoch."""
        if replica in self.news:
            self.news[replica].close()
        self.broker.targets = [
            replace(target, leader_epoch=self.leader_epoch) for target in self.broker.targets
        ]
        self.targets[replica] = self.broker.targets
        self.news[replica] = self.broker.news(replica)

    def set_images(self, images: list[PartitionImage]) -> None:
        self.broker.set_topic(TopicImage(TopicName("t"), TOPIC_ID, images))

    # --- operations ---

    def append(self, number: int) -> None:
        self.broker.append(number)
        end = self.end(number)
        state = self.oracle.states[number]
        if state.leader_appended(end, end):
            brokers, now_ms = self.broker.cluster.brokers, self.oracle.now_ms
            state.maybe_increment_high_watermark(brokers, now_ms)

    def end(self, number: int) -> int:
        return self.broker.manager.partition("t", number).log.log_end_offset

    def fetch(self, replica: BrokerId) -> None:
        """Send a request that names the partitions with a new offset only."""
        news = self.news[replica]
        for number, target in enumerate(self.targets[replica]):
            target.fetch_offset = self.ends[replica][number]
            if target.fetch_offset != self.requested[replica][number]:
                news.visit(target)
                self.requested[replica][number] = target.fetch_offset
        for target, data in self.broker.fetch(news).get():
            assert not data.error
            if data.copied or data.region:
                self.received[replica][target.partition] = self.end(target.partition)
            if data.region is not None:
                data.region.close()
        brokers, now_ms = self.broker.cluster.brokers, self.oracle.now_ms
        self.oracle.each(
            lambda state, number: state.follower_fetched(
                replica, EPOCH, self.ends[replica][number], 0, brokers, now_ms
            )
        )

    def receive(self, replica: BrokerId) -> None:
        """Append what the last responses had."""
        self.ends[replica].update(self.received[replica])
        self.received[replica].clear()

    def advance(self, delta_ms: int) -> None:
        self.broker.cluster.clock.advance(delta_ms)

    def check(self, _: None) -> None:
        for number in NUMBERS:
            replication_of(self.broker.manager.partition("t", number)).check_followers()
        now_ms = self.oracle.now_ms
        self.oracle.each(lambda state, _: state.maybe_shrink_isr(now_ms))

    def fence(self, replica: BrokerId) -> None:
        """Fence a broker, or end that."""
        fenced = self.broker.cluster.brokers[replica].fenced
        self.broker.cluster.change_broker(replica, fenced=not fenced)

    def commit(self, accepted: bool) -> None:
        """Commit all pending proposals, or change the partition epoch without them."""
        images = []
        for number in NUMBERS:
            image = self.image(number)
            pending = self.oracle.states[number].pending
            if pending is not None:
                isr = tuple(broker for broker, _ in pending.isr) if accepted else image.isr
                epoch = image.partition_epoch + 1
                image = replace(image, isr=isr, partition_epoch=epoch)
            images.append(image)
        self.set_images(images)
        brokers, now_ms = self.broker.cluster.brokers, self.oracle.now_ms
        self.oracle.each(
            lambda state, number: state.partition_changed(images[number], brokers, now_ms)
        )

    def elect(self, _: None) -> None:
        """Elect the same leader again. The followers begin new sessions."""
        self.leader_epoch += 1
        images = [
            replace(
                self.image(number),
                leader_epoch=self.leader_epoch,
                partition_epoch=self.image(number).partition_epoch + 1,
            )
            for number in NUMBERS
        ]
        self.set_images(images)
        for image in images:
            self.oracle.elect(image, self.end(image.partition))
        for replica in FOLLOWERS:
            self.reconnect(replica)

    def reconnect(self, replica: BrokerId) -> None:
        """Close the session of a follower and begin another one, which has not fetched yet."""
        self.open(replica)
        self.requested[replica] = dict.fromkeys(NUMBERS, -1)

    def settle(self, _: None) -> None:
        """Let both followers reach the log ends."""
        for replica in FOLLOWERS:
            self.fetch(replica)
            self.receive(replica)
            self.fetch(replica)
            self.received[replica].clear()

    def idle(self, replicas: tuple[BrokerId, ...]) -> None:
        """Let some followers fetch for a long time in which nothing is appended."""
        for _ in range(3):
            self.advance(LAG_MS - 1)
            for replica in replicas:
                self.fetch(replica)

    # --- comparison ---

    def compare(self) -> None:
        brokers, now_ms = self.broker.cluster.brokers, self.oracle.now_ms
        for number in NUMBERS:
            partition = self.broker.manager.partition("t", number)
            replication, expected = replication_of(partition), self.oracle.states[number]
            state = replication.state
            # A follower that is about to join holds the high watermark for a time. The oracle
            # notices the end of it at each visit.
            replication._perform(state.maybe_increment_high_watermark(brokers, now_ms))
            expected.maybe_increment_high_watermark(brokers, now_ms)
            assert state.high_watermark == expected.high_watermark == partition.log.high_watermark
            assert state.isr == expected.isr == partition.isr
            assert state.pending == expected.pending
            for actual, oracle in zip(state.followers, expected.followers, strict=True):
                assert actual.log_end_offset == oracle.log_end_offset
                self.check_committed(number, actual.broker_id, state)

    def check_committed(self, number: int, replica: BrokerId, state: ReplicationState) -> None:
        if replica in state.maximal_isr:
            assert self.ends[replica][number] >= state.high_watermark


async def run(operations: list[tuple[str, Any]], executor: ThreadPoolExecutor) -> None:
    with TemporaryDirectory() as directory:
        logs = LogManager([directory], LogConfig(), ManualClock())
        logs.load("cluster", 1)
        try:
            machine = Machine(Broker(logs, executor, PARTITIONS))
            for name, argument in operations:
                getattr(machine, name)(argument)
                machine.compare()
            machine.check(None)
            machine.compare()
        finally:
            logs.close(clean=False)


@given(operations)
def test_visits_of_partitions_with_news_decide_as_visits_of_all(
    operations: list[tuple[str, Any]],
) -> None:
    with ThreadPoolExecutor(1) as executor:
        asyncio.run(run(operations, executor))


def test_follower_that_caught_up_while_its_removal_was_pending_joins_again() -> None:
    """No append follows, so only the removal itself is news."""
    operations: list[tuple[str, Any]] = [
        ("idle", (A,)),
        ("check", None),
        ("fetch", B),
        ("commit", True),
        ("fetch", B),
    ]
    with ThreadPoolExecutor(1) as executor:
        asyncio.run(run(operations, executor))


def test_i1_follower_whose_session_was_closed_was_caught_up_at_its_last_fetch() -> None:
    operations: list[tuple[str, Any]] = [
        ("idle", (A, B)),
        ("reconnect", A),
        ("append", 1),
        ("check", None),
    ]
    with ThreadPoolExecutor(1) as executor:
        asyncio.run(run(operations, executor))


def test_committed_proposals_are_those_of_the_oracle() -> None:
    """The comparison is not empty: a follower leaves the ISR and joins it again."""
    proposals: list[IsrProposal] = []

    async def main() -> None:
        with TemporaryDirectory() as directory, ThreadPoolExecutor(1) as executor:
            logs = LogManager([directory], LogConfig(), ManualClock())
            logs.load("cluster", 1)
            machine = Machine(Broker(logs, executor, PARTITIONS))
            for name, argument in [
                ("fetch", A),
                ("fetch", B),
                ("append", 1),
                ("advance", 3 * LAG_MS),
                ("fetch", A),
                ("receive", A),
                ("fetch", A),
                ("check", None),
                ("commit", True),
                ("fetch", B),
                ("receive", B),
                ("fetch", B),
                ("commit", True),
            ]:
                getattr(machine, name)(argument)
                machine.compare()
            proposals.extend(each for _, each in machine.broker.cluster.proposals.sent)
            assert machine.oracle.states[1].isr == ALL
            logs.close(clean=False)

    asyncio.run(main())
    assert [[broker for broker, _ in each.isr] for each in proposals] == [[LEADER, A], [*ALL]]
