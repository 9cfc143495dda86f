"""Leaders, replicas and brokers as clients of a listener see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers import (
    describe_cluster,
    describe_topic_partitions,
    find_coordinator,
    metadata,
)
from odradek.broker.requests.leader_hints import leader_endpoints
from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.persistent import PersistentMap
from odradek.protocol.codec import encode
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
)
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

OWN, BOTH, INSIDE_ONLY, FENCED, UNKNOWN = (BrokerId(number) for number in range(1, 6))


def broker(number: BrokerId, *listeners: str, fenced: bool = False) -> BrokerRegistration:
    endpoints = tuple(
        Endpoint(name, f"{name.lower()}-{number}", 9000 + number) for name in listeners
    )
    return BrokerRegistration(number, "", 0, listeners=endpoints, fenced=fenced)


BROKERS = [
    broker(OWN, "INSIDE", "OUTSIDE"),
    broker(BOTH, "INSIDE", "OUTSIDE"),
    broker(INSIDE_ONLY, "INSIDE"),
    broker(FENCED, "INSIDE", "OUTSIDE", fenced=True),
]
LEADERS = [OWN, BOTH, INSIDE_ONLY, FENCED, UNKNOWN, NO_LEADER]
PARTITIONS = [
    PartitionImage(
        number, leader, 7, 3, (OWN, INSIDE_ONLY, FENCED), (OWN, INSIDE_ONLY), elr=(FENCED,),
        last_known_elr=(BOTH,),
    )
    for number, leader in enumerate(LEADERS)
]  # fmt: skip
TOPIC = TopicImage(TopicName("t"), Uuid(b"t" * 16), PARTITIONS)
IMAGE = MetadataImage(
    brokers=PersistentMap({each.id: each for each in BROKERS}),
    topics_by_name=PersistentMap({TOPIC.name: TOPIC}),
    topics_by_id=PersistentMap({TOPIC.topic_id: TOPIC}),
)
OK, NO_LISTENER, NOT_AVAILABLE = (
    ErrorCode.NONE,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


def arguments(version: int, image: MetadataImage = IMAGE, listener: str = "OUTSIDE") -> Any:
    services: Any = SimpleNamespace(
        config=BrokerConfig({"node.id": "1"}),
        node_id=1,
        image=lambda: image,
        cluster=None,
        clock=ManualClock(),
    )
    session = SimpleNamespace(local_address=("me", 9001), listener_name=listener)
    context: Any = SimpleNamespace(session=session, api_version=version)
    return services, context


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("by", ["name", "id", "all"])
def test_metadata_names_leaders_with_the_clients_listener(version: int, by: str) -> None:
    if by == "id" and version < 12:
        return
    topics = {
        "name": [MetadataRequestTopic(name="t")],
        "id": [MetadataRequestTopic(TOPIC.topic_id, None)],
        "all": None,
    }[by]
    request = MetadataRequest(topics, allow_auto_topic_creation=False)
    response = metadata.handle(*arguments(version), request).value
    encode(response, version)
    assert [(each.node_id, each.host) for each in response.brokers] == [
        (OWN, "me"),
        (BOTH, "outside-2"),
    ]
    (topic,) = response.topics
    missing = NO_LISTENER if version >= 6 else NOT_AVAILABLE
    missing_replica = ErrorCode.REPLICA_NOT_AVAILABLE if version == 0 else OK
    assert [(each.leader_id, each.error_code) for each in topic.partitions] == [
        (OWN, missing_replica),
        (BOTH, missing_replica),
        (NO_LEADER, missing),
        (FENCED, missing_replica),
        (NO_LEADER, NOT_AVAILABLE),
        (NO_LEADER, NOT_AVAILABLE),
    ]
    first = topic.partitions[0]
    assert first.replica_nodes == ([OWN, FENCED] if version == 0 else [OWN, INSIDE_ONLY, FENCED])
    assert first.isr_nodes == ([OWN] if version == 0 else [OWN, INSIDE_ONLY])
    assert first.offline_replicas == ([INSIDE_ONLY, FENCED] if version >= 5 else [])


def test_describe_topic_partitions_names_leaders_with_the_clients_listener() -> None:
    services, context = arguments(0)
    response = describe_topic_partitions.handle(
        services, context, DescribeTopicPartitionsRequest(response_partition_limit=100)
    ).value
    partitions = response.topics[0].partitions
    assert [(each.leader_id, each.error_code) for each in partitions] == [
        (OWN, OK),
        (BOTH, OK),
        (NO_LEADER, NO_LISTENER),
        (FENCED, OK),
        (NO_LEADER, NOT_AVAILABLE),
        (NO_LEADER, NOT_AVAILABLE),
    ]
    assert partitions[0].offline_replicas == [INSIDE_ONLY, FENCED]
    assert partitions[0].eligible_leader_replicas == [FENCED]
    assert partitions[0].last_known_elr == [BOTH]


@pytest.mark.parametrize(("include", "expected"), [(False, [1, 2]), (True, [1, 2, 4])])
def test_describe_cluster_returns_fenced_brokers_on_request(
    include: bool, expected: list[int]
) -> None:
    request = DescribeClusterRequest(include_fenced_brokers=include)
    response = describe_cluster.handle(*arguments(2), request).value
    encode(response, 2)
    assert [each.broker_id for each in response.brokers] == expected
    assert [each.is_fenced for each in response.brokers] == [n == FENCED for n in expected]


def test_a_listener_that_only_this_broker_has() -> None:
    response = describe_cluster.handle(
        *arguments(0, listener="LOCAL"), DescribeClusterRequest()
    ).value
    assert [(each.broker_id, each.host) for each in response.brokers] == [(OWN, "me")]


def test_leader_hints_name_alive_brokers_with_the_listener() -> None:
    hints = leader_endpoints(*arguments(0), LEADERS)
    assert [hint.node_id for hint in hints] == [OWN, BOTH]


@pytest.mark.parametrize(
    ("leader", "host"),
    [(OWN, "me"), (BOTH, "outside-2"), (INSIDE_ONLY, ""), (FENCED, ""), (UNKNOWN, "")],
)
def test_a_coordinator_is_alive_and_has_the_clients_listener(leader: BrokerId, host: str) -> None:
    offsets = TopicImage(
        TopicName("__consumer_offsets"),
        Uuid(b"o" * 16),
        [PartitionImage(0, leader, 0, 0, (leader,), (leader,))],
    )
    image = MetadataImage(
        brokers=IMAGE.brokers, topics_by_name=PersistentMap({offsets.name: offsets})
    )
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    (found,) = find_coordinator.handle(*arguments(4, image), request).value.coordinators
    assert found.host == host
    expected = ErrorCode.NONE if host else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found.error_code == expected
