"""FinishDeletions: the report goes to the active controller only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.protocol.messages.finish_deletions_request import FinishDeletionsRequest
from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
from tests.helpers.two_brokers import CONTROLLER_ID, OTHER_ID, TwoBrokers, run_with_two_brokers

REQUEST = FinishDeletionsRequest(OTHER_ID, 77, [Uuid(bytes(range(16)))])


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[..., None]:
    return lambda test: run_with_two_brokers(tmp_path, test)


def test_the_active_controller_responds(run: Callable[..., None]) -> None:
    async def test(brokers: TwoBrokers) -> None:
        expected = FinishDeletionsResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        brokers.controller_requests.responses.append(expected)
        response = await brokers.call(
            REQUEST, FinishDeletionsResponse, CONTROLLER_ID, listener="BROKERS"
        )
        assert response == expected
        assert brokers.controller_requests.requests == [REQUEST]

    run(test)


def test_another_broker_returns_not_controller(run: Callable[..., None]) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await brokers.call(
            REQUEST, FinishDeletionsResponse, OTHER_ID, listener="BROKERS"
        )
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        assert not brokers.controller_requests.requests

    run(test)
