"""ElectLeaders over the wire: one node needs no election; refused requests."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers.elect_leaders import handle
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_LEADER
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.testing import Broker
from testkit.wire import WireClient

PREFERRED, UNCLEAN = 0, 1


def elected(client: WireClient, request: ElectLeadersRequest, version: int = 2) -> Any:
    response = client.call(request, version)
    return response.error_code, {
        (topic.topic, each.partition_id): (each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


@pytest.mark.parametrize("version", range(3))
def test_every_version_finds_nothing_to_elect(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 2)
    request = ElectLeadersRequest(PREFERRED, [TopicPartitions("t", [0, 1])])
    not_needed = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    assert elected(client, request, version) == (
        ErrorCode.NONE,
        {("t", 0): not_needed, ("t", 1): not_needed},
    )


def test_a_request_for_all_partitions_returns_only_leaderless_ones(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t", 2)
    response = client.call(ElectLeadersRequest(UNCLEAN, None), 2)
    assert [(each.topic, each.partition_result) for each in response.replica_election_results] == [
        ("t", [])
    ]


def test_topics_and_partitions_that_do_not_exist_are_unknown(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    request = ElectLeadersRequest(
        UNCLEAN, [TopicPartitions("t", [1, -1]), TopicPartitions("no", [0])]
    )
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elected(client, request)[1] == {
        ("t", 1): (unknown, "No such partition as t-1"),
        ("t", -1): (unknown, "No such partition as t--1"),
        ("no", 0): (unknown, "No such topic as no"),
    }


def test_an_unknown_kind_of_election_is_refused_as_a_whole(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    code, results = elected(client, ElectLeadersRequest(2, [TopicPartitions("t", [0])]))
    assert code == ErrorCode.INVALID_REQUEST
    assert results == {("t", 0): (ErrorCode.INVALID_REQUEST, "Unknown election type 2")}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_a_partition_of_another_node_cannot_be_led(
    broker: Broker, kind: int, code: ErrorCode
) -> None:
    broker.create_topic("t")

    async def ask(server: Any) -> Any:
        image = server.services.image()
        topic = image.topics_by_name["t"]
        lost = replace(topic.partitions[0], leader=NO_LEADER, replicas=(9,), isr=(9,))
        moved = image.with_topics({"t": replace(topic, partitions=(lost,))}, {})
        controller = SimpleNamespace(image=moved)
        services = replace(server.services, controller=controller)  # type: ignore[arg-type]
        request = ElectLeadersRequest(kind, None)
        return handle(services, None, request).get()  # type: ignore[arg-type]

    (topic,) = broker.call(ask).replica_election_results
    assert [each.error_code for each in topic.partition_result] == [code]
