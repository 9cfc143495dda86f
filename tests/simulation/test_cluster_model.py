from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.ids import BrokerId, Uuid
from odradek.metadata import znodes
from odradek.metadata.image import BrokerRegistration, MetadataImage, PartitionImage, TopicImage
from odradek.metadata.store.interface import Create, Operation, Set
from odradek.metadata.store.memory import MemoryStore
from tests.helpers.virtual_loop import VirtualLoop
from tests.simulation.cluster_model import ClusterModel, PartitionKey, contents
from tests.simulation.ensemble import SimulatedEnsemble
from tests.simulation.invariants import Chain, PartitionModel, PartitionState, ReplicaModel
from tests.simulation.scheduler import SECOND, Scheduler
from tests.simulation.test_invariants import SEEN, chain

TOPIC = TopicImage(
    "topic",
    Uuid(bytes(15) + b"\1"),
    (PartitionImage(0, BrokerId(1), 0, 0, (BrokerId(1), BrokerId(2)), (BrokerId(1), BrokerId(2))),),
)


class World:
    """An ensemble whose writes a model follows."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.scheduler = Scheduler(1)
        self.ensemble = SimulatedEnsemble(self.scheduler)
        self.model = ClusterModel(self.violations.append, self._count, {})
        self.ensemble.on_commit = self.model.written
        self.session = self.ensemble.begin_session(MemoryStore(self.ensemble))
        for path in znodes.PERSISTENT_PATHS:
            self.write(Create(path))
        self.write(Create(znodes.CONTROLLER_EPOCH, b"0"))
        self.write(Create(znodes.METADATA, b""))
        self.write(Set(znodes.CONTROLLER_EPOCH, b"1"))

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def write(self, *operations: Operation) -> None:
        self.ensemble.write(operations, self.session)

    def change(self, offset: int, *operations: Operation, epoch: int = 1) -> None:
        self.write(*operations, Set(znodes.METADATA, znodes.encode_position(epoch, offset)))


def test_the_model_follows_the_state_of_partitions() -> None:
    world = World()
    world.change(1, *znodes.create_topic_operations(TOPIC, 1))
    changed = replace(TOPIC.partitions[0], leader=BrokerId(2), leader_epoch=1)
    world.change(2, Set(znodes.state_path("topic", 0), znodes.encode_state(changed, 1)))
    assert not world.violations
    state = world.model.partitions[bytes(TOPIC.topic_id), 0].state
    assert state is not None
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 1, 1)
    assert state.replicas == state.isr == (1, 2)
    assert world.counts["leader changes"] == world.counts["controller changes"] == 1


def test_a_write_has_the_next_position_and_the_epoch_of_the_controller() -> None:
    for offset, epoch, count in ((1, 1, 0), (2, 1, 1), (1, 0, 1)):
        world = World()
        world.change(offset, *znodes.create_topic_operations(TOPIC, 1), epoch=epoch)
        assert len(world.violations) == count
    world = World()
    world.write(*znodes.create_topic_operations(TOPIC, 1))
    assert len(world.violations) == 1


def test_a_producer_id_is_given_once() -> None:
    world = World()
    world.model.producer_id_given(1, "a")
    world.model.producer_id_given(2, "b")
    assert not world.violations
    world.model.producer_id_given(1, "b")
    assert world.violations


def test_equal_images_do_not_depend_on_the_controller_that_sent_them() -> None:
    image = MetadataImage(cluster_id="a", controller_id=BrokerId(1))
    assert contents(image) == contents(replace(image, controller_id=BrokerId(2), cluster_id=""))
    brokers = image.brokers.with_changes(
        {BrokerId(1): BrokerRegistration(BrokerId(1), "host", 9092)}
    )
    assert contents(image) != contents(replace(image, brokers=brokers))


def test_a_silent_session_expires_in_virtual_time() -> None:
    scheduler = Scheduler(1)
    ensemble = SimulatedEnsemble(scheduler)
    loop = VirtualLoop()
    store = MemoryStore(ensemble)
    loop.run_until_complete(store.open())
    ensemble.pause(store.session_id)
    scheduler.run_until(SECOND)
    assert ensemble.is_alive(store.session_id)
    scheduler.run_until(3 * SECOND)
    assert ensemble.expirations == 1
    assert not ensemble.is_alive(store.session_id)
    loop.close()


KEY = (bytes(TOPIC.topic_id), 0)
LOG = chain((0, 2, 0), (2, 2, 0))


class Replica:
    """The observer of a broker that has one replica."""

    def __init__(
        self,
        broker: int,
        end: int = 4,
        maximal: tuple[int, ...] | None = None,
        start: int = 0,
        *,
        unclean: bool = False,
        log: Chain = LOG,
        failed: bool = False,
    ) -> None:
        self.log = log
        process = SimpleNamespace(number=1)
        self.unclean = unclean
        self.start = start
        self.machine: Any = SimpleNamespace(
            process=process, node_id=broker, has_failed_directory=failed, failed_process=-1
        )
        self.end = end
        self.maximal = maximal

    def replica(self, key: PartitionKey) -> ReplicaModel | None:
        seen = SEEN._replace(
            log_start=self.start, log_end=self.end, high_watermark=self.end, leader_epoch=0
        )
        log = self.log.copy()
        log.truncate(self.end)
        return ReplicaModel("replica", seen, log)

    def kept(self, key: PartitionKey) -> ReplicaModel | None:
        return None if self.unclean else self.replica(key)

    def reached(self, key: PartitionKey) -> int:
        return self.end

    def maximal_isr(self, key: PartitionKey, leader_epoch: int) -> tuple[int, ...] | None:
        return self.maximal


@pytest.mark.parametrize(
    ("brokers", "registered", "text"),
    [
        ((Replica(1), Replica(2), Replica(3)), (1, 2, 3), ""),
        ((Replica(1), Replica(2, 2), Replica(3)), (1, 2, 3), "member 2 of the ISR has reached 2"),
        ((Replica(1), Replica(2, 2), Replica(3)), (1, 3), "member 2 of the ISR has reached 2"),
        ((Replica(1), Replica(2), Replica(3, 2)), (1, 2, 3), "the log of member 3 ends at 2"),
        ((Replica(1), Replica(2), Replica(3, 2)), (1, 2), "member 3 of the ELR has reached 2"),
        ((Replica(1), Replica(2), Replica(3, 2)), (1, 2), "the log of member 3 ends at 2"),
        (
            (Replica(1), Replica(2), Replica(3, 2, unclean=True)),
            (1, 2),
            "member 3 of the ELR has reached 2",
        ),
        ((Replica(1, maximal=(1, 2)), Replica(2), Replica(3)), (1, 2, 3), ""),
        ((Replica(1, maximal=(1,)), Replica(2), Replica(3)), (1, 2, 3), "not in the maximal ISR"),
        ((Replica(1, maximal=(1,)), Replica(2), Replica(3)), (2, 3), ""),
    ],
)
def test_a_change_of_a_partition_checks_leader_isr_and_elr(
    brokers: tuple[Replica, ...], registered: tuple[int, ...], text: str
) -> None:
    """Brokers 1 (the leader) and 2 are the ISR, 3 is the ELR. Records below 4 are committed."""
    world = World()
    model = PartitionModel(high_watermark=4, committed=LOG)
    model.state = PartitionState((1, 2, 3), 1, 0, 0, (1, 2), (3,))
    world.model.partitions[KEY] = model
    world.model.observers = {each.machine.node_id: each for each in brokers}  # type: ignore[misc]
    world.model.registered = dict.fromkeys(registered, 1)
    world.model.check(KEY)
    assert (text in "".join(world.violations)) if text else not world.violations
    world.violations.clear()
    model.is_deleted = True
    world.model.check(KEY)
    assert not world.violations


@pytest.mark.parametrize(
    ("second", "elr", "is_violation"),
    [
        (Replica(2), (1,), True),
        (Replica(2), (1, 2), False),
        (Replica(2, unclean=True), (1,), False),
        (Replica(2, failed=True), (1,), False),
    ],
)
def test_a_partition_without_a_leader_keeps_its_clean_members(
    second: Replica, elr: tuple[int, ...], is_violation: bool
) -> None:
    world = World()
    world.change(1, *znodes.create_topic_operations(TOPIC, 1))
    world.model.observers = {1: Replica(1), 2: second}  # type: ignore[dict-item]
    ended = replace(
        TOPIC.partitions[0],
        leader=BrokerId(-1),
        leader_epoch=1,
        isr=(),
        elr=tuple(BrokerId(each) for each in elr),
    )
    world.change(2, Set(znodes.state_path("topic", 0), znodes.encode_state(ended, 1)))
    assert ("without clean member 2" in "".join(world.violations)) is is_violation


@pytest.mark.parametrize(
    ("starts", "text"),
    [((0, 0), ""), ((2, 2), ""), ((0, 2), ""), ((2, 0), "a log starts below that of leader 1")],
)
def test_a_cluster_has_recovered_when_no_follower_starts_below_its_leader(
    starts: tuple[int, int], text: str
) -> None:
    world = World()
    world.change(1, *znodes.create_topic_operations(TOPIC, 1))
    world.model.observers = {
        broker: Replica(broker, start=start)  # type: ignore[misc]
        for broker, start in enumerate(starts, 1)
    }
    problems = "".join(world.model.problems())
    assert text in problems if text else not problems


@pytest.mark.parametrize(("start", "is_equal"), [(0, False), (1, False), (2, True)])
def test_a_cluster_has_recovered_when_its_logs_are_equal_from_their_start_on(
    start: int, is_equal: bool
) -> None:
    other = chain((0, 2, 7))
    other.bridge(LOG, 4)
    world = World()
    world.change(1, *znodes.create_topic_operations(TOPIC, 1))
    world.model.observers = {
        1: Replica(1, start=start),  # type: ignore[dict-item]
        2: Replica(2, start=start, log=other),  # type: ignore[dict-item]
    }
    problems = "".join(world.model.problems())
    assert ("the logs are not equal" in problems) is not is_equal


def test_a_deleted_topic_is_not_checked() -> None:
    world = World()
    world.change(1, *znodes.create_topic_operations(TOPIC, 1))
    model = world.model.partitions[KEY]
    assert not model.is_deleted
    nodes = [
        each
        for number in range(TOPIC.partition_count)
        for each in znodes.delete_partition_operations(TOPIC.name, number)
    ]
    world.change(2, *nodes, *znodes.delete_parents_operations(TOPIC.name))
    assert model.is_deleted
