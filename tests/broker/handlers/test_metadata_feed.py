"""MetadataFeed: polls of the feed go to the active controller only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.metadata_feed_response import MetadataFeedResponse
from odradek.result_tasks import wait
from odradek.results import PendingResult
from tests.helpers.two_brokers import CONTROLLER_ID, OTHER_ID, TwoBrokers, run_with_two_brokers

REQUEST = MetadataFeedRequest(broker_id=OTHER_ID, broker_epoch=77)


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[..., None]:
    return lambda test: run_with_two_brokers(tmp_path, test)


def test_the_active_controller_responds(run: Callable[..., None]) -> None:
    async def test(brokers: TwoBrokers) -> None:
        expected = MetadataFeedResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        brokers.controller_requests.responses.append(expected)
        response = await brokers.call(
            REQUEST, MetadataFeedResponse, CONTROLLER_ID, listener="BROKERS"
        )
        assert response == expected
        assert brokers.controller_requests.requests == [REQUEST]

    run(test)


def test_another_broker_returns_not_controller(run: Callable[..., None]) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await brokers.call(REQUEST, MetadataFeedResponse, OTHER_ID, listener="BROKERS")
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        assert not brokers.controller_requests.requests

    run(test)


def test_a_poll_that_waits_does_not_hold_up_its_connection(run: Callable[..., None]) -> None:
    """The next request of the connection starts. Its response leaves after the poll's."""

    async def test(brokers: TwoBrokers) -> None:
        cancelled: list[bool] = []
        waiting: PendingResult[MetadataFeedResponse] = PendingResult(
            on_cancel=lambda: cancelled.append(True)
        )
        brokers.controller_requests.responses += [waiting, MetadataFeedResponse(metadata_offset=2)]
        channel = brokers.channel(CONTROLLER_ID, "BROKERS")
        first = channel.send(REQUEST, MetadataFeedResponse)
        second = channel.send(REQUEST, MetadataFeedResponse)
        await brokers.controller_requests.received(2)
        assert not second.done
        waiting.complete(MetadataFeedResponse(metadata_offset=1))
        assert [(await wait(each)).metadata_offset for each in (first, second)] == [1, 2]
        assert not cancelled

    run(test)


def test_a_poll_ends_with_its_connection(run: Callable[..., None]) -> None:
    async def test(brokers: TwoBrokers) -> None:
        ended = asyncio.Event()
        waiting: PendingResult[MetadataFeedResponse] = PendingResult(on_cancel=ended.set)
        brokers.controller_requests.responses.append(waiting)
        channel = brokers.channel(CONTROLLER_ID, "BROKERS")
        channel.send(REQUEST, MetadataFeedResponse)
        await brokers.controller_requests.received(1)
        channel.close()
        await ended.wait()

    run(test)
