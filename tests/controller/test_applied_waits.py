"""Tests of responses that wait until brokers have applied a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from odradek.controller.applied_waits import AppliedWaits, elected_leaders
from odradek.environment.clock import ManualClock
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from tests.helpers.manual_timers import SteppedTimers

ONE, TWO = BrokerId(1), BrokerId(2)
OFFSET = 10
TIMEOUT_MS = 500
TOPIC_ID = Uuid(b"t" * 16)


class Scene:
    """Waits for offset 10 of both brokers."""

    def __init__(self) -> None:
        self.timers = SteppedTimers(ManualClock())
        self.waits = AppliedWaits(self.timers)

    async def begin(
        self, applied: dict[BrokerId, int], brokers: Collection[BrokerId] = (ONE, TWO)
    ) -> asyncio.Task[bool]:
        wait = self.waits.wait(OFFSET, brokers, applied, TIMEOUT_MS)
        task = asyncio.ensure_future(wait)
        await asyncio.sleep(0)
        return task


@pytest.mark.parametrize(
    ("applied", "is_over"),
    [
        ({ONE: OFFSET, TWO: OFFSET}, True),
        ({ONE: OFFSET + 1, TWO: OFFSET}, True),
        ({ONE: OFFSET}, True),  # broker 2 is not live
        ({}, True),
        ({ONE: OFFSET - 1, TWO: OFFSET}, False),
        ({ONE: OFFSET, TWO: OFFSET - 1}, False),
        ({ONE: OFFSET, TWO: -1}, False),
    ],
)
def test_wait_is_over_when_each_live_broker_has_applied_the_offset(
    applied: dict[BrokerId, int], is_over: bool
) -> None:
    async def scenario() -> None:
        at_once, later = Scene(), Scene()
        task = await at_once.begin(applied)
        assert (task.done() and task.result()) == is_over
        assert at_once.waits.is_empty == is_over
        task.cancel()
        task = await later.begin({ONE: 0, TWO: 0})
        later.waits.check(applied)
        await asyncio.sleep(0)
        assert (task.done() and task.result()) == is_over
        task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("ends", ["applied", "time", "term", "cancelled"])
def test_wait_leaves_nothing_after_its_end(ends: str) -> None:
    scene = Scene()
    calls: dict[str, Callable[[], object]] = {
        "applied": lambda: scene.waits.check({ONE: OFFSET, TWO: OFFSET}),
        "time": lambda: scene.timers.advance(1),
        "term": scene.waits.end,
    }

    async def scenario() -> None:
        other = await scene.begin({TWO: 0}, (TWO,))
        task = await scene.begin({ONE: 0, TWO: 0}, (ONE, TWO))
        scene.timers.advance(TIMEOUT_MS - 1)
        await asyncio.sleep(0)
        assert not task.done()
        calls.get(ends, task.cancel)()
        await asyncio.wait((task,))
        assert task.cancelled() == (ends == "cancelled")
        assert task.cancelled() or task.result() == (ends == "applied")
        assert scene.waits.is_empty == (ends != "cancelled")
        other.cancel()
        await asyncio.wait((other,))
        assert scene.waits.is_empty
        assert not scene.timers.armed

    asyncio.run(scenario())


def test_wait_that_has_ended_is_not_completed_again() -> None:
    """A poll and the end of the term may come before the request continues."""
    scene = Scene()

    async def scenario() -> None:
        task = await scene.begin({ONE: 0})
        scene.waits.check({ONE: OFFSET})
        scene.waits.check({ONE: OFFSET})
        scene.waits.end()
        assert await task

    asyncio.run(scenario())


def _partition(number: int, leader: int = 1) -> PartitionRecord:
    return PartitionRecord(
        number,
        TOPIC_ID,
        replicas=[ONE, TWO],
        isr=[ONE, TWO],
        leader=leader,
        leader_epoch=3,
        partition_epoch=5,
    )


def _led(*leaders: int) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    delta.replay(TopicRecord(TopicName("a"), TOPIC_ID))
    for number, leader in enumerate(leaders):
        delta.replay(_partition(number, leader))
    return delta.apply(MetadataProvenance(ONE, 1, 1))


def test_leaders_of_new_partitions_are_elected() -> None:
    new = MetadataDelta(MetadataImage())
    new.replay(TopicRecord(TopicName("a"), TOPIC_ID))
    for number, leader in enumerate((2, NO_LEADER)):
        new.replay(_partition(number, leader))
    assert elected_leaders(new) == {TWO}
    added = MetadataDelta(_led(1))
    added.replay(_partition(1, leader=2))
    assert elected_leaders(added) == {TWO}


@pytest.mark.parametrize(
    ("leader", "elected"), [(2, {TWO}), (1, {ONE}), (NO_LEADER, set()), (None, set())]
)
def test_leader_is_elected_when_its_partition_begins_a_leader_epoch(
    leader: int | None, elected: set[BrokerId]
) -> None:
    """None is a change of the ISR alone."""
    delta = MetadataDelta(_led(1, 1))
    record = PartitionChangeRecord(1, TOPIC_ID, isr=[ONE])
    if leader is not None:
        record.leader = leader
    delta.replay(record)
    (topic,) = delta.topics.changed.values()
    (changed,) = topic.partitions.values()
    assert isinstance(changed, PartitionImage)
    assert (changed.leader_epoch > 3) == (leader is not None)
    assert elected_leaders(delta) == elected
