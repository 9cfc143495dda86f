"""Groups as admin clients describe and change them, on a live broker."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from odradek.testing import Broker
from tests.integration.test_group_clients import DEADLINE_S, Member, produce, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as Partition
    from kafka.admin import MemberToRemove


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t", 4)
        running.create_topic("u")
        produce(running.bootstrap_servers)
        yield running


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def python_admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=int(DEADLINE_S * 1000)
    )
    yield client
    client.close()


def commit(broker: Broker, group_id: str, topic: str = "t") -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()


def committed(admin: AdminClient, group_id: str) -> dict[str, int]:
    request = [ConsumerGroupTopicPartitions(group_id)]
    (future,) = admin.list_consumer_group_offsets(request).values()
    return {each.topic: each.offset for each in future.result().topic_partitions}


def stable(broker: Broker, **config: Any) -> Member:
    member = Member(broker.bootstrap_servers, **config)
    until(lambda: len(member.owned) == 4, member.poll)
    return member


def test_groups_are_listed_by_state(broker: Broker, admin: AdminClient) -> None:
    commit(broker, "empty")
    member = stable(broker)

    def listed(*states: ConsumerGroupState) -> set[str]:
        result = admin.list_consumer_groups(states=set(states)).result()
        return {group.group_id for group in result.valid}

    assert listed() == {"empty", "g"}
    assert listed(ConsumerGroupState.STABLE) == {"g"}
    assert listed(ConsumerGroupState.EMPTY) == {"empty"}
    assert listed(ConsumerGroupState.DEAD) == set()
    member.consumer.close()


def test_group_is_deleted_after_its_members_have_left(broker: Broker, admin: AdminClient) -> None:
    member = stable(broker)
    member.consumer.commit(asynchronous=False, offsets=[TopicPartition("t", 0, 3)])
    with pytest.raises(KafkaException) as error:
        admin.delete_consumer_groups(["g"])["g"].result()
    assert error.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.consumer.close()
    broker.wait_until_group_empty("g", timeout_s=DEADLINE_S)
    admin.delete_consumer_groups(["g"])["g"].result()
    assert committed(admin, "g") == {}
    assert admin.list_consumer_groups().result().valid == []


def test_offsets_of_a_subscribed_topic_are_not_deleted(
    broker: Broker, admin: AdminClient, python_admin: KafkaAdminClient
) -> None:
    member = stable(broker)
    offsets = [TopicPartition("t", 0, 3), TopicPartition("u", 0, 4)]
    member.consumer.commit(asynchronous=False, offsets=offsets)
    assert committed(admin, "g") == {"t": 3, "u": 4}
    partitions = [Partition("t", 0), Partition("u", 0)]
    errors = {
        partition.topic: error.errno
        for partition, error in python_admin.delete_group_offsets("g", partitions).items()
    }
    assert errors == {"t": 86, "u": 0}, "86 is GROUP_SUBSCRIBED_TO_TOPIC"
    assert committed(admin, "g") == {"t": 3}
    member.consumer.close()


def test_second_member_with_an_instance_id_fences_the_first(broker: Broker) -> None:
    first = stable(broker, **{"group.instance.id": "one"})
    second = Member(broker.bootstrap_servers, **{"group.instance.id": "one"})
    fatal: list[int] = []

    def poll() -> None:
        second.poll()
        message = first.consumer.poll(0.02)
        if message is not None and message.error() is not None:
            fatal.append(message.error().code())

    until(lambda: bool(fatal) and len(second.owned) == 4, poll)
    assert set(fatal) <= {KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID}
    second.consumer.close()
    first.consumer.close()


def test_administrator_removes_a_static_member_by_its_instance_id(
    broker: Broker, admin: AdminClient, python_admin: KafkaAdminClient
) -> None:
    member = stable(broker, **{"group.instance.id": "one"})
    member.consumer.close()
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert [each.group_instance_id for each in described.members] == ["one"], "it may come back"
    python_admin.remove_group_members("g", [MemberToRemove(group_instance_id="one")])
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert described.members == []
    assert described.state is ConsumerGroupState.EMPTY
