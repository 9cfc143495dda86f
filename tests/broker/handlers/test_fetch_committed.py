"""Fetch with read_committed: records up to the last stable offset, and aborted transactions."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from odradek.records.batch import parse_header
from odradek.records.record import iter_batches
from odradek.testing import Broker
from testkit.requests import fetch
from testkit.wire import TIMEOUT_S, WireClient
from tests.helpers.transactions import end_transaction, produce_plain, produce_transactional

READ_COMMITTED = 1


@pytest.fixture
def config() -> dict[str, Any]:
    return {"log.index.interval.bytes": 200}


def read(client: WireClient, offset: int = 0, **options: Any) -> Any:
    options.setdefault("isolation_level", READ_COMMITTED)
    return client.call(fetch(offset=offset, **options), 11).responses[0].partitions[0]


def aborted(partition: Any) -> list[tuple[int, int]] | None:
    if partition.aborted_transactions is None:
        return None
    return [(each.producer_id, each.first_offset) for each in partition.aborted_transactions]


def end_of(partition: Any) -> int:
    """Return the offset after the last whole batch in a response."""
    headers = [parse_header(each) for each in iter_batches(bytes(partition.records))]
    return headers[-1].last_offset + 1 if headers else -1


def test_reading_stops_at_the_first_open_transaction(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    produce_plain(broker, b"a")
    produce_transactional(broker, 1, 0, b"b")
    produce_plain(broker, b"c")
    partition = read(client)
    assert (end_of(partition), partition.last_stable_offset, partition.high_watermark) == (1, 1, 3)
    assert aborted(partition) == []
    partition = read(client, 1)
    assert (len(partition.records), aborted(partition)) == (0, [])
    end_transaction(broker, 1, committed=True)
    assert end_of(read(client, 1)) == 4


def test_read_uncommitted_returns_all_records_and_the_last_stable_offset(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    produce_transactional(broker, 1, 0, b"b")
    partition = read(client, isolation_level=0)
    assert (end_of(partition), partition.last_stable_offset, partition.high_watermark) == (1, 0, 1)
    end_transaction(broker, 1, committed=False)
    assert aborted(read(client, isolation_level=0)) is None


def test_aborted_transactions_are_listed_for_the_returned_records(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    for producer_id in range(20):
        produce_transactional(broker, producer_id, 0, bytes(300))
        end_transaction(broker, producer_id, committed=producer_id % 2 == 0)
    assert aborted(read(client)) == [(each, each * 2) for each in range(1, 20, 2)]
    offset, named = 0, set[tuple[int, int]]()
    while offset < 40:
        partition = read(client, offset, partition_max_bytes=1_000)
        found = aborted(partition)
        assert found is not None
        assert end_of(partition) < offset + 8
        assert all(first < end_of(partition) + 4 for _, first in found), "little more than was read"
        named.update(found)
        offset = end_of(partition)
    assert named == {(each, each * 2) for each in range(1, 20, 2)}


def test_missing_partition_has_no_list_of_aborted_transactions(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    assert aborted(read(client, 99)) is None


def test_only_the_end_of_a_transaction_completes_a_delayed_fetch(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    produce_transactional(broker, 1, 0, b"a")
    received: list[Any] = []

    def wait() -> None:
        received.append(read(client, max_wait_ms=600_000))

    reader = threading.Thread(target=wait)
    reader.start()
    until_waiting(broker)
    produce_transactional(broker, 1, 1, b"b")
    produce_plain(broker, b"c")
    assert broker.call(count_waiting) == 1
    end_transaction(broker, 1, committed=False)
    reader.join(TIMEOUT_S)
    assert [(end_of(partition), aborted(partition)) for partition in received] == [(4, [(1, 0)])]


def test_non_transactional_append_completes_a_read_committed_fetch(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    received: list[Any] = []
    reader = threading.Thread(target=lambda: received.append(read(client, max_wait_ms=600_000)))
    reader.start()
    until_waiting(broker)
    produce_plain(broker, b"c")
    reader.join(TIMEOUT_S)
    assert [end_of(partition) for partition in received] == [1]


def until_waiting(broker: Broker) -> None:
    """Wait until a fetch is delayed."""
    broker.wait_until(lambda: broker.call(count_waiting), timeout_s=TIMEOUT_S)


async def count_waiting(server: Any) -> int:
    return len(server.services.replica_manager.fetches.waiting)


def test_incremental_fetch_returns_records_that_became_stable(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    produce_transactional(broker, 1, 0, b"a")
    request = fetch(isolation_level=READ_COMMITTED, session_epoch=0)
    first = client.call(request, 11)
    assert first.session_id
    again = fetch(
        partitions=(), isolation_level=READ_COMMITTED, session_id=first.session_id, session_epoch=1
    )
    assert client.call(again, 11).responses == []
    end_transaction(broker, 1, committed=False)
    again.session_epoch = 2
    (topic,) = client.call(again, 11).responses
    assert (end_of(topic.partitions[0]), aborted(topic.partitions[0])) == (2, [(1, 0)])


def test_records_and_aborted_transactions_are_consistent(
    broker: Broker, client: WireClient
) -> None:
    """redpanda#7819, redpanda#3036: a response with records of an aborted transaction lists that
    transaction.
    """
    broker.create_topic("t")
    stop = threading.Event()

    def write() -> None:
        for round_ in range(60):
            produce_transactional(broker, 1, round_ * 2, b"x" * 50)
            produce_transactional(broker, 1, round_ * 2 + 1, b"y" * 50)
            end_transaction(broker, 1, committed=False)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    offset = 0
    while not stop.is_set() or offset < 180:
        partition = read(client, offset)
        end = end_of(partition)
        if end < 0:
            continue
        found = aborted(partition)
        assert found is not None
        firsts = {first for _, first in found}
        data = set(range(offset, end))
        assert {each // 3 * 3 for each in data if each % 3 != 2} <= firsts
        offset = end
    writer.join()
