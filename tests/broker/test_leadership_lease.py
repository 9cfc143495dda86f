"""When a broker stops leading partitions, and when it leads them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.leadership_lease import Heard, LeadershipLease, Lease, Standing
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, TopicPartition
from odradek.metadata.image import UNKNOWN_BROKER_EPOCH, PartitionImage
from odradek.metadata.store.interface import SessionState
from odradek.replication.replication_state import NEVER_MS
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

IDS = (1, 2, 3)
TIMEOUT_MS = 100
Test = Callable[[ClusterBrokers], Awaitable[None]]
EXPIRED, ISOLATED, MEMBER = Standing.EXPIRED, Standing.ISOLATED, Standing.MEMBER


class Broker:
    """A broker with its lease, and the signs of life that it gets."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.lease = Lease(TIMEOUT_MS, self.now_ms)
        self.epoch = self.image_epoch = 5
        self.is_connected = True
        self.others_ms = self.now_ms

    def hear_feed(self, is_own: bool = False) -> None:
        """Hear a response without changes."""
        if not is_own:
            self.others_ms = self.now_ms

    def standing(self) -> Standing:
        return self.lease.standing(
            self.now_ms,
            is_connected=self.is_connected,
            broker_epoch=self.epoch,
            heard=Heard(self.image_epoch, self.others_ms),
        )


def test_broker_that_hears_the_store_alone_is_a_member() -> None:
    broker = Broker()
    for _ in range(30):
        broker.now_ms += 50
        assert broker.standing() is MEMBER


def test_broker_that_hears_the_controller_alone_is_a_member() -> None:
    broker = Broker()
    broker.is_connected = False
    for _ in range(30):
        broker.now_ms += 50
        broker.hear_feed()
        assert broker.standing() is MEMBER


def test_controller_that_hears_only_itself_is_isolated() -> None:
    broker = Broker()
    broker.is_connected = False
    for elapsed_ms in (0, 50, 99, 100, 150):
        broker.now_ms = 1_000 + elapsed_ms
        broker.hear_feed(is_own=True)
        expected = MEMBER if elapsed_ms < TIMEOUT_MS else ISOLATED
        assert broker.standing() is expected
    broker.is_connected = True
    assert broker.standing() is MEMBER


def test_isolated_broker_leads_partitions_whose_followers_it_hears() -> None:
    lease = Lease(TIMEOUT_MS, 0)
    assert lease.may_lead(ISOLATED, 1_000, 901)
    assert not lease.may_lead(ISOLATED, 1_000, 900)
    assert not lease.may_lead(ISOLATED, 1_000, NEVER_MS)
    assert lease.may_lead(MEMBER, 1_000, NEVER_MS)
    assert not lease.may_lead(EXPIRED, 1_000, 1_000)


def test_broker_leads_nothing_until_its_image_has_the_new_registration() -> None:
    broker = Broker()
    assert broker.standing() is MEMBER
    broker.epoch = UNKNOWN_BROKER_EPOCH
    broker.hear_feed()
    assert broker.standing() is EXPIRED
    broker.now_ms += 1
    broker.epoch = 6
    assert broker.standing() is EXPIRED
    broker.now_ms += 1
    assert broker.standing() is EXPIRED
    # The response to a poll from before, which may lack the elections after the lost session.
    broker.hear_feed()
    assert broker.standing() is EXPIRED
    broker.image_epoch = 6
    assert broker.standing() is MEMBER


def test_broker_that_starts_leads_nothing_until_its_image_has_its_registration() -> None:
    """The image may be older than the power cut that ended its former process."""
    broker = Broker()
    broker.image_epoch = 4
    assert broker.standing() is EXPIRED
    broker.hear_feed()
    assert broker.standing() is EXPIRED
    broker.image_epoch = 5
    assert broker.standing() is MEMBER


@pytest.mark.parametrize("leader_epoch", [4, 5])
def test_partition_with_a_newer_leader_epoch_in_the_image_is_not_led_again(
    leader_epoch: int,
) -> None:
    """The image is newer than the partition for some time slices."""
    broker = Broker()
    key = TopicPartition(TopicName("t"), 0)
    partition = SimpleNamespace(
        topic_partition=key,
        leader_epoch=4,
        replication=SimpleNamespace(last_fetch_of_isr_ms=NEVER_MS),
        is_suspended=False,
    )

    def suspend(_: object) -> None:
        partition.is_suspended = True

    manager = SimpleNamespace(
        partitions=lambda: [partition],
        suspend=suspend,
        resume=lambda _: resumed.append(key),
        expire_lease=lambda: None,
        renew_lease=lambda: None,
    )
    resumed: list[TopicPartition] = []
    changed: list[TopicPartition] = []
    newest = PartitionImage(0, BrokerId(1), leader_epoch, 7, (BrokerId(1),), (BrokerId(1),))
    lease = LeadershipLease(
        SimpleNamespace(state=SessionState.CONNECTED),  # type: ignore[arg-type]
        lambda: broker.epoch,
        lambda: Heard(broker.image_epoch, broker.others_ms),
        lambda: SimpleNamespace(partition=lambda *_: newest),  # type: ignore[arg-type,return-value]
        manager,  # type: ignore[arg-type]
        changed.append,
        SimpleNamespace(monotonic_ms=lambda: broker.now_ms),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        TIMEOUT_MS,
    )
    lease.check()
    broker.epoch = 6
    lease.check()
    assert not resumed and changed
    changed.clear()
    broker.image_epoch = 6
    lease.check()
    assert resumed == changed == ([key] if leader_epoch == 4 else [])


def test_registration_that_was_renewed_between_two_checks_counts_as_lost() -> None:
    broker = Broker()
    broker.standing()
    broker.epoch = 6
    assert broker.standing() is EXPIRED


EVENTS = st.sampled_from(["wait", "feed", "own", "store", "lose", "join", "image"])


@given(st.lists(EVENTS))
def test_standing_follows_from_what_was_heard(events: list[str]) -> None:
    broker = Broker()
    broker.standing()
    others_ms = store_ms = broker.now_ms
    was_lost = False
    for event in events:
        broker.now_ms += 30
        if event in ("feed", "own"):
            broker.hear_feed(is_own=event == "own")
            others_ms = broker.now_ms if event == "feed" else others_ms
        elif event == "store":
            broker.is_connected = not broker.is_connected
        elif event == "lose":
            broker.epoch, was_lost = UNKNOWN_BROKER_EPOCH, True
        elif event == "join" and broker.epoch == UNKNOWN_BROKER_EPOCH:
            broker.epoch = int(broker.now_ms)
        elif event == "image":
            broker.image_epoch = broker.epoch
        if broker.is_connected:
            store_ms = broker.now_ms
        is_lost = broker.epoch == UNKNOWN_BROKER_EPOCH
        if is_lost or (was_lost and broker.image_epoch != broker.epoch):
            expected = EXPIRED
        else:
            was_lost = False
            silent_ms = broker.now_ms - max(others_ms, store_ms)
            expected = MEMBER if silent_ms < TIMEOUT_MS else ISOLATED
        assert broker.standing() is expected


# --- whole brokers ---


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    # Followers fetch several times in a session timeout.
    config = {"broker.session.timeout.ms": "1500", "replica.fetch.wait.max.ms": "100"}
    return lambda test: run_with_cluster(tmp_path, test, config=config, session_timeout_ms=10_000)


async def codes(cluster: ClusterBrokers, *partitions: int, at: int, acks: int = 1) -> list[int]:
    """Return the error codes of a produce request to each partition."""
    return [
        (await cluster.produce("t", b"x", partition=each, acks=acks, at=at)).error_code
        for each in partitions
    ]


def test_hazard_12_all_brokers_serve_while_the_store_alone_is_unreachable(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        sessions = [store.session_id for store in cluster.stores.values()]
        for session in sessions:
            cluster.ensemble.block(session)
        ends_at_ms = cluster.clock.monotonic_ms() + 2_500
        while cluster.clock.monotonic_ms() < ends_at_ms:
            for number in range(3):
                assert await codes(cluster, number, at=number + 1, acks=-1) == [ErrorCode.NONE]
        for session in sessions:
            cluster.ensemble.unblock(session)

    run(test)


def test_hazard_13_isolated_broker_stops_leading_partitions_with_other_replicas(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        leader = next(each for each in IDS if each != cluster.controller_id)
        others = [each for each in IDS if each != leader]
        await cluster.create_topic("t", assignment=[[leader, *others]])
        await cluster.create_topic("alone", assignment=[[leader]])
        assert await codes(cluster, 0, at=leader) == [ErrorCode.NONE]
        member = cluster.member(leader)
        assert member._lease is not None
        silent = Heard(member.broker_epoch, member._feed.others_heard_ms)  # type: ignore[union-attr]
        member._lease._heard = lambda: silent
        cluster.ensemble.block(cluster.stores[leader].session_id)
        # Its followers still fetch.
        ends_at_ms = cluster.clock.monotonic_ms() + 2_000
        await cluster.until(lambda: cluster.clock.monotonic_ms() > ends_at_ms)
        assert await codes(cluster, 0, at=leader) == [ErrorCode.NONE]
        for each in others:
            parts = cluster.servers[each].services.replica_manager._replication
            assert parts is not None
            await parts.fetchers.stop()
        partition = cluster.servers[leader].services.replica_manager.find("t", 0)
        assert partition is not None
        await cluster.until(lambda: partition.is_suspended)
        assert await codes(cluster, 0, at=leader) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        alone = await cluster.produce("alone", b"x", acks=1, at=leader)
        assert alone.error_code == ErrorCode.NONE

    run(test)


def test_broker_that_starts_applies_no_image_from_before_its_registration(
    run: Callable[[Test], None], caplog: pytest.LogCaptureFixture
) -> None:
    """It would lead in an epoch whose last records it has lost in a power cut."""
    caplog.set_level(logging.INFO, "odradek")

    async def test(cluster: ClusterBrokers) -> None:
        controller_id = cluster.controller_id
        leader = next(each for each in IDS if each != controller_id)
        await cluster.create_topic("t", assignment=[[leader, controller_id]])
        controller = cluster.member(controller_id).cluster_controller
        read, released = controller._read_brokers, asyncio.Event()

        async def wait_and_read() -> None:
            await released.wait()
            await read()

        controller._read_brokers = wait_and_read  # type: ignore[method-assign]
        cluster.servers[leader].config.set_dynamic({"controlled.shutdown.enable": "false"}, {})
        await cluster.stop(leader)
        assert cluster.image(controller_id).partition(TopicName("t"), 0).leader == leader  # type: ignore[union-attr]
        starting = asyncio.ensure_future(cluster.start(leader))
        await cluster.until(lambda: starting.done() or "waiting until the contr" in caplog.text)
        assert not starting.done()
        assert not cluster.image(leader).offset
        released.set()
        await starting
        own = cluster.image(leader).brokers[BrokerId(leader)]
        assert own.epoch == cluster.member(leader).broker_epoch

    run(test)


def test_hazard_2_broker_whose_session_is_lost_stops_leading_at_once(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        leader = next(each for each in IDS if each != cluster.controller_id)
        others = [each for each in IDS if each != leader]
        await cluster.create_topic("t", assignment=[[leader, *others]])
        replica_manager = cluster.servers[leader].services.replica_manager
        partition = replica_manager.find("t", 0)
        assert partition is not None and not partition.error
        seen: list[ErrorCode] = []
        cluster.stores[leader].subscribe(lambda state: seen.append(partition.error))
        epoch = cluster.member(leader).broker_epoch
        cluster.expire(leader)
        await cluster.until(lambda: cluster.member(leader).broker_epoch > epoch)
        assert ErrorCode.NOT_LEADER_OR_FOLLOWER in seen
        await cluster.until(lambda: cluster.image(leader).partition("t", 0).leader in IDS)  # type: ignore[union-attr]
        while True:
            now = cluster.leader("t")
            if await codes(cluster, 0, at=now, acks=-1) == [ErrorCode.NONE]:
                return
            await asyncio.sleep(0.05)

    run(test)


def test_broker_that_leaves_stops_leading_before_its_connections_end(
    run: Callable[[Test], None],
) -> None:
    """Its session ends first, and other brokers lead. Its clients are still connected."""

    async def test(cluster: ClusterBrokers) -> None:
        leader = next(each for each in IDS if each != cluster.controller_id)
        others = [each for each in IDS if each != leader]
        await cluster.create_topic("t", assignment=[[leader, *others]])
        await cluster.create_topic("alone", assignment=[[leader]])
        assert await codes(cluster, 0, at=leader) == [ErrorCode.NONE]
        await cluster.member(leader).stop()
        assert await codes(cluster, 0, at=leader) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        alone = await cluster.produce("alone", b"x", acks=1, at=leader)
        assert alone.error_code == ErrorCode.NONE

    run(test)
