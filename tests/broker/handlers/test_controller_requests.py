"""Requests between brokers that only the active controller executes, each in one call of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.protocol.codec import Message
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.protocol.messages.drain_broker_request import DrainBrokerRequest
from odradek.protocol.messages.drain_broker_response import DrainBrokerResponse
from odradek.protocol.messages.finish_deletions_request import FinishDeletionsRequest
from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
from odradek.protocol.messages.metadata_image_request import MetadataImageRequest
from odradek.protocol.messages.metadata_image_response import MetadataImageResponse
from tests.helpers.two_brokers import CONTROLLER_ID, OTHER_ID, TwoBrokers, run_with_two_brokers

CASES: dict[str, tuple[Message, Any]] = {
    "assign_replicas_to_dirs": (
        AssignReplicasToDirsRequest(broker_id=OTHER_ID, broker_epoch=77),
        AssignReplicasToDirsResponse,
    ),
    "broker_heartbeat": (
        BrokerHeartbeatRequest(broker_id=OTHER_ID, broker_epoch=77),
        BrokerHeartbeatResponse,
    ),
    "drain_broker": (DrainBrokerRequest(OTHER_ID, drained=True), DrainBrokerResponse),
    "finish_deletions": (
        FinishDeletionsRequest(OTHER_ID, 77, [Uuid(bytes(range(16)))]),
        FinishDeletionsResponse,
    ),
    "metadata_image": (
        MetadataImageRequest(broker_id=OTHER_ID, broker_epoch=77),
        MetadataImageResponse,
    ),
}
"""The request and the class of the response, by handler."""


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[..., None]:
    return lambda test: run_with_two_brokers(tmp_path, test)


@pytest.mark.parametrize(("request_", "response_class"), CASES.values(), ids=CASES)
def test_the_active_controller_responds(
    run: Callable[..., None], request_: Message, response_class: Any
) -> None:
    async def test(brokers: TwoBrokers) -> None:
        expected = response_class(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        brokers.controller_requests.responses.append(expected)
        response = await brokers.call(request_, response_class, CONTROLLER_ID, listener="BROKERS")
        assert response == expected
        assert brokers.controller_requests.requests == [request_]

    run(test)


@pytest.mark.parametrize(("request_", "response_class"), CASES.values(), ids=CASES)
def test_another_broker_returns_not_controller(
    run: Callable[..., None], request_: Message, response_class: Any
) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await brokers.call(request_, response_class, OTHER_ID, listener="BROKERS")
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        assert not brokers.controller_requests.requests

    run(test)
