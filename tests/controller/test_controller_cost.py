"""The cost of changes of the controller with few and with many partitions."""

from __future__ import annotations

from odradek.controller.alter_partition import AlterPartition
from odradek.controller.controller_settings import ControllerSettings
from odradek.ids import TopicName
from odradek.metadata.topic_changes import NewTopic
from tests.controller.test_cluster_controller import running
from tests.helpers.call_count import count_calls


def _calls_of_an_isr_change(partitions: int) -> int:
    with running(settings=ControllerSettings(apply_timeout_ms=1)) as world:
        for number in range(0, partitions, 1000):
            name = f"a{number}" if number else "a"
            topics = [NewTopic(name, min(1000, partitions), 3)]
            world.run(world.controller().create_topics(topics))
        world.advance(3)
        controller = world.controller()
        topic = controller.image.topics_by_name[TopicName("a")]
        leader = world.nodes[topic.partitions[0].leader]
        change = AlterPartition(
            leader.id,
            leader.broker_epoch,
            0,
            0,
            ((leader.id, leader.broker_epoch),),
        )
        for node in world.nodes.values():
            node.polls = False
        world.advance(1)

        changes = [(topic.topic_id, 0, change)]
        call = controller.alter_partitions(leader.id, leader.broker_epoch, changes)
        count = count_calls(world.run, call)
        after = controller.image.topics_by_id[topic.topic_id]
        assert after.partitions[0].isr == (leader.id,)
        return count.total


def test_isr_change_costs_the_same_with_10_and_10_000_partitions() -> None:
    _calls_of_an_isr_change(10)  # the first one in a process has calls that fill caches
    few, many = _calls_of_an_isr_change(10), _calls_of_an_isr_change(10_000)
    assert few > 100
    assert abs(few - many) <= few * 0.03, (few, many)
