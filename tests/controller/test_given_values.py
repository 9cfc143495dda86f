"""Topics with a given id, and leader epochs that are raised to given values."""

from __future__ import annotations

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid
from odradek.metadata.topic_changes import CreatedTopic, NewTopic
from tests.controller.test_cluster_controller import A, _create, _partition, _stable, running

TOPIC_ID = Uuid(b"0123456789abcdef")


def test_topic_is_created_with_a_given_id() -> None:
    with running() as world:
        new = [
            NewTopic("a", 1, 3, topic_id=TOPIC_ID),
            NewTopic("b", 1, 3, topic_id=TOPIC_ID),
            NewTopic("c", 1, 3),
        ]
        created, refused, other = world.run(world.controller().create_topics(new))
        assert isinstance(created, CreatedTopic)
        assert isinstance(other, CreatedTopic)
        assert created.image.topic_id == TOPIC_ID != other.image.topic_id
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert _stable(world).image.topics_by_id[TOPIC_ID].name == "a"


def test_id_of_a_deleted_topic_is_not_given_again_while_its_logs_may_exist() -> None:
    with running() as world:
        first = NewTopic("a", 1, 3, topic_id=TOPIC_ID)
        world.run(world.controller().create_topics([first]))
        world.run(world.controller().delete_topics([TOPIC_ID]))
        assert TOPIC_ID in world.controller().image.deletions
        (result,) = world.run(world.controller().create_topics([first]))
        assert isinstance(result, KafkaError)
        assert result.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_leader_epoch_is_raised_to_a_given_value_and_never_lowered() -> None:
    with running() as world:
        _create(world)
        controller, before = world.controller(), _partition(world)
        topic_id = controller.image.topics_by_name[A].topic_id
        unknown = Uuid(b"u" * 16)
        results = world.run(
            controller.raise_leader_epochs({(topic_id, 0): 40, (topic_id, 9): 1, (unknown, 0): 1})
        )
        assert results == {
            (topic_id, 0): ErrorCode.NONE,
            (topic_id, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (unknown, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        }
        after = _partition(world)
        assert (after.leader_epoch, after.partition_epoch) == (40, before.partition_epoch + 1)
        assert (after.leader, after.isr) == (before.leader, before.isr)
        assert world.run(controller.raise_leader_epochs({(topic_id, 0): 39})) == {
            (topic_id, 0): ErrorCode.NONE
        }
        assert _partition(world) == after
        _stable(world)


def test_leader_epoch_is_raised_without_a_change_of_the_isr() -> None:
    """The live replicas that are not in sync stay outside, and the leader stays."""
    with running() as world:
        _create(world, count=1)
        controller, before = world.controller(), _partition(world)
        topic_id = controller.image.topics_by_name[A].topic_id
        leader = world.nodes[before.replicas[1]]
        for broker in (before.replicas[0], before.replicas[2]):
            world.nodes[broker].polls = False
        world.advance(15)
        for broker in (before.replicas[0], before.replicas[2]):
            world.nodes[broker].polls = True
        world.advance(2)
        before = _partition(world)
        assert not any(each.fenced for each in controller.image.brokers.values())
        assert (before.leader, before.isr) == (leader.id, (leader.id,))
        for epoch in (before.leader_epoch + 1, before.leader_epoch + 40):
            raised = world.run(world.controller().raise_leader_epochs({(topic_id, 0): epoch}))
            assert raised == {(topic_id, 0): ErrorCode.NONE}
            after = _partition(world)
            assert after.leader_epoch == epoch
            assert (after.leader, after.isr, after.elr) == (before.leader, before.isr, before.elr)
        _stable(world)
