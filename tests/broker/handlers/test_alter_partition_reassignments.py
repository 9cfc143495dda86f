"""AlterPartitionReassignments over the wire: one node cannot move partitions; Kafka's errors."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers.alter_partition_reassignments import handle
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_LEADER
from odradek.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.testing import Broker
from testkit.wire import WireClient


def request_for(
    topic: str, partition: int, replicas: list[int] | None, may_resize: bool = True
) -> AlterPartitionReassignmentsRequest:
    target = ReassignableTopic(topic, [ReassignablePartition(partition, replicas)])
    return AlterPartitionReassignmentsRequest(60_000, may_resize, [target])


def result_of(response: Any) -> tuple[int, str | None]:
    ((partition,),) = [each.partitions for each in response.responses]
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    return partition.error_code, partition.error_message


@pytest.mark.parametrize("version", range(2))
def test_every_version_accepts_the_current_replicas_and_changes_nothing(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")
    response = client.call(request_for("t", 0, [1]), version)
    assert result_of(response) == (ErrorCode.NONE, None)
    assert response.responses[0].name == "t"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (request_for("t", 0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (request_for("t", 0, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request_for("t", 0, [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request_for("t", 0, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request_for("t", 0, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (request_for("t", 1, [1]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request_for("no", 0, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_refused_says_why(
    broker: Broker,
    client: WireClient,
    request_: AlterPartitionReassignmentsRequest,
    code: ErrorCode,
) -> None:
    broker.create_topic("t")
    refused, message = result_of(client.call(request_, 1))
    assert refused == code
    assert bool(message) == (code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


@pytest.mark.parametrize(
    ("may_resize", "code"),
    [
        (True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (False, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_partition_of_another_node_is_not_reassigned_to_this_one(
    broker: Broker, may_resize: bool, code: ErrorCode
) -> None:
    broker.create_topic("t")

    async def ask(server: Any) -> Any:
        image = server.services.image()
        topic = image.topics_by_name["t"]
        lost = replace(topic.partitions[0], leader=NO_LEADER, replicas=(8, 9), isr=(9,))
        moved = image.with_topics({"t": replace(topic, partitions=(lost,))}, {})
        services = replace(server.services, controller=SimpleNamespace(image=moved))
        request = request_for("t", 0, [1], may_resize)
        return handle(services, None, request).get()  # type: ignore[arg-type]

    assert result_of(broker.call(ask))[0] == code


def test_a_request_without_topics_has_kafkas_empty_message(client: WireClient) -> None:
    response = client.call(AlterPartitionReassignmentsRequest(60_000, True, []), 1)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")
