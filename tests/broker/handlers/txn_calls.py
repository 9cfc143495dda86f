"""Requests of the transaction APIs as a producer or a tool sends them, over a plain connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.list_transactions_request import ListTransactionsRequest
from testkit.wire import TIMEOUT_S, WireClient

TIMEOUT_MS = 600_000
Who = tuple[int, int]


def find(client: WireClient, transactional_id: str = "x", version: int = 4) -> Any:
    """Send FindCoordinator for a transactional id, which creates ``__transaction_state``."""
    request = FindCoordinatorRequest(key=transactional_id, key_type=1)
    if version >= 4:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    return client.call(request, version)


def init(
    client: WireClient,
    version: int = 4,
    *,
    name: str = "x",
    known: Who = (-1, -1),
    timeout_ms: int = TIMEOUT_MS,
) -> Any:
    request = InitProducerIdRequest(name, timeout_ms)
    if version >= 3:
        request.producer_id, request.producer_epoch = known
    return client.call(request, version)


def producer(client: WireClient, name: str = "x") -> Who:
    """Initialize a producer. Return its id and epoch."""
    find(client, name)
    response = init(client, name=name)
    assert response.error_code == 0
    return response.producer_id, response.producer_epoch


def topics(*names: str) -> list[AddPartitionsToTxnTopic]:
    """Return the topics of partitions such as ``t0``, which is partition 0 of topic t."""
    found: dict[str, AddPartitionsToTxnTopic] = {}
    for name in names:
        topic = found.setdefault(name[:-1], AddPartitionsToTxnTopic(name[:-1], []))
        topic.partitions.append(int(name[-1]))
    return list(found.values())


def add(
    client: WireClient, who: Who, *names: str, name: str = "x", version: int = 3
) -> dict[str, ErrorCode]:
    """Send a producer's AddPartitionsToTxn. Return the error codes by partition."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=topics(*names),
    )
    return codes(client.call(request, version).results_by_topic_v3_and_below)


def codes(results: Any) -> dict[str, ErrorCode]:
    return {
        f"{topic.name}{each.partition_index}": ErrorCode(each.partition_error_code)
        for topic in results
        for each in topic.results_by_partition
    }


def transaction(
    who: Who, *names: str, name: str = "x", verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    """Return one entry of the batched request."""
    return AddPartitionsToTxnTransaction(name, *who, verify_only, topics(*names))


def add_batched(
    client: WireClient, *transactions: AddPartitionsToTxnTransaction, version: int = 5
) -> list[dict[str, ErrorCode]]:
    response = client.call(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    assert response.error_code == 0
    return [codes(each.topic_results) for each in response.results_by_transaction]


def add_offsets(
    client: WireClient, who: Who, group: str = "g", *, name: str = "x", version: int = 3
) -> ErrorCode:
    request = AddOffsetsToTxnRequest(name, *who, group)
    return ErrorCode(client.call(request, version).error_code)


def end(
    client: WireClient, who: Who, *, committed: bool = True, name: str = "x", version: int = 3
) -> Any:
    return client.call(EndTxnRequest(name, *who, committed), version)


def describe(client: WireClient, *names: str) -> list[Any]:
    request = DescribeTransactionsRequest(list(names or ("x",)))
    return client.call(request, 0).transaction_states  # type: ignore[no-any-return]


def state_of(client: WireClient, name: str = "x") -> str:
    return describe(client, name)[0].transaction_state  # type: ignore[no-any-return]


def list_transactions(client: WireClient, version: int = 2, **filters: Any) -> Any:
    return client.call(ListTransactionsRequest(**filters), version)


def wait_for(client: WireClient, state: str, name: str = "x") -> None:
    """Wait until the coordinator is in a state. It writes markers after the response."""
    eventually(lambda: state_of(client, name) == state, lambda: state_of(client, name))


def eventually(true: Callable[[], bool], show_state: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline, show_state()
