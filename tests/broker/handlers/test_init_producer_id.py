"""InitProducerId over the wire: ids are never allocated twice, and a new producer fences."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.txn_calls import add, find, init, producer, wait_for


@pytest.mark.parametrize("version", range(6))
def test_each_producer_gets_an_id_of_its_own(client: WireClient, version: int) -> None:
    responses = [client.call(InitProducerIdRequest(None, 1000), version) for _ in range(3)]
    assert [(each.error_code, each.producer_epoch) for each in responses] == [(0, 0)] * 3
    ids = [each.producer_id for each in responses]
    assert ids == sorted(set(ids))


def test_empty_transactional_id_is_invalid(client: WireClient) -> None:
    got = client.call(InitProducerIdRequest("", 1000), 4)
    assert (got.error_code, got.producer_id, got.producer_epoch) == (
        ErrorCode.INVALID_REQUEST,
        -1,
        -1,
    )


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_id_without_epoch_is_invalid(client: WireClient, producer_id: int, epoch: int) -> None:
    got = client.call(InitProducerIdRequest(None, 1000, producer_id, epoch), 4)
    assert got.error_code == ErrorCode.INVALID_REQUEST


def test_known_id_of_an_idempotent_producer_is_replaced(client: WireClient) -> None:
    """KIP-360: only a transactional producer keeps its id."""
    first = client.call(InitProducerIdRequest(None, 1000), 4)
    again = client.call(InitProducerIdRequest(None, 1000, first.producer_id, 0), 4)
    assert again.error_code == 0
    assert again.producer_id != first.producer_id


@pytest.mark.parametrize("version", range(6))
def test_transactional_id_keeps_its_producer_id_and_each_producer_fences(
    client: WireClient, version: int
) -> None:
    find(client)
    responses = [init(client, version) for _ in range(3)]
    assert [(each.error_code, each.producer_epoch) for each in responses] == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]
    assert len({each.producer_id for each in responses}) == 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_producer_that_sends_its_id_continues_and_others_are_fenced(
    client: WireClient, version: int
) -> None:
    producer_id, epoch = producer(client)
    for _ in range(2):
        bumped = init(client, version, known=(producer_id, epoch))
        assert (bumped.error_code, bumped.producer_id, bumped.producer_epoch) == (0, producer_id, 1)
    fenced = init(client, version, known=(producer_id, 7))
    expected = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert (fenced.error_code, fenced.producer_id, fenced.producer_epoch) == (expected, -1, -1)


def test_open_transaction_is_aborted_first(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    who = producer(client)
    add(client, who, "t0")
    assert init(client).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    wait_for(client, "CompleteAbort")
    response = init(client)
    assert (response.error_code, response.producer_epoch) == (0, 2)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_timeout_is_bounded(client: WireClient, timeout_ms: int) -> None:
    find(client)
    got = init(client, timeout_ms=timeout_ms)
    assert got.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_without_a_state_topic_a_transactional_id_has_no_coordinator(client: WireClient) -> None:
    assert init(client).error_code == ErrorCode.NOT_COORDINATOR


def test_ids_continue_after_the_block_after_a_restart(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with Broker(data_dir=tmp_path) as broker, WireClient(broker.bootstrap_servers) as client:
            ids.append(client.call(InitProducerIdRequest(None, 1000), 4).producer_id)
    assert ids[1] >= ids[0] + 1000
