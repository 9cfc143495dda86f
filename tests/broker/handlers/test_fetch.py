"""Fetch over the wire: versions, limits, waiting, sessions, epochs, and closed connections."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from odradek.protocol.messages.fetch_response import PartitionData
from odradek.records.batch import parse_header
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import TIMEOUT_S, WireClient
from tests.broker.handlers.test_produce import topic_id
from tests.helpers.led_partitions import led
from tests.replication.builders import has_delayed_operations

WAIT = {"max_wait_ms": 600_000, "min_bytes": 1}


def partition_data(response: Any) -> PartitionData:
    return response.responses[0].partitions[0]  # type: ignore[no-any-return]


def partitions_in(response: Any) -> list[int]:
    """Return the partitions in a response, in its order."""
    return [each.partition_index for topic in response.responses for each in topic.partitions]


def offsets(records: Any) -> list[int]:
    """Return the base offsets of the whole batches in a response."""
    found = []
    while len(records) >= 61 and len(records) >= parse_header(records).size_bytes:
        found.append(parse_header(records).base_offset)
        records = records[parse_header(records).size_bytes :]
    return found


def fill(client: WireClient, count: int, *, partition: int = 0, size: int = 100) -> None:
    for _ in range(count):
        client.call(produce(records=batch(b"x" * size), partition=partition), 9)


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_every_version_returns_records_and_watermarks(
    broker: Broker, client: WireClient, version: int, isolation_level: int
) -> None:
    broker.create_topic("t")
    fill(client, 3)
    request = fetch(offset=1, topic_id=topic_id(broker), isolation_level=isolation_level)
    response = client.call(request, version)
    assert (response.error_code, response.session_id) == (0, 0)
    topic = response.responses[0]
    assert topic.topic == ("" if version >= 13 else "t")
    assert topic.topic_id == (topic_id(broker) if version >= 13 else bytes(16))
    got = topic.partitions[0]
    assert (got.error_code, got.high_watermark, got.last_stable_offset) == (0, 3, 3)
    assert got.aborted_transactions == ([] if isolation_level else None)
    assert offsets(got.records) == [1, 2]
    assert parse_header(got.records).partition_leader_epoch == 0


def test_offset_inside_a_batch_returns_the_whole_batch(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    client.call(produce(records=batch(b"a", b"b", b"c")), 9)
    assert offsets(partition_data(client.call(fetch(offset=2), 11)).records) == [0]


@pytest.mark.parametrize("offset", [-1, 4])
def test_offset_outside_the_log_is_an_error(
    broker: Broker, client: WireClient, offset: int
) -> None:
    broker.create_topic("t")
    fill(client, 3)
    got = partition_data(client.call(fetch(offset=offset, **WAIT), 11))
    assert (got.error_code, got.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert (got.last_stable_offset, got.log_start_offset, bytes(got.records)) == (-1, -1, b"")


def test_unknown_topic_partition_and_id_are_errors(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition_data(client.call(fetch("missing", **WAIT), 11)).error_code == unknown
    assert partition_data(client.call(fetch(partitions=(7,), **WAIT), 11)).error_code == unknown
    got = partition_data(client.call(fetch(topic_id=Uuid(b"x" * 16), **WAIT), 13))
    assert got.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NONE)],
)
def test_leader_epoch_is_checked(
    broker: Broker, client: WireClient, epoch: int, code: ErrorCode
) -> None:
    broker.create_topic("t")
    assert partition_data(client.call(fetch(leader_epoch=epoch), 11)).error_code == code


def test_fenced_reader_gets_the_current_leader(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")

    async def bump(server: Any) -> None:
        server.services.replica_manager.partition("t", 0).leader_epoch = 3

    broker.call(bump)
    response = client.call(fetch(topic_id=topic_id(broker), leader_epoch=2), 16)
    got = partition_data(response)
    assert got.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert got.current_leader is not None
    assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (1, 3)
    (hint,) = response.node_endpoints
    assert (hint.node_id, f"{hint.host}:{hint.port}") == (1, broker.bootstrap_servers)


def test_diverging_reader_gets_an_immediate_response(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    fill(client, 2)

    async def bump(server: Any) -> None:
        server.services.replica_manager.partition("t", 0).become_leader(led(3))

    broker.call(bump)
    fill(client, 1)
    got = partition_data(client.call(fetch(offset=3, last_fetched_epoch=1, **WAIT), 12))
    assert got.diverging_epoch is not None
    assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (0, 2)
    assert not got.records
    got = partition_data(client.call(fetch(offset=2, last_fetched_epoch=0), 12))
    assert got.diverging_epoch is None
    assert offsets(got.records) == [2]


class TestLimits:
    def test_first_batch_is_whole_despite_the_limits(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        fill(client, 2, size=5000)
        request = fetch(partition_max_bytes=1, max_bytes=1)
        assert offsets(partition_data(client.call(request, 11)).records) == [0]

    def test_max_bytes_holds_over_all_partitions(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t", 3)
        for partition in range(3):
            fill(client, 4, partition=partition, size=1000)
        request = fetch(partitions=(0, 1, 2), max_bytes=5000)
        parts = client.call(request, 11).responses[0].partitions
        assert sum(len(part.records) for part in parts) <= 5000
        assert [len(offsets(part.records)) for part in parts] == [4, 0, 0]

    def test_partition_limit_holds(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t")
        fill(client, 10, size=1000)
        got = partition_data(client.call(fetch(partition_max_bytes=3500), 11))
        assert len(got.records) == 3500
        assert offsets(got.records) == [0, 1, 2]

    @pytest.mark.parametrize("config", [{"fetch.max.bytes": 1024}])
    def test_broker_has_a_limit_of_its_own(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t")
        fill(client, 10, size=1000)
        assert offsets(partition_data(client.call(fetch(), 11)).records) == [0]


class TestWaiting:
    def test_long_poll_ends_with_an_append(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t", 2)
        client.send(fetch(partitions=(0, 1), **WAIT), 11)
        with WireClient(broker.bootstrap_servers) as producer:
            fill(producer, 1, partition=1)
        parts = client.receive().responses[0].partitions
        assert [offsets(part.records) for part in parts] == [[], [0]]

    def test_fetch_waits_for_min_bytes(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t")
        fill(client, 1, size=1000)
        client.send(fetch(max_wait_ms=600_000, min_bytes=5000), 11)
        with WireClient(broker.bootstrap_servers) as producer:
            fill(producer, 5, size=1000)
        assert len(partition_data(client.receive()).records) >= 5000

    def test_fetch_returns_available_records_after_max_wait(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        fill(client, 1)
        got = partition_data(client.call(fetch(max_wait_ms=5, min_bytes=5000), 11))
        assert offsets(got.records) == [0]

    def test_fetch_that_cannot_wait_gets_an_immediate_response(
        self, broker: Broker, client: WireClient
    ) -> None:
        assert client.call(fetch(partitions=(), **WAIT), 11).responses == []

    def test_requests_behind_a_long_poll_are_executed(
        self, broker: Broker, client: WireClient
    ) -> None:
        """The fetch waits for records of the next request on the same connection."""
        broker.create_topic("t")
        client.send(fetch(**WAIT), 11)
        client.send(produce(), 9)
        assert offsets(partition_data(client.receive()).records) == [0]
        assert client.receive().responses[0].partition_responses[0].base_offset == 0

    def test_closed_connection_cancels_its_delayed_fetch(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        gone = WireClient(broker.bootstrap_servers)
        gone.send(fetch(**WAIT), 11)
        waiting = self.until(broker, lambda manager: len(manager.fetches.waiting) == 1)
        assert waiting
        gone.socket.close()
        assert self.until(broker, lambda manager: not manager.fetches.waiting)
        assert self.until(broker, lambda m: not has_delayed_operations(m.partition("t", 0)))

    def until(self, broker: Broker, condition: Any) -> bool:
        """Wait until `condition(replica_manager)` is true on the broker's loop."""

        async def look(server: Any) -> bool:
            return bool(condition(server.services.replica_manager))

        return broker.wait_until(lambda: broker.call(look), timeout_s=TIMEOUT_S)

    def test_deleting_a_topic_completes_a_long_poll_with_an_error(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        client.send(fetch(**WAIT), 11)
        assert self.until(broker, lambda manager: len(manager.fetches.waiting) == 1)
        broker.reset()
        assert partition_data(client.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_deleting_records_completes_a_long_poll_with_an_error(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        fill(client, 3)
        client.send(fetch(offset=1, max_wait_ms=600_000, min_bytes=10_000), 11)
        assert self.until(broker, lambda manager: len(manager.fetches.waiting) == 1)

        async def delete(server: Any) -> None:
            from odradek.ids import TopicPartition

            server.services.replica_manager.delete_records(TopicPartition("t", 0), 2, 0)

        broker.call(delete)
        assert partition_data(client.receive()).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_stop_completes_delayed_fetches(self, client: WireClient, broker: Broker) -> None:
        broker.create_topic("t")
        client.send(fetch(**WAIT), 11)
        assert self.until(broker, lambda manager: len(manager.fetches.waiting) == 1)
        stopper = threading.Thread(target=broker.close)
        stopper.start()
        assert partition_data(client.receive()).error_code == 0
        stopper.join(TIMEOUT_S)
        assert not stopper.is_alive()


class TestSessions:
    def open(self, client: WireClient, *partitions: int, **options: Any) -> int:
        request = fetch(partitions=partitions, session_id=0, session_epoch=0, **options)
        response = client.call(request, 11)
        assert response.error_code == 0
        return response.session_id  # type: ignore[no-any-return]

    def poll(self, client: WireClient, session_id: int, epoch: int, **options: Any) -> Any:
        options.setdefault("partitions", ())
        return client.call(fetch(session_id=session_id, session_epoch=epoch, **options), 11)

    def test_incremental_response_has_only_changed_partitions(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t", 3)
        session_id = self.open(client, 0, 1, 2)
        assert session_id > 0
        assert partitions_in(self.poll(client, session_id, 1)) == []
        fill(client, 1, partition=1)
        response = self.poll(client, session_id, 2)
        assert (response.session_id, partitions_in(response)) == (session_id, [1])
        assert offsets(partition_data(response).records) == [0]
        # Records are included until the consumer fetches the offset after them.
        assert partitions_in(self.poll(client, session_id, 3)) == [1]
        response = self.poll(client, session_id, 4, partitions=(1,), offset=1)
        assert partitions_in(response) == []

    def test_partitions_rotate_under_max_bytes(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t", 3)
        for partition in range(3):
            fill(client, 1, partition=partition, size=1000)
        session_id = self.open(client, 0, 1, 2, max_bytes=1)
        got = []
        for epoch in range(1, 7):
            response = self.poll(client, session_id, epoch, max_bytes=1)
            got += [
                part.partition_index for part in response.responses[0].partitions if part.records
            ]
        assert got == [0, 1, 2, 0, 1, 2]

    def test_partition_is_included_until_its_error_is_resolved(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        session_id = self.open(client, 0, 1)
        for epoch in (1, 2):
            response = self.poll(client, session_id, epoch, **WAIT)
            assert partitions_in(response) == [1]
            assert partition_data(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_forgotten_partition_is_not_read(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t", 2)
        session_id = self.open(client, 0, 1)
        fill(client, 1, partition=0)
        forgotten = [ForgottenTopic("t", partitions=[0])]
        assert (
            partitions_in(self.poll(client, session_id, 1, forgotten_topics_data=forgotten)) == []
        )

    def test_wrong_epoch_and_unknown_session(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t")
        session_id = self.open(client, 0)
        response = self.poll(client, session_id, 7)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        response = self.poll(client, session_id + 1, 1)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (response.session_id, response.responses) == (0, [])

    def test_session_by_names_cannot_be_used_with_ids(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        session_id = self.open(client, 0)
        request = fetch(partitions=(), session_id=session_id, session_epoch=1)
        response = client.call(request, 13)
        assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_recreating_a_topic_makes_its_id_in_a_session_unknown(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        request = fetch(topic_id=topic_id(broker), session_id=0, session_epoch=0)
        session_id = client.call(request, 13).session_id
        broker.reset()
        broker.create_topic("t")
        request = fetch(partitions=(), session_id=session_id, session_epoch=1, **WAIT)
        assert partition_data(client.call(request, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_closed_session_does_not_exist(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t")
        session_id = self.open(client, 0)
        assert self.poll(client, session_id, -1).session_id == 0
        response = self.poll(client, session_id, 1)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    @pytest.mark.parametrize("config", [{"max.incremental.fetch.session.cache.slots": 1}])
    def test_without_a_free_slot_there_is_no_session(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")
        assert self.open(client, 0)
        assert self.open(client, 0) == 0


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (11, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (11, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (15, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_fetch_in_the_name_of_a_replica_changes_nothing(
    broker: Broker, client: WireClient, version: int, epoch: int, code: ErrorCode
) -> None:
    broker.create_topic("t")
    fill(client, 2)
    part = FetchPartition(0, epoch, 1, partition_max_bytes=1000)
    request = FetchRequest(
        replica_id=2 if version < 15 else -1,
        replica_state=ReplicaState(2, 1) if version >= 15 else None,
        topics=[FetchTopic("t", topic_id(broker), [part])],
    )
    assert partition_data(client.call(request, version)).error_code == code
    assert partition_data(client.call(fetch(), 11)).high_watermark == 2


@pytest.mark.parametrize("version", [5, 6])
def test_storage_error_is_returned_to_versions_that_have_it(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")

    async def fail(server: Any) -> None:
        manager = server.services.replica_manager
        manager.partition("t", 0).stop(ErrorCode.KAFKA_STORAGE_ERROR)

    broker.call(fail)
    expected = ErrorCode.KAFKA_STORAGE_ERROR if version > 5 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition_data(client.call(fetch(), version)).error_code == expected


@pytest.mark.parametrize(("version", "served"), [(9, False), (10, True)])
def test_zstd_topic_is_refused_to_versions_without_zstd(
    broker: Broker, client: WireClient, version: int, served: bool
) -> None:
    broker.create_topic("t", config={"compression.type": "zstd"})
    fill(client, 1)
    expected = ErrorCode.NONE if served else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert partition_data(client.call(fetch(), version)).error_code == expected
