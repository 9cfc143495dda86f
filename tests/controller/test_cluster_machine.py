"""A state machine of three controllers on an ensemble whose sessions, responses and servers fail.

`RecordingEnsemble` checks each write when it is executed. `examine` returns what a run violates, so
that planted errors can be shown to be found.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from odradek.controller import metadata_writer
from odradek.controller.alter_partition import AlterPartition
from odradek.controller.controller_term import Deposed
from odradek.controller.election import Election
from odradek.errors import KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.image import NO_LEADER, PartitionImage
from odradek.metadata.resources import ResourceType
from odradek.metadata.store import resolution
from odradek.metadata.store.ensemble import EnsembleConditions
from odradek.metadata.store.interface import (
    MetadataStore,
    NoNodeError,
    Operation,
    Set,
    StoreFailure,
    UnknownOutcomeError,
    Written,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
from tests.controller.cluster_nodes import Node, World, contents

MULTI_BYTES = 6_000
CONDITIONS = EnsembleConditions(
    servers=3,
    multi_bytes_max=MULTI_BYTES,
    session_timeout_ms=6_000,
    lag_ms=(0, 200),
    latency_ms=(0, 20),
    notice_ms=(0, 500),
    reconnect_ms=(0, 1_000),
)
NODES = st.integers(1, 3).map(BrokerId)
TARGETS = st.sampled_from([None, None, None, BrokerId(1), BrokerId(2), BrokerId(3)])
"""Where a request goes: mostly to the active controller."""


MIN_ISR = "min.insync.replicas"

COVERED = (
    "elections",
    "elections and writes that the epoch refuses",
    "divided creations",
    "divided deletions",
    "unclean restarts",
    "registered unclean restarts",
    "expired sessions",
    "requests without an outcome",
    "resignations",
)


def _id() -> str:
    return "cluster"


def _defect() -> str:
    raise RuntimeError("a defect of this broker")


class ControllersMachine(RuleBasedStateMachine):
    coverage: ClassVar[Counter[str]] = Counter()

    @initialize(seed=st.integers(0, 2**32 - 1))
    def start(self, seed: int) -> None:
        self.world = World(seed, CONDITIONS)
        self.world.start()
        self.requests: list[asyncio.Task[None]] = []
        self.created: dict[TopicName, int] = {}
        self.deleting: set[Uuid] = set()
        self.blocks: list[range] = []
        self.blocked: set[int] = set()
        self.names = 0
        self.leader_epochs: dict[tuple[Uuid, int], tuple[int, int]] = {}

    def _node(self, number: BrokerId) -> Node:
        return self.world.nodes[number]

    def _target(self, number: BrokerId | None) -> Node:
        if number is None:
            return self.world.active() or self._node(BrokerId(1))
        return self._node(number)

    def _begin(self, call: Any) -> None:
        async def run() -> None:
            try:
                await call
            except Deposed:
                self.coverage["requests without an outcome"] += 1
            except KafkaError:
                self.coverage["refused requests"] += 1

        async def begin() -> None:
            self.requests.append(asyncio.get_running_loop().create_task(run()))
            await asyncio.sleep(0)

        self.world.run(begin())

    # --- requests ---

    @rule(ms=st.sampled_from([100, 1_000, 3_000]))
    def more_time_passes(self, ms: int) -> None:
        self.world.advance(ms / 1000)

    @rule(ms=st.sampled_from([1, 20, 100, 1_000, 4_000, 10_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms / 1000)

    @rule(number=TARGETS, count=st.sampled_from([1, 2, 16]), factor=st.integers(1, 3))
    def create_topic(self, number: BrokerId | None, count: int, factor: int) -> None:
        self.names += 1
        name = f"topic{self.names}"
        configs = [("min.insync.replicas", "2")] if self.names % 2 else []

        async def create() -> None:
            topic = NewTopic(name, count, factor, configs=configs)
            (result,) = await self._target(number).controller.create_topics([topic])
            if isinstance(result, CreatedTopic):
                self.created[TopicName(name)] = count

        self._begin(create())

    @precondition(lambda self: self.created)
    @rule(number=TARGETS, data=st.data())
    def create_partitions(self, number: BrokerId | None, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.created)))

        async def create() -> None:
            count = self.created[name] + 9
            request = NewPartitions(name, count)
            (error,) = await self._target(number).controller.create_partitions([request])
            if error is None and name in self.created:
                self.created[name] = count

        self._begin(create())

    @precondition(lambda self: self.created)
    @rule(number=TARGETS, data=st.data())
    def delete_topic(self, number: BrokerId | None, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.created)))
        controller = self._target(number).controller
        topic = controller.image.topics_by_name.get(name)
        if topic is not None:
            del self.created[name]  # it may be deleted from now on
            self._begin(controller.delete_topics([topic.topic_id]))

    @rule(number=TARGETS)
    def allocate_producer_ids(self, number: BrokerId | None) -> None:
        async def allocate() -> None:
            self.blocks.append(await self._target(number).controller.allocate_producer_ids())

        self._begin(allocate())

    @rule(pause_ms=st.sampled_from([0, 50, 500]))
    def create_and_delete_a_large_topic(self, pause_ms: int) -> None:
        self.heal()
        active = self.world.active()
        if active is None:
            return
        self.names += 1
        name = TopicName(f"topic{self.names}")
        self._begin(active.controller.create_topics([NewTopic(name, 16, 1)]))
        self.world.advance(pause_ms / 1000)
        topic = active.controller.image.topics_by_name.get(name)
        if topic is not None:
            self._begin(active.controller.delete_topics([topic.topic_id]))

    @rule()
    def heal(self) -> None:
        """Wait until there is a controller, at most for a session timeout and an election."""
        for _ in range(100):
            if self.world.active() is not None:
                return
            self.world.advance(0.1)

    @precondition(lambda self: self.created)
    @rule(number=TARGETS, data=st.data(), minimum=st.integers(1, 3))
    def alter_config(self, number: BrokerId | None, data: st.DataObject, minimum: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.created)))
        op = ConfigOp(MIN_ISR, OpType.SET, str(minimum))
        change = ConfigChange(ResourceType.TOPIC, name, (op,))
        self._begin(self._target(number).controller.alter_configs([change]))

    @rule(number=NODES, data=st.data())
    def alter_isr(self, number: BrokerId, data: st.DataObject) -> None:
        """A leader proposes an ISR, with the newest or with older epochs."""
        sender = self._node(number)
        led = [
            (topic.topic_id, partition)
            for topic in sender.image.topics_by_id.values()
            for partition in topic.partitions
            if partition.leader == number
        ]
        active = self.world.active()
        if not led or active is None:
            return
        topic_id, partition = data.draw(st.sampled_from(led))
        isr = data.draw(st.sets(st.sampled_from(partition.replicas))) | {number}
        brokers = sender.image.brokers
        change = AlterPartition(
            number,
            sender.broker_epoch,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple((each, brokers[each].epoch) for each in sorted(isr) if each in brokers),
        )
        self._begin(
            active.controller.alter_partitions(
                number, sender.broker_epoch, [(topic_id, partition.partition, change)]
            )
        )

    @rule(election=st.sampled_from([Election.PREFERRED, Election.UNCLEAN]), number=TARGETS)
    def elect_leaders(self, election: Election, number: BrokerId | None) -> None:
        self._begin(self._target(number).controller.elect_leaders(election, None))

    @rule(minimum=st.integers(1, 3), number=TARGETS)
    def alter_minimum_of_all_brokers(self, number: BrokerId | None, minimum: int) -> None:
        op = ConfigOp(MIN_ISR, OpType.SET, str(minimum))
        change = ConfigChange(ResourceType.BROKER, "", (op,))
        self._begin(self._target(number).controller.alter_configs([change]))

    @rule(number=NODES)
    def unregister(self, number: BrokerId) -> None:
        """It is registered again when it starts again, or with the next controller."""
        active = self.world.active()
        if active is not None:
            self._begin(active.controller.unregister_broker(number))

    @rule(number=NODES)
    def shut_down(self, number: BrokerId) -> None:
        node, active = self._node(number), self.world.active()
        if active is not None:
            epoch = node.broker_epoch
            self._begin(active.controller.broker_heartbeat(number, epoch, wants_shutdown=True))

    # --- faults ---

    @rule(number=NODES)
    def disconnect(self, number: BrokerId) -> None:
        self._call(self._node(number).store.disconnect)

    @rule(number=NODES, response=st.booleans())
    def lose_next(self, number: BrokerId, response: bool) -> None:
        store = self._node(number).store
        store.lose_next_response() if response else store.lose_next_request()

    @rule(number=NODES)
    def expire(self, number: BrokerId) -> None:
        store = self._node(number).store
        self.coverage["expired sessions"] += 1
        self._call(lambda: self.world.ensemble.expire(store.session_id))

    @rule(number=NODES)
    def break_take_overs(self, number: BrokerId) -> None:
        """Let all take-overs of a broker fail, or none of them again."""
        attributes = self._node(number).controller.__dict__
        attributes["_cluster_id"] = _defect if attributes["_cluster_id"] is not _defect else _id

    @rule()
    def administrator_deletes_controller(self) -> None:
        """Kafka's operators force an election so. Both controllers then have a session."""

        async def delete() -> None:
            if self.world.ensemble.tree.find(znodes.CONTROLLER) is not None:
                store = MemoryStore(self.world.ensemble, timers=self.world.timers)
                await store.open()
                with contextlib.suppress(NoNodeError, StoreFailure, UnknownOutcomeError):
                    await store.delete(znodes.CONTROLLER)
                await store.close()

        self.world.run(delete())

    @rule(step_ms=st.integers(1, 40))
    def election_during_requests(self, step_ms: int) -> None:
        """The deposed controller gets requests until it notices."""
        active = self.world.active()
        self.administrator_deletes_controller()
        if active is not None:
            for _ in range(20):
                self.allocate_producer_ids(active.id)
                self.world.advance(step_ms / 1000)

    @rule(number=NODES)
    def stop_polling(self, number: BrokerId) -> None:
        self._node(number).polls = not self._node(number).polls

    @rule(number=NODES, reboot=st.booleans(), wait_s=st.sampled_from([0, 1, 10]))
    def kill_and_restart(self, number: BrokerId, reboot: bool, wait_s: int) -> None:
        node = self._node(number)
        self.world.run(node.kill())
        if wait_s:
            self.world.advance(wait_s)
        if reboot:
            node.boot_id += "'"
            self.coverage["unclean restarts"] += 1
        self.world.run(node.restart())

    def _call(self, call: Callable[[], object]) -> None:
        async def run() -> None:
            call()

        self.world.run(run())

    # --- invariants ---

    @invariant()
    def writes_are_those_of_the_newest_controller(self) -> None:
        if hasattr(self, "world"):
            assert not self.world.ensemble.violations

    @invariant()
    def producer_ids_are_given_out_once(self) -> None:
        if hasattr(self, "world"):
            firsts = sorted(block.start for block in self.blocks)
            assert len(set(firsts)) == len(firsts)

    @invariant()
    def sets_of_replicas_are_consistent(self) -> None:
        """Rule E4: only an ISR below the minimum of the same image has an ELR."""
        active = self.world.active() if hasattr(self, "world") else None
        if active is None:
            return
        image = active.controller.image
        minimum = image.broker_configs.get("", {}).get(MIN_ISR, "1")
        for topic in image.topics_by_id.values():
            needed = int(image.topic_configs.get(topic.name, {}).get(MIN_ISR, minimum))
            for each in topic.partitions:
                assert set(each.isr) | set(each.elr) <= set(each.replicas), each
                assert not set(each.isr) & set(each.elr), each
                assert not each.elr or len(each.isr) < min(needed, len(each.replicas)), each
                assert each.leader == NO_LEADER or each.leader in each.isr, each

    @invariant()
    def epochs_of_partitions_never_decrease(self) -> None:
        active = self.world.active() if hasattr(self, "world") else None
        if active is None:
            return
        for topic in active.controller.image.topics_by_id.values():
            for partition in topic.partitions:
                now = (partition.leader_epoch, partition.partition_epoch)
                key = (topic.topic_id, partition.partition)
                before = self.leader_epochs.get(key, (0, 0))
                # Another controller may be active in an older epoch for a moment.
                if active.controller.epoch == self.world.ensemble._epoch():
                    assert now >= before, (key, before, now)
                    self.leader_epochs[key] = now

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for node in self.world.nodes.values():
            node.polls = True
            node.controller.__dict__["_cluster_id"] = _id
        self.world.advance(60)
        # A broker that was unregistered while it runs is registered by the next controller.
        self.administrator_deletes_controller()
        self.world.advance(10)
        self.world.run(_all(self.requests))
        self.world.advance(20)
        try:
            self.examine()
        finally:
            self.coverage.update(self.world.ensemble.coverage)
            self.world.close()

    def examine(self) -> None:
        self.writes_are_those_of_the_newest_controller()
        active = [node for node in self.world.nodes.values() if node.controller.is_active]
        assert len(active) == 1
        image = active[0].controller.image
        assert contents(image) == contents(self.world.loaded())
        for node in self.world.nodes.values():
            assert contents(node.image) == contents(image)
            assert node.image.offset == image.offset
        assert not any(each.fenced for each in image.brokers.values())
        for name, count in self.created.items():
            assert image.partition_count(name) >= count, "a topic or a partition is lost"
        for topic in image.topics_by_id.values():
            for partition in topic.partitions:
                self._examine_partition(image.is_eligible, partition)
        assert not self.world.ensemble.tree.children(znodes.DELETE_TOPICS)

    @staticmethod
    def _examine_partition(
        is_eligible: Callable[[BrokerId], bool], partition: PartitionImage
    ) -> None:
        if partition.leader != NO_LEADER:
            assert is_eligible(partition.leader)
            assert partition.leader in partition.isr
        elif any(map(is_eligible, partition.isr or partition.elr)):
            raise AssertionError(f"{partition} could have a leader")


async def _all(requests: list[asyncio.Task[None]]) -> None:
    await asyncio.wait_for(asyncio.gather(*requests), 300)


SETTINGS = hypothesis.settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


def test_controllers_agree_with_the_store_whatever_fails() -> None:
    run_state_machine_as_test(ControllersMachine, settings=SETTINGS)
    coverage = ControllersMachine.coverage
    assert all(coverage[name] for name in COVERED), coverage


# --- planted errors ---

PLANTED = hypothesis.settings(
    SETTINGS,
    max_examples=200,
    database=None,
    phases=[hypothesis.Phase.generate],
    report_multiple_bugs=False,
)


async def _repeat_blindly(
    store: MetadataStore, operations: list[Operation], version_node: Set
) -> list[Written]:
    """Repeat a write whose response was lost, at the newest version of the version node."""
    for _ in range(20):
        try:
            return await store.multi([*operations, version_node])
        except UnknownOutcomeError:
            node = await resolution.settled_node(store, version_node.path)
            assert node is not None
            version_node = version_node._replace(version=node.version)
    raise StoreFailure("too many attempts")


async def _without_fence(
    store: MetadataStore, operations: list[Operation], version_node: Set
) -> list[Written]:
    return await resolution.write_with_version_node(store, operations[1:], version_node)


@pytest.mark.parametrize(
    ("planted", "violation"),
    [(_repeat_blindly, r"\(\d+, \d+\) after \("), (_without_fence, "writes in epoch")],
)
def test_planted_error_is_found(
    monkeypatch: pytest.MonkeyPatch, planted: Any, violation: str
) -> None:
    monkeypatch.setattr(metadata_writer, "write_with_version_node", planted)
    with pytest.raises(AssertionError, match=violation):
        run_state_machine_as_test(ControllersMachine, settings=PLANTED)
