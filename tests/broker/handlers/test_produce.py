"""Produce over the wire: every version, acks, refused batches, flushes, recompression."""

from __future__ import annotations

import mmap
import threading
import time
import weakref
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import Uuid
from odradek.log.log_append_info import LogAppendInfo
from odradek.log.unified_log import UnifiedLog
from odradek.net import receive
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import PartitionProduceResponse
from odradek.records.batch import parse_header
from odradek.records.record import Record, build_batch, iter_records
from odradek.replication.partition import Partition
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import TIMEOUT_S, ConnectionClosed, WireClient


def partition_response(response: Any) -> PartitionProduceResponse:
    return response.responses[0].partition_responses[0]  # type: ignore[no-any-return]


def topic_id(broker: Broker, topic: str = "t") -> Uuid:
    async def find(server: Any) -> Uuid:
        return server.services.image().topics_by_name[topic].topic_id  # type: ignore[no-any-return]

    return broker.call(find)


def stored(client: WireClient, topic: str = "t") -> list[bytes]:
    """Return the values of the first partition's records."""
    records = client.call(fetch(topic), 11).responses[0].partitions[0].records
    values = []
    while records:
        header = parse_header(records)
        values += [bytes(r.value or b"") for r in iter_records(records[: header.size_bytes])]
        records = records[header.size_bytes :]
    return values


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends_and_returns_the_offset(
    broker: Broker, client: WireClient, version: int, acks: int
) -> None:
    broker.create_topic("t")
    for offset in (0, 2):
        request = produce(records=batch(b"a", b"b"), acks=acks, topic_id=topic_id(broker))
        response = client.call(request, version)
        assert response.throttle_time_ms == 0
        got = partition_response(response)
        assert (got.error_code, got.base_offset, got.log_append_time_ms) == (0, offset, -1)
    topic = response.responses[0]
    assert (topic.name, topic.topic_id) == (
        ("", topic_id(broker)) if version >= 13 else ("t", bytes(16))
    )
    assert stored(client) == [b"a", b"b"] * 2


def test_r1_acks_zero_has_no_response(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    client.send(produce(acks=0), 9)
    assert partition_response(client.call(produce(), 9)).base_offset == 1


def test_r1_error_with_acks_zero_closes_the_connection(broker: Broker, client: WireClient) -> None:
    client.send(produce("missing", acks=0), 9)
    with pytest.raises(ConnectionClosed):
        client.receive()


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_r1_unknown_acks_are_refused(broker: Broker, client: WireClient, acks: int) -> None:
    broker.create_topic("t")
    got = partition_response(client.call(produce(acks=acks), 9))
    assert (got.error_code, got.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert stored(client) == []


def test_unknown_topic_partition_and_topic_id(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition_response(client.call(produce("missing"), 9)).error_code == unknown
    assert partition_response(client.call(produce(partition=1), 9)).error_code == unknown
    assert partition_response(client.call(produce(partition=-1), 9)).error_code == unknown
    got = partition_response(client.call(produce(topic_id=Uuid(b"x" * 16)), 13))
    assert got.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_topic_without_partitions_is_returned_as_it_was_requested(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    request = produce()
    empty = [TopicProduceData("a", partition_data=[]), TopicProduceData("b", partition_data=[])]
    request.topic_data = [empty[0], *request.topic_data, empty[1]]
    topics = client.call(request, 9).responses
    assert [(each.name, len(each.partition_responses)) for each in topics] == [
        ("a", 0),
        ("t", 1),
        ("b", 0),
    ]
    assert topics[1].partition_responses[0].error_code == 0
    request.topic_data = empty[:1]
    topics = client.call(request, 9).responses
    assert [(each.name, len(each.partition_responses)) for each in topics] == [("a", 0)]


def test_internal_topic_is_for_the_broker_and_admin_tools(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("__consumer_offsets", 1)
    request = produce("__consumer_offsets")
    assert (
        partition_response(client.call(request, 9)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    got = partition_response(client.call(request, 9, client_id="__admin_client"))
    assert got.error_code == ErrorCode.NONE


def test_one_invalid_partition_does_not_affect_others(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 3)
    corrupt = batch()
    corrupt[-1] ^= 1
    data = [PartitionProduceData(0, batch()), PartitionProduceData(1, corrupt)]
    data.append(PartitionProduceData(2, batch()))
    request = ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=data)])
    got = client.call(request, 9).responses[0].partition_responses
    assert [each.error_code for each in got] == [0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert got[1].error_message
    assert (got[1].base_offset, got[1].log_start_offset) == (-1, -1)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(batch() + batch()), ErrorCode.INVALID_RECORD),
        (bytes(batch()[:40]), ErrorCode.INVALID_RECORD),
        (bytes(batch(b"x" * 2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (bytes(batch(timestamp_ms=2**50)), ErrorCode.INVALID_TIMESTAMP),
        (bytes(batch(base_offset=5)), ErrorCode.INVALID_RECORD),
        (bytes(batch(control=True)), ErrorCode.INVALID_RECORD),
    ],
    ids=["none", "two", "torn", "large", "future", "offset", "control"],
)
def test_bad_records_get_kafkas_error(
    broker: Broker, client: WireClient, records: bytes, code: ErrorCode
) -> None:
    broker.create_topic("t")
    assert partition_response(client.call(produce(records=records), 9)).error_code == code
    assert stored(client) == []


def test_null_records_are_invalid(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    data = TopicProduceData("t", partition_data=[PartitionProduceData(0, None)])
    got = partition_response(client.call(ProduceRequest(None, 1, 1000, [data]), 9))
    assert got.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(("version", "accepted"), [(6, False), (7, True)])
def test_zstd_needs_version_seven(
    broker: Broker, client: WireClient, version: int, accepted: bool
) -> None:
    broker.create_topic("t")
    got = partition_response(client.call(produce(records=batch(compression="zstd")), version))
    expected = ErrorCode.NONE if accepted else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert got.error_code == expected


def test_duplicate_batch_of_a_producer_gets_its_first_offset(
    broker: Broker, client: WireClient
) -> None:
    """A duplicate is no error, and the response has the offset of the first append.

    redpanda#3039: after OUT_OF_ORDER_SEQUENCE_NUMBER a producer sends the batch again with another
    epoch, and it is stored twice. redpanda#3003: the response had a wrong offset.
    """
    broker.create_topic("t")

    def send(sequence: int) -> tuple[int, int]:
        records = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=sequence)
        got = partition_response(client.call(produce(records=records), 9))
        return got.error_code, got.base_offset

    assert [send(0), send(1), send(0), send(2)] == [(0, 0), (0, 1), (0, 0), (0, 2)]
    assert send(9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert stored(client) == [b"a"] * 3


def test_batches_after_a_failed_one_are_refused_until_it_is_resent(
    broker: Broker, client: WireClient
) -> None:
    """Five requests are in flight, and the second is damaged (KAFKA-5494).

    The batches with later sequence numbers are refused. All of them are accepted, in order, when
    the producer sends them again.
    """
    broker.create_topic("t")

    def sent(sequence: int) -> bytearray:
        return batch(b"%d" % sequence, producer_id=9, producer_epoch=0, base_sequence=sequence)

    damaged = sent(1)
    damaged[-1] ^= 1
    for records in (sent(0), damaged, sent(2), sent(3), sent(4)):
        client.send(produce(records=records, acks=-1), 9)
    codes = [partition_response(client.receive()).error_code for _ in range(5)]
    lost = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, lost, lost, lost]
    for sequence in (1, 2, 3, 4):
        client.send(produce(records=sent(sequence), acks=-1), 9)
    assert [partition_response(client.receive()).base_offset for _ in range(4)] == [1, 2, 3, 4]
    assert stored(client) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    "config", [{}, {"compression.type": "gzip"}, {"cleanup.policy": "compact"}]
)
def test_an_unexpected_exception_closes_the_connection(
    broker: Broker,
    client: WireClient,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, str],
) -> None:
    """KAFKA-14034: after UNKNOWN_SERVER_ERROR a Java producer sends the batch again with another
    sequence number. After a closed connection it sends the same batch again.
    """
    broker.create_topic("t", config=config)
    append_as_leader = UnifiedLog.append_as_leader
    calls: list[UnifiedLog] = []

    def append(log: UnifiedLog, *args: Any, **options: Any) -> LogAppendInfo:
        calls.append(log)
        if len(calls) == 1:
            raise ArithmeticError("oops")
        return append_as_leader(log, *args, **options)

    monkeypatch.setattr(UnifiedLog, "append_as_leader", append)
    now_ms = time.time_ns() // 1_000_000
    records = build_batch(
        [Record(b"k", b"a")], timestamp_ms=now_ms, producer_id=9, producer_epoch=0, base_sequence=0
    )
    request = produce(records=records, acks=-1)
    client.send(request, 9)
    with pytest.raises(ConnectionClosed):
        client.receive()
    with WireClient(broker.bootstrap_servers) as again:
        assert partition_response(again.call(request, 9)).base_offset == 0
        assert stored(again) == [b"a"]
    assert len(calls) == 2


def test_log_append_time_is_returned(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    got = partition_response(client.call(produce(records=batch(timestamp_ms=1)), 9))
    assert got.log_append_time_ms > 1_600_000_000_000


@pytest.mark.parametrize(
    ("configured", "bits"),
    [("zstd", 4), ("gzip", 1), ("lz4", 3), ("snappy", 2), ("uncompressed", 0)],
)
@pytest.mark.parametrize("sent", ["none", "gzip"])
def test_topic_with_a_compression_of_its_own_recompresses(
    broker: Broker, client: WireClient, configured: str, bits: int, sent: str
) -> None:
    broker.create_topic("t", config={"compression.type": configured})
    records = batch(b"a" * 1000, b"b", compression=sent)
    client.send(produce(records=records), 9)
    client.send(produce(records=batch(b"c", compression=sent)), 9)
    assert [partition_response(client.receive()).base_offset for _ in range(2)] == [0, 2]
    region = client.call(fetch(), 11).responses[0].partitions[0].records
    assert parse_header(region).compression == bits
    assert stored(client) == [b"a" * 1000, b"b", b"c"]


def test_body_that_cannot_be_decompressed_is_corrupt_if_it_is_read(
    broker: Broker, client: WireClient
) -> None:
    from odradek.records.batch import write_crc

    broker.create_topic("t", config={"compression.type": "zstd"})
    records = batch(b"a" * 1000, compression="gzip")
    records[70:80] = b"\0" * 10
    write_crc(records)
    got = partition_response(client.call(produce(records=records), 9))
    assert got.error_code == ErrorCode.CORRUPT_MESSAGE


def test_frame_stays_unchanged_while_its_batch_is_on_a_thread(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of a batch that a thread processes do not change while other requests arrive."""
    from odradek.records import recompress as module

    held, gate, original = threading.Event(), threading.Event(), module._with_payload

    def compressed(*arguments: Any) -> Any:
        held.set()
        assert gate.wait(TIMEOUT_S)
        return original(*arguments)

    monkeypatch.setattr(module, "_with_payload", compressed)
    monkeypatch.setattr(module, "SMALL_BODY_BYTES", 0)
    broker.create_topic("t", config={"compression.type": "gzip"})
    broker.create_topic("other")
    client.send(produce(records=batch(b"first" * 100)), 9)
    assert held.wait(TIMEOUT_S)
    for _ in range(5):
        client.send(produce(records=batch(b"later" * 100)), 9)
        with WireClient(broker.bootstrap_servers) as busy:
            for _ in range(50):
                busy.call(produce("other", records=batch(b"y" * 500)), 9)
    gate.set()
    assert [partition_response(client.receive()).base_offset for _ in range(6)] == list(range(6))
    assert stored(client) == [b"first" * 100] + [b"later" * 100] * 5


class TestFlush:
    """With flush.messages=1 no record is acknowledged or readable before fsync has returned."""

    @pytest.fixture
    def config(self) -> dict[str, Any]:
        return {"log.flush.interval.messages": 1}

    @pytest.mark.parametrize("acks", [1, -1])
    def test_response_waits_for_fsync_and_one_fsync_covers_many(
        self, broker: Broker, client: WireClient, acks: int
    ) -> None:
        broker.create_topic("t")
        gate, started, counted = threading.Event(), threading.Event(), []
        log = self.hold_flushes(broker, gate, started, counted)
        client.send(produce(acks=acks), 9)
        assert started.wait(TIMEOUT_S)
        for _ in range(20):
            client.send(produce(acks=acks), 9)
        with WireClient(broker.bootstrap_servers) as reader:
            response = reader.call(fetch(), 11)
            assert response.responses[0].partitions[0].high_watermark == 0
            assert not response.responses[0].partitions[0].records
        broker.wait_until(lambda: log.log_end_offset == 21, timeout_s=TIMEOUT_S)
        gate.set()
        offsets = [partition_response(client.receive()).base_offset for _ in range(21)]
        assert offsets == list(range(21))
        assert 2 <= len(counted) <= 3
        assert log.recovery_point == 21

    @pytest.mark.parametrize("partitions", [1, 2])
    def test_frame_of_a_request_that_waits_for_fsync_is_freed(
        self,
        broker: Broker,
        client: WireClient,
        monkeypatch: pytest.MonkeyPatch,
        partitions: int,
    ) -> None:
        """Its memory is no longer charged to the connection."""
        frames: list[weakref.ref[mmap.mmap]] = []
        original = receive.allocate

        def allocate(size: int) -> memoryview:
            view = original(size)
            if isinstance(view.obj, mmap.mmap):
                frames.append(weakref.ref(view.obj))
            return view

        monkeypatch.setattr(receive, "allocate", allocate)
        broker.create_topic("t", partitions, config={"max.message.bytes": 3_000_000})
        gate, started = threading.Event(), threading.Event()
        self.hold_flushes(broker, gate, started, [])
        request = produce(acks=-1, records=batch(bytes(2_000_000)))
        for partition in range(1, partitions):
            other = produce(acks=-1, records=batch(bytes(2_000)), partition=partition)
            request.topic_data[0].partition_data += other.topic_data[0].partition_data
        client.send(request, 9)
        assert started.wait(TIMEOUT_S)
        try:
            broker.wait_until(lambda: bool(frames), timeout_s=TIMEOUT_S)
            broker.wait_until(lambda: frames[0]() is None, timeout_s=TIMEOUT_S)
        finally:
            gate.set()
        responses = client.receive().responses[0].partition_responses
        assert [(each.error_code, each.base_offset) for each in responses] == [(0, 0)] * partitions

    def hold_flushes(
        self, broker: Broker, gate: threading.Event, started: threading.Event, counted: list[int]
    ) -> Any:
        async def install(server: Any) -> Any:
            log = server.services.replica_manager.partition("t", 0).log
            files = log.log_dir.files
            original = files.fsync

            def fsync(fd: int) -> None:
                started.set()
                assert gate.wait(TIMEOUT_S)
                original(fd)

            flush = log.flush

            def flush_counted() -> None:
                counted.append(1)
                flush()

            log.flush = flush_counted
            log.log_dir.pool.files = _Files(files, fsync)
            return log

        return broker.call(install)

    def test_failed_fsync_is_a_storage_error_and_never_retried(
        self, broker: Broker, client: WireClient
    ) -> None:
        broker.create_topic("t")

        async def install(server: Any) -> Any:
            log = server.services.replica_manager.partition("t", 0).log

            def fsync(fd: int) -> None:
                raise OSError(5, "Input/output error")

            log.log_dir.pool.files = _Files(log.log_dir.files, fsync)

        broker.call(install)
        for _ in range(2):
            got = partition_response(client.call(produce(), 9))
            assert (got.error_code, got.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        response = client.call(fetch(), 11)
        assert response.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    def test_stop_completes_a_delayed_produce(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t")
        gate, started = threading.Event(), threading.Event()
        self.hold_flushes(broker, gate, started, [])
        client.send(produce(acks=-1), 9)
        assert started.wait(TIMEOUT_S)
        stopper = threading.Thread(target=broker.close)
        stopper.start()
        gate.set()
        assert partition_response(client.receive()).error_code == ErrorCode.NONE
        stopper.join(TIMEOUT_S)
        assert not stopper.is_alive()

    def test_waiting_produce_times_out(self, broker: Broker, client: WireClient) -> None:
        broker.create_topic("t")
        gate, started = threading.Event(), threading.Event()
        self.hold_flushes(broker, gate, started, [])
        try:
            got = partition_response(client.call(produce(acks=-1, timeout_ms=1), 9))
            assert got.error_code == ErrorCode.REQUEST_TIMED_OUT
        finally:
            gate.set()
        assert partition_response(client.call(produce(acks=-1), 9)).base_offset == 1


class _Files:
    """The real files with a replaced fsync."""

    def __init__(self, files: Any, fsync: Any) -> None:
        self._files = files
        self.fsync = fsync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


@pytest.mark.parametrize("version", [9, 13])
def test_topic_deleted_while_a_produce_waits_is_unknown(
    client: WireClient, broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    broker.create_topic("t", config={"flush.messages": 1})
    gate, started = threading.Event(), threading.Event()
    TestFlush().hold_flushes(broker, gate, started, [])
    client.send(produce(acks=-1, topic_id=topic_id(broker)), version)
    assert started.wait(TIMEOUT_S)

    stop = Partition.stop

    def stop_and_open(self: Partition, error: ErrorCode) -> None:
        stop(self, error)
        gate.set()

    monkeypatch.setattr(Partition, "stop", stop_and_open)
    broker.reset()
    assert partition_response(client.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [9, 10])
def test_producer_at_the_wrong_broker_gets_the_current_leader(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")

    async def step_down(server: Any) -> None:
        partition = server.services.replica_manager.partition("t", 0)
        partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    broker.call(step_down)
    response = client.call(produce(), version)
    got = partition_response(response)
    assert got.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version < 10:
        assert (got.current_leader, response.node_endpoints) == (None, [])
    else:
        assert got.current_leader is not None
        assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == (1, 0)
        assert [each.node_id for each in response.node_endpoints] == [1]
