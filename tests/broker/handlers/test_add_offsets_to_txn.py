"""AddOffsetsToTxn over the wire: the group's partition is added to the transaction."""

from __future__ import annotations

import pytest

from odradek.coordinator.runtime import partition_for
from odradek.errors import ErrorCode
from testkit.wire import WireClient
from tests.broker.handlers.txn_calls import add_offsets, describe, init, producer

E = ErrorCode


@pytest.mark.parametrize("version", range(5))
def test_partition_of_the_group_is_added(client: WireClient, version: int) -> None:
    who = producer(client)
    assert add_offsets(client, who, "my-group", version=version) is E.NONE
    assert add_offsets(client, who, "my-group", version=version) is E.NONE
    [state] = describe(client)
    assert state.transaction_state == "Ongoing"
    [topic] = state.topics
    expected = ("__consumer_offsets", [partition_for("my-group", 50)])
    assert (topic.topic, topic.partitions) == expected


@pytest.mark.parametrize("version", range(5))
def test_fenced_producer_gets_the_error_code_of_its_version(
    client: WireClient, version: int
) -> None:
    who = producer(client)
    init(client)
    expected = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert add_offsets(client, who, version=version) is expected


def test_unknown_transactional_ids_and_producers_are_refused(client: WireClient) -> None:
    who = producer(client)
    assert add_offsets(client, (who[0] + 1, 0)) is E.INVALID_PRODUCER_ID_MAPPING
    assert add_offsets(client, who, name="nobody") is E.INVALID_PRODUCER_ID_MAPPING
    assert add_offsets(client, who, name="") is E.INVALID_REQUEST
