"""Verification of partitions with the transaction coordinator before an append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.transactions.partition_verification import Operation, Transaction, verify
from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.state.verification import NO_GUARD, Verifications
from odradek.result_tasks import wait
from odradek.results import PendingResult, Result
from tests.helpers.manual_timers import ManualTimers

E = ErrorCode
TRANSACTION = Transaction("x", 1, 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakePartition:
    """A partition that has only the state of open verifications."""

    def __init__(self, topic_partition: TopicPartition, *, ongoing: bool = False) -> None:
        self.topic_partition = topic_partition
        self.ongoing = ongoing
        self.error: ErrorCode | None = None
        self.open = Verifications()

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, epoch_bump: bool
    ) -> int | None:
        if self.error is not None:
            raise KafkaError(self.error)
        if self.ongoing:
            return None
        return self.open.start(producer_id, epoch, sequence, now_ms, epoch_bump)


def cluster_with(coordinator: int, respond: Callable[..., Any]) -> Any:
    """Return a cluster in which that broker is the coordinator. 0: there is none."""
    verifications = SimpleNamespace(
        coordinator_of=lambda _: coordinator or None,
        verify=lambda _, *request, add: respond(*request, add=add),
    )
    return SimpleNamespace(transaction_peers=SimpleNamespace(verifications=verifications))


def verified(
    responses: list[Any],
    partitions: list[FakePartition],
    operation: Operation = Operation.ADD_PARTITION,
    between: Callable[[], None] = lambda: None,
    coordinator: int | None = None,
    **config: object,
) -> tuple[list[Any], list[Any]]:
    """Return the verdict of each partition (errors as codes) and the coordinator's requests.

    With `coordinator` the broker is broker 1 of a cluster.
    """
    requests: list[Any] = []

    def respond(*request: Any, add: bool) -> Any:
        requests.append((request[3], add))
        response = responses.pop(0)
        return response if isinstance(response, Result) else Result(response)

    def start(topic: str, index: int, *request: Any) -> Any:
        (partition,) = (each for each in partitions if each.topic_partition == (topic, index))
        *known, epoch_bump = request
        return partition.topic_partition, partition.start_verification(*known, 0, epoch_bump)

    async def main() -> Any:
        for at, each in enumerate(responses):
            if each is asyncio.Future:
                responses[at] = PendingResult()
                asyncio.get_running_loop().call_soon(responses[at].complete, {T0: E.NONE})
        clock = ManualClock(1)
        services: Any = SimpleNamespace(
            config=BrokerConfig({name.replace("_", "."): str(v) for name, v in config.items()}),
            clock=clock,
            timers=ManualTimers(clock),
            transactions=SimpleNamespace(verify=respond),
            node_id=1,
            cluster=None,
            replica_manager=SimpleNamespace(start_verification=start),
        )
        if coordinator is not None:
            services.cluster = cluster_with(coordinator, respond)
        sequences: Any = dict.fromkeys((each.topic_partition for each in partitions), 0)
        verdicts = verify(services, TRANSACTION, sequences, operation)
        between()
        return await wait(verdicts)

    verdicts = asyncio.run(main())
    found = [verdicts[each.topic_partition] for each in partitions]
    return [each.code if isinstance(each, KafkaError) else each for each in found], requests


def test_open_transactions_and_partitions_of_other_leaders_are_not_verified() -> None:
    elsewhere = FakePartition(T1)
    elsewhere.error = E.NOT_LEADER_OR_FOLLOWER
    verdicts, requests = verified([], [FakePartition(T0, ongoing=True), elsewhere])
    assert (verdicts, requests) == ([NO_GUARD, E.NOT_LEADER_OR_FOLLOWER], [])


@pytest.mark.parametrize("operation", Operation)
def test_only_newer_clients_add_partitions(operation: Operation) -> None:
    partition = FakePartition(T0)
    (guard,), requests = verified([{T0: E.NONE}], [partition], operation)
    assert partition.open.passes(1, guard)
    assert requests == [([T0], operation is Operation.ADD_PARTITION)]


@pytest.mark.parametrize(
    ("code", "operation", "expected"),
    [
        (E.PRODUCER_FENCED, Operation.GENERIC_ERROR, E.INVALID_PRODUCER_EPOCH),
        (E.TRANSACTION_ABORTABLE, Operation.GENERIC_ERROR, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, Operation.DEFAULT_ERROR, E.INVALID_TXN_STATE),
        (E.CONCURRENT_TRANSACTIONS, Operation.GENERIC_ERROR, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_clients_get_errors_that_their_version_supports(
    code: ErrorCode, operation: Operation, expected: ErrorCode
) -> None:
    assert verified([{T0: code}], [FakePartition(T0)], operation)[0] == [expected]


def test_verification_is_retried_while_the_previous_transaction_completes() -> None:
    concurrent = {T0: E.CONCURRENT_TRANSACTIONS}
    responses = [concurrent, concurrent, {T0: E.NONE}]
    partition = FakePartition(T0)
    verdicts, requests = verified(
        responses,
        [partition],
        add_partitions_to_txn_retry_backoff_ms=1,
        add_partitions_to_txn_retry_backoff_max_ms=10_000,
    )
    assert partition.open.passes(1, verdicts[0])
    assert len(requests) == 3


def test_verification_retries_end_after_the_configured_time() -> None:
    verdicts, requests = verified(
        [{T0: E.CONCURRENT_TRANSACTIONS}] * 9,
        [FakePartition(T0)],
        add_partitions_to_txn_retry_backoff_ms=20,
        add_partitions_to_txn_retry_backoff_max_ms=50,
    )
    assert (verdicts, len(requests)) == ([E.CONCURRENT_TRANSACTIONS], 4)


def test_guard_is_older_than_the_coordinators_response() -> None:
    """A marker during the verification removes the guard. A new verification makes another one."""
    partition = FakePartition(T0)

    def marker_and_new_verification() -> None:
        partition.open.end(1)
        partition.open.start(1, 0, 0, 1)

    (guard,), _ = verified([asyncio.Future], [partition], between=marker_and_new_verification)
    assert guard != NO_GUARD
    assert not partition.open.passes(1, guard)


@pytest.mark.parametrize("coordinator", [1, 2], ids=["this broker", "another broker"])
@pytest.mark.parametrize("operation", [Operation.GENERIC_ERROR, Operation.ADD_PARTITION])
def test_the_coordinator_of_a_cluster_is_asked_wherever_it_is(
    coordinator: int, operation: Operation
) -> None:
    partition = FakePartition(T0)
    responses = [asyncio.Future] if coordinator == 2 else [{T0: E.NONE}]
    (guard,), requests = verified(responses, [partition], operation, coordinator=coordinator)
    assert partition.open.passes(1, guard)
    assert requests == [([T0], operation is Operation.ADD_PARTITION)]


def test_without_a_coordinator_it_is_not_available() -> None:
    verdicts, requests = verified([], [FakePartition(T0)], coordinator=0)
    assert (verdicts, requests) == ([E.COORDINATOR_NOT_AVAILABLE], [])


def test_verification_by_another_broker_is_retried_while_the_transaction_completes() -> None:
    responses = [{T0: E.CONCURRENT_TRANSACTIONS}, {T0: E.NONE}]
    partition = FakePartition(T0)
    verdicts, requests = verified(responses, [partition], coordinator=2)
    assert partition.open.passes(1, verdicts[0])
    assert len(requests) == 2


def test_only_the_addition_of_partitions_is_retried() -> None:
    response: PendingResult[Any] = PendingResult()
    verdicts, requests = verified(
        [response],
        [FakePartition(T0)],
        Operation.GENERIC_ERROR,
        lambda: response.complete({T0: E.CONCURRENT_TRANSACTIONS}),
        coordinator=2,
    )
    assert (verdicts, len(requests)) == ([E.CONCURRENT_TRANSACTIONS], 1)
