"""AlterPartition: the form in which the controller gets requests, and brokers without the role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.alter_partition_response import AlterPartitionResponse
from tests.helpers.two_brokers import CONTROLLER_ID, OTHER_ID, TwoBrokers, run_with_two_brokers

TOPIC_ID = b"t" * 16


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[..., None]:
    def start(test: Callable[[TwoBrokers], Awaitable[None]]) -> None:
        run_with_two_brokers(tmp_path, test)

    return start


def request(version: int, partitions: int = 1) -> AlterPartitionRequest:
    """Return a request. The form of version 3 is what the controller gets."""
    members: dict[str, Any] = {"new_isr": [1, 2]}
    if version >= 3:
        members = {"new_isr_with_epochs": [BrokerState(1, 7), BrokerState(2, 8)]}
    data = [
        PartitionData(number, 5, leader_recovery_state=1, partition_epoch=6, **members)
        for number in range(partitions)
    ]
    return AlterPartitionRequest(OTHER_ID, 77, [TopicData(TOPIC_ID, data)])


def test_the_controller_gets_version_3_unchanged(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        controller = brokers.controller_requests
        controller.responses.append(AlterPartitionResponse(error_code=77))
        response = await brokers.call(
            request(3), AlterPartitionResponse, CONTROLLER_ID, listener="BROKERS", version=3
        )
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert controller.requests == [request(3)]

    run(test)


@pytest.mark.parametrize("partitions", [1, 3_000])
def test_version_2_has_members_without_epochs(run: Any, partitions: int) -> None:
    async def test(brokers: TwoBrokers) -> None:
        controller = brokers.controller_requests
        controller.responses.append(AlterPartitionResponse())
        await brokers.call(
            request(2, partitions),
            AlterPartitionResponse,
            CONTROLLER_ID,
            listener="BROKERS",
            version=2,
        )
        expected = request(3, partitions)
        for partition in expected.topics[0].partitions:
            partition.new_isr_with_epochs = [BrokerState(1, -1), BrokerState(2, -1)]
        assert controller.requests == [expected]

    run(test)


def test_a_broker_that_is_not_the_controller_changes_nothing(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await brokers.call(
            request(3), AlterPartitionResponse, OTHER_ID, listener="BROKERS"
        )
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        assert not brokers.controller_requests.requests

    run(test)
