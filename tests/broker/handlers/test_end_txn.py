"""EndTxn over the wire: every version, the response before the markers, retries, fencing."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.txn_calls import add, end, init, producer, state_of, wait_for

E = ErrorCode


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("committed", [True, False])
def test_retry_of_an_end_gets_the_same_response(
    broker: Broker, client: WireClient, version: int, committed: bool
) -> None:
    broker.create_topic("t", 2)
    who = producer(client)
    assert add(client, who, "t0", "t1") == {"t0": E.NONE, "t1": E.NONE}
    assert end(client, who, committed=committed, version=version).error_code == 0
    wait_for(client, "CompleteCommit" if committed else "CompleteAbort")
    assert end(client, who, committed=committed, version=version).error_code == 0
    opposite = end(client, who, committed=not committed, version=version)
    assert opposite.error_code == E.INVALID_TXN_STATE


def test_version_5_returns_id_and_epoch_of_the_next_transaction(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    who = producer(client)
    add(client, who, "t0")
    response = end(client, who, version=5)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, who[0], 1)
    wait_for(client, "CompleteCommit")
    again = end(client, who, version=5)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, who[0], 1)
    assert add(client, who, "t0") == {"t0": E.PRODUCER_FENCED}
    assert add(client, (who[0], 1), "t0") == {"t0": E.NONE}


def test_version_5_may_abort_without_a_transaction(client: WireClient) -> None:
    who = producer(client)
    response = end(client, who, committed=False, version=5)
    assert (response.error_code, response.producer_epoch) == (0, 1)
    wait_for(client, "CompleteAbort")


@pytest.mark.parametrize("version", range(5))
def test_ending_without_a_transaction_is_an_error_before_version_5(
    client: WireClient, version: int
) -> None:
    who = producer(client)
    for committed in (True, False):
        response = end(client, who, committed=committed, version=version)
        assert response.error_code == E.INVALID_TXN_STATE
    assert state_of(client) == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_fenced_producer_gets_the_error_code_of_its_version(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")
    who = producer(client)
    init(client)
    expected = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    response = end(client, who, version=version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (
        expected,
        -1,
        -1,
    )


@pytest.mark.parametrize("version", [0, 3, 5])
def test_unknown_transactional_id_or_producer(client: WireClient, version: int) -> None:
    who = producer(client)
    other = end(client, (who[0] + 1, 0), version=version)
    assert other.error_code == E.INVALID_PRODUCER_ID_MAPPING
    unknown = end(client, who, name="nobody", version=version)
    assert unknown.error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert end(client, who, name="", version=version).error_code == E.INVALID_REQUEST


def test_without_a_state_topic_there_is_no_coordinator(client: WireClient) -> None:
    assert end(client, (1, 0)).error_code == E.NOT_COORDINATOR


def test_topic_deleted_during_a_transaction_does_not_block_its_end(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    broker.create_topic("u")
    who = producer(client)
    add(client, who, "t0", "u0")

    async def delete(server: object) -> None:
        controller = server.services.controller  # type: ignore[attr-defined]
        await controller.delete_topics([controller.image.topics_by_name["t"].topic_id])

    broker.call(delete)
    assert end(client, who).error_code == 0
    wait_for(client, "CompleteCommit")
