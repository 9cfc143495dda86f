"""Requests that wait for the disk do not delay other connections.

The disk blocks (`SlowFiles.hold`) until the requests of another connection have their responses. A
wait on the event loop itself is recorded and fails the test.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import BrokerServer
from odradek.environment.environment import Environment
from odradek.errors import ErrorCode
from odradek.ids import TopicName, TopicPartition
from odradek.log.unified_log import UnifiedLog
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.records.record import Record, build_batch, iter_batches, iter_records
from odradek.testing import Broker
from testkit.requests import batch, fetch, list_offsets, produce
from testkit.wire import WireClient
from tests.helpers.slow_files import DEADLINE_S, SlowFiles

SEGMENTS = 3
BATCHES = 10
"""Number of batches in each segment, of one record each."""
VALUE_BYTES = 3000
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
LAST_OFFSET = SEGMENTS * BATCHES - 1


def value(offset: int) -> bytes:
    return b"%d " % offset + bytes(VALUE_BYTES)


def keyed(content: bytes) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    return build_batch([Record(b"key", content, now_ms)], timestamp_ms=now_ms)


def log_of(server: BrokerServer, topic: str = "t") -> UnifiedLog:
    return server.services.replica_manager.partition(topic, 0).log


def fill(broker: Broker, topic: str, make_batch: Callable[[int], bytearray]) -> None:
    """Write SEGMENTS segments of BATCHES batches each."""

    async def roll(server: BrokerServer) -> None:
        log_of(server, topic).roll(server.services.clock.time_ms())

    broker.create_topic(topic)
    with WireClient(broker.bootstrap_servers) as client:
        for segment in range(SEGMENTS):
            if segment:
                broker.call(roll)
            for number in range(BATCHES):
                records = make_batch(segment * BATCHES + number)
                response = client.call(produce(topic, records), 9).responses[0]
                assert response.partition_responses[0].error_code == 0


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The topics t and u, with SEGMENTS segments of BATCHES batches, as a stopped broker left
    them.
    """
    with Broker(data_dir=tmp_path) as broker:
        for topic in ("t", "u"):
            fill(broker, topic, lambda offset: batch(value(offset)))
    return tmp_path


@pytest.fixture(params=[True, False], ids=["nowait", "fallback"])
def files(request: pytest.FixtureRequest) -> Iterator[SlowFiles]:
    """File systems with and without RWF_NOWAIT."""
    files = SlowFiles(nowait=request.param)
    yield files
    files.release()
    assert files.blocked == []


@pytest.fixture
def broker(data_dir: Path, files: SlowFiles) -> Iterator[Broker]:
    """A broker that has just started, with an empty page cache."""
    with Broker(data_dir=data_dir, environment=Environment(files=files)) as broker:
        files.evict()
        yield broker
        files.release()


def commit(client: WireClient, offset: int) -> int:
    """Commit an offset of t for a group without members. Return the error code."""
    request = OffsetCommitRequest(
        "group",
        topics=[
            OffsetCommitRequestTopic(
                "t", partitions=[OffsetCommitRequestPartition(0, committed_offset=offset)]
            )
        ],
    )
    find = FindCoordinatorRequest(coordinator_keys=["group"])
    while client.call(find, 4).coordinators[0].error_code:
        pass
    while (code := client.call(request, 8).topics[0].partitions[0].error_code) in LOADING:
        pass
    return code


def is_served(client: WireClient) -> bool:
    return bool(select.select([client.socket], [], [], 0)[0])


def check_others_are_served(broker: Broker) -> None:
    """Check that requests of another connection get responses. They need only data in memory."""
    with WireClient(broker.bootstrap_servers) as other:
        assert other.call(ApiVersionsRequest("test", "1"), 4).error_code == 0
        response = other.call(produce("u", batch(b"new")), 9).responses[0].partition_responses[0]
        assert response.error_code == 0


def others_served_while_blocked(
    broker: Broker, files: SlowFiles, *requests: tuple[Any, int]
) -> list[Any]:
    """Send requests that need the disk, and check that others get responses while it blocks."""
    with WireClient(broker.bootstrap_servers) as client:
        files.hold()
        for request, version in requests:
            client.send(request, version)
        assert files.reached.wait(DEADLINE_S), "nothing needed the disk"
        assert files.blocked == []
        check_others_are_served(broker)
        assert not is_served(client)
        files.release()
        return [client.receive() for _ in requests]


@pytest.mark.parametrize("again", [False, True])
def test_an_offset_lookup_in_a_topic_that_is_deleted_in_the_meantime(
    broker: Broker, files: SlowFiles, again: bool
) -> None:
    """The lookup returns no offset of a new topic with the same name either."""

    async def delete(server: BrokerServer) -> None:
        services = server.services
        topic_id = services.controller.image.topics_by_name[TopicName("t")].topic_id
        assert await services.controller.delete_topics([topic_id]) == [None]

    with WireClient(broker.bootstrap_servers) as client:
        files.hold()
        client.send(list_offsets(0), 7)
        assert files.reached.wait(DEADLINE_S)
        broker.call(delete)
        if again:
            broker.create_topic("t")
        files.release()
        (partition,) = client.receive().topics[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.offset == -1


@pytest.mark.parametrize("timestamp", [1, -3])
def test_an_offset_lookup_whose_segments_are_deleted_in_the_meantime(
    broker: Broker, files: SlowFiles, timestamp: int
) -> None:
    """The lookup continues with the segments that exist then."""
    start = 2 * BATCHES

    async def delete(server: BrokerServer) -> None:
        server.services.replica_manager.delete_records(TopicPartition(TopicName("t"), 0), start, 0)
        log = log_of(server)
        log.update_config(replace(log.config, retention_ms=-1))
        assert log.delete_old_segments(server.services.clock.time_ms()).deleted == 2

    with WireClient(broker.bootstrap_servers) as client:
        files.hold()
        client.send(list_offsets(timestamp), 7)
        assert files.reached.wait(DEADLINE_S)
        broker.call(delete)
        files.release()
        (partition,) = client.receive().topics[0].partitions
    assert partition.error_code == 0
    assert partition.offset >= start


def values_in(response: Any, partition: int = 0) -> list[bytes | None]:
    found = response.responses[partition].partitions[0]
    assert found.error_code == 0
    return [record.value for each in iter_batches(found.records) for record in iter_records(each)]


def test_a_fetch_of_an_old_offset(broker: Broker, files: SlowFiles) -> None:
    """After a start, indexes, batch headers and records are only on the disk."""
    request = fetch(offset=3, partition_max_bytes=2 * VALUE_BYTES + 500)
    (response,) = others_served_while_blocked(broker, files, (request, 11))
    assert values_in(response)[0] == value(3)


def test_a_fetch_of_cold_pages_below_loaded_indexes(broker: Broker, files: SlowFiles) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        assert values_in(client.call(fetch(offset=3), 11))[0] == value(3)
    files.evict()
    (response,) = others_served_while_blocked(broker, files, (fetch(offset=7), 11))
    assert values_in(response) == [value(offset) for offset in range(7, BATCHES)]


def test_a_fetch_of_the_active_segment(broker: Broker, files: SlowFiles) -> None:
    first = LAST_OFFSET - BATCHES + 1
    (response,) = others_served_while_blocked(broker, files, (fetch(offset=first), 11))
    assert values_in(response) == [value(offset) for offset in range(first, LAST_OFFSET + 1)]


def test_a_fetch_of_several_partitions(broker: Broker, files: SlowFiles) -> None:
    request = fetch("t", 3)
    request.topics += fetch("u", 4).topics
    (response,) = others_served_while_blocked(broker, files, (request, 11))
    assert values_in(response, 0)[0] == value(3)
    assert values_in(response, 1)[0] == value(4)


def test_requests_behind_a_cold_fetch_on_its_connection_keep_their_order(
    broker: Broker, files: SlowFiles
) -> None:
    requests = [(fetch(offset=3), 11), (ApiVersionsRequest("test", "1"), 4), (fetch(offset=4), 11)]
    first, second, third = others_served_while_blocked(broker, files, *requests)
    assert values_in(first)[0] == value(3)
    assert second.error_code == 0
    assert values_in(third)[0] == value(4)


def test_a_fetch_that_waits_reads_again_without_blocking(broker: Broker, files: SlowFiles) -> None:
    """The page cache is emptied again before the second read, when enough bytes have arrived."""
    with WireClient(broker.bootstrap_servers) as client:
        start = LAST_OFFSET - 2
        client.send(fetch(offset=start, min_bytes=5 * VALUE_BYTES, max_wait_ms=600_000), 11)

        async def waits(server: BrokerServer) -> bool:
            return bool(server.services.replica_manager.fetches.waiting)

        while not broker.call(waits):
            pass
        files.evict()
        files.hold()
        with WireClient(broker.bootstrap_servers) as producer:
            for offset in range(LAST_OFFSET + 1, LAST_OFFSET + 4):
                producer.call(produce("t", batch(value(offset))), 9)
        assert files.reached.wait(DEADLINE_S)
        check_others_are_served(broker)
        assert not is_served(client)
        files.release()
        found = values_in(client.receive())
        assert len(found) >= 5
        assert found == [value(offset) for offset in range(start, start + len(found))]


@pytest.mark.parametrize("name", ["index", "timeindex"])
def test_a_fetch_that_needs_a_missing_index(data_dir: Path, files: SlowFiles, name: str) -> None:
    index = data_dir / "t-0" / f"{BATCHES:020d}.{name}"
    assert index.stat().st_size
    index.unlink()
    with Broker(data_dir=data_dir, environment=Environment(files=files)) as broker:
        files.evict()
        (response,) = others_served_while_blocked(broker, files, (fetch(offset=BATCHES + 8), 11))
        assert values_in(response) == [value(BATCHES + 8), value(BATCHES + 9)]


@pytest.mark.parametrize(("timestamp", "expected"), [(1, 0), (-3, None)])
def test_a_lookup_of_a_timestamp(
    broker: Broker, files: SlowFiles, timestamp: int, expected: int | None
) -> None:
    (response,) = others_served_while_blocked(broker, files, (list_offsets(timestamp), 7))
    found = response.topics[0].partitions[0]
    assert found.error_code == 0
    assert expected is None or found.offset == expected


def test_records_are_deleted_without_the_disk(broker: Broker, files: SlowFiles) -> None:
    files.hold()
    with WireClient(broker.bootstrap_servers) as client:
        partitions = [DeleteRecordsPartition(0, BATCHES + 2)]
        response = client.call(DeleteRecordsRequest([DeleteRecordsTopic("t", partitions)]), 2)
        assert response.topics[0].partitions[0].low_watermark == BATCHES + 2
        refused = client.call(fetch(offset=3), 11).responses[0].partitions[0]
        assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_deleted_under_a_cold_fetch_are_not_sent(broker: Broker, files: SlowFiles) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        files.hold()
        client.send(fetch(offset=3), 11)
        assert files.reached.wait(DEADLINE_S)
        with WireClient(broker.bootstrap_servers) as other:
            partitions = [DeleteRecordsPartition(0, 5)]
            other.call(DeleteRecordsRequest([DeleteRecordsTopic("t", partitions)]), 2)
        files.release()
        refused = client.receive().responses[0].partitions[0]
        assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_topic_deleted_under_a_cold_fetch(broker: Broker, files: SlowFiles) -> None:
    async def delete(server: BrokerServer) -> None:
        controller = server.services.controller
        await controller.delete_topics([controller.image.topics_by_name["t"].topic_id])

    with WireClient(broker.bootstrap_servers) as client:
        files.hold()
        client.send(fetch(offset=3), 11)
        assert files.reached.wait(DEADLINE_S)
        broker.call(delete)
        files.release()
        refused = client.receive().responses[0].partitions[0]
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_append_that_begins_a_segment_waits_for_no_fsync_on_the_loop(
    data_dir: Path, files: SlowFiles
) -> None:
    """With flush.messages=1 all records are on the disk when the segment is rolled."""
    config = {"log.segment.bytes": 1 << 20, "log.flush.interval.messages": 1}
    environment = Environment(files=files)
    with Broker(config, data_dir=data_dir, environment=environment) as broker:

        async def active_base(server: BrokerServer) -> int:
            return log_of(server).segments.active.base_offset

        with WireClient(broker.bootstrap_servers) as client:
            client.call(produce("t", batch(bytes(600_000))), 9)
            before = broker.call(active_base)
            files.hold()
            client.send(produce("t", batch(bytes(600_000))), 9)
            assert files.reached.wait(DEADLINE_S), "nothing was synced"
            with WireClient(broker.bootstrap_servers) as other:
                assert other.call(ApiVersionsRequest("test", "1"), 4).error_code == 0
            assert broker.call(active_base) > before
            assert not is_served(client)
            files.release()
            response = client.receive().responses[0].partition_responses[0]
            assert response.error_code == 0


def test_create_partitions_during_an_fsync_acknowledges_nothing(
    tmp_path: Path, files: SlowFiles
) -> None:
    """It applies the partition's unchanged leader epoch again. No consumer sees the record."""
    config = {"log.flush.interval.messages": 1}
    environment = Environment(files=files)
    with Broker(config, data_dir=tmp_path, environment=environment) as broker:
        broker.create_topic("t")
        with (
            WireClient(broker.bootstrap_servers) as client,
            WireClient(broker.bootstrap_servers) as other,
        ):
            files.hold()
            client.send(produce("t", batch(b"acknowledged"), acks=-1), 9)
            assert files.reached.wait(DEADLINE_S), "nothing was synced"
            topic = CreatePartitionsTopic("t", 3, None)
            (created,) = other.call(CreatePartitionsRequest([topic]), 3).results
            hidden = other.call(fetch(), 11).responses[0].partitions[0]
            # The broker has sent two later responses by now.
            acknowledged_early = is_served(client)
            files.release()
            assert (hidden.error_code, hidden.high_watermark) == (0, 0)
            assert not acknowledged_early
            assert created.error_code == 0
            response = client.receive().responses[0].partition_responses[0]
            assert (response.error_code, response.base_offset) == (0, 0)
            assert values_in(other.call(fetch(), 11)) == [b"acknowledged"]


def test_retention_reads_timestamps_on_a_thread(data_dir: Path, files: SlowFiles) -> None:
    config = {"log.retention.ms": 1}
    environment = Environment(files=files)
    with Broker(config, data_dir=data_dir, environment=environment) as broker:
        files.evict()
        files.hold()
        with ThreadPoolExecutor(1) as threads:
            passed = threads.submit(
                broker.call, lambda server: server.periodic.delete_old_segments()
            )
            assert files.reached.wait(DEADLINE_S)
            with WireClient(broker.bootstrap_servers) as other:
                assert other.call(ApiVersionsRequest("test", "1"), 4).error_code == 0
            assert not passed.done()
            files.release()
            passed.result(DEADLINE_S)

        async def bases(server: BrokerServer) -> list[int]:
            return log_of(server).segments.bases

        assert broker.call(bases) == [LAST_OFFSET + 1]


def test_the_cleaner_reads_timestamps_on_a_thread(tmp_path: Path, files: SlowFiles) -> None:
    with Broker(data_dir=tmp_path) as broker:
        fill(broker, "t", lambda offset: keyed(value(offset)))
    config = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.compaction.lag.ms": 1_000_000,
        "log.cleaner.max.compaction.lag.ms": 2_000_000,
    }
    environment = Environment(files=files)
    with Broker(config, data_dir=tmp_path, environment=environment) as broker:
        files.evict()
        files.hold()
        with ThreadPoolExecutor(1) as threads:
            passed = threads.submit(broker.call, lambda server: server.log_cleaner.clean())
            assert files.reached.wait(DEADLINE_S)
            with WireClient(broker.bootstrap_servers) as other:
                assert other.call(ApiVersionsRequest("test", "1"), 4).error_code == 0
            assert not passed.done()
            files.release()
            assert passed.result(DEADLINE_S) == 0


def test_a_group_is_loaded_without_blocking(data_dir: Path, files: SlowFiles) -> None:
    with Broker(data_dir=data_dir) as broker, WireClient(broker.bootstrap_servers) as client:
        assert commit(client, 7) == 0
    files.evict()
    with (
        Broker(data_dir=data_dir, environment=Environment(files=files)) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        assert commit(client, 8) == 0


def test_compaction_reads_the_old_segments_on_a_thread(tmp_path: Path, files: SlowFiles) -> None:
    with Broker(data_dir=tmp_path) as broker:
        fill(broker, "t", lambda offset: keyed(value(offset)))
    config = {"log.cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": 0}
    environment = Environment(files=files)
    with Broker(config, data_dir=tmp_path, environment=environment) as broker:

        async def clean(server: BrokerServer) -> int:
            files.evict()
            return await server.log_cleaner.clean()

        assert broker.call(clean) == 1
        with WireClient(broker.bootstrap_servers) as client:
            assert values_in(client.call(fetch(), 11))[0] == value(2 * BATCHES - 1)
