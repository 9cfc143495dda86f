"""AllocateProducerIds: blocks for registered brokers, and requests of other processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.transactions.producer_id_blocks import block_of_controller
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.results import Result
from tests.helpers.two_brokers import (
    CONTROLLER_ID,
    EPOCH,
    OTHER_ID,
    TwoBrokers,
    publish_brokers,
    run_with_two_brokers,
)

Test = Callable[[TwoBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    return lambda test: run_with_two_brokers(tmp_path, test)


async def allocate(
    brokers: TwoBrokers, epoch: int = EPOCH, broker_id: int = OTHER_ID, at: int = CONTROLLER_ID
) -> AllocateProducerIdsResponse:
    request = AllocateProducerIdsRequest(broker_id, epoch)
    response = await brokers.call(request, AllocateProducerIdsResponse, at, listener="BROKERS")
    assert isinstance(response, AllocateProducerIdsResponse)
    return response


async def register_other(brokers: TwoBrokers) -> None:
    other = brokers.image(OTHER_ID).brokers[BrokerId(OTHER_ID)]
    await publish_brokers(brokers.controller, replace(other, epoch=EPOCH))


def test_each_block_is_given_out_once(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        await register_other(brokers)
        blocks = [await allocate(brokers) for _ in range(3)]
        assert [(b.error_code, b.producer_id_start, b.producer_id_len) for b in blocks] == [
            (0, first, 1000) for first in (0, 1000, 2000)
        ]

    run(test)


def test_a_broker_that_is_not_registered_with_its_epoch_gets_none(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        assert (await allocate(brokers)).error_code == ErrorCode.STALE_BROKER_EPOCH
        await register_other(brokers)
        for epoch, broker_id in ((EPOCH - 1, OTHER_ID), (EPOCH + 1, OTHER_ID), (EPOCH, 9)):
            response = await allocate(brokers, epoch, broker_id)
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert (await allocate(brokers)).producer_id_start == 0

    run(test)


def test_a_broker_that_is_not_the_controller_gives_none(run: Any) -> None:
    async def test(brokers: TwoBrokers) -> None:
        response = await allocate(brokers, at=OTHER_ID)
        assert response.error_code == ErrorCode.NOT_CONTROLLER

    run(test)


@pytest.mark.parametrize(("first", "count"), [(-1, 10), (0, 0), (0, -1), (2**63 - 5, 10)])
def test_a_block_without_ids_is_never_used(run: Any, first: int, count: int) -> None:
    async def test(brokers: TwoBrokers) -> None:
        cluster = brokers.other.services.cluster
        assert cluster is not None
        bad = AllocateProducerIdsResponse(0, 0, first, count)
        cluster.block_channel.send = lambda *_, **__: Result(bad)  # type: ignore[method-assign]
        with pytest.raises(KafkaError) as caught:
            await block_of_controller(cluster, OTHER_ID)
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(test)
