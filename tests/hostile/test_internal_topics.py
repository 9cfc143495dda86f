"""Kafka lets a client that calls itself an admin tool write to the coordinators' topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.records.batch import Compression
from odradek.records.compression import compress
from odradek.records.record import Record, build_batch
from odradek.testing import Broker
from testkit.requests import produce
from testkit.wire import WireClient
from tests.hostile.batches import RECORD, forged

ADMIN = "__admin_client"
CONFIG = {"offsets.topic.num.partitions": 1}
OFFSETS = "__consumer_offsets"

LIES = {
    "fewer records than said": forged(RECORD, count=2),
    "a length too long": forged(b"\xfe\x7f" + RECORD, count=1),
    "noise": forged(bytes(range(1, 100)), count=3),
    "an offset twice": forged(RECORD * 2, count=2),
    "a bomb": forged(
        compress(Compression.ZSTD, bytes(20_000_000)), compression=Compression.ZSTD, count=9
    ),
    "no gzip": forged(b"nothing", compression=Compression.GZIP, count=1),
}


def commit() -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, 5, -1, "")
    topics = [OffsetCommitRequestTopic("t", partitions=[partition])]
    return OffsetCommitRequest("g", -1, "", None, -1, topics)


def error_of(client: WireClient, batch: bytearray) -> int:
    client.send(produce(OFFSETS, batch), 9, client_id=ADMIN)
    return int(client.receive().responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("what", LIES)
def test_records_that_a_coordinator_could_not_load_are_refused(what: str) -> None:
    with Broker(CONFIG) as broker, WireClient(broker.bootstrap_servers) as client:
        client.call(FindCoordinatorRequest("g", 0), 2)
        assert error_of(client, LIES[what]) == ErrorCode.INVALID_RECORD
        assert error_of(client, build_batch([Record(b"", b"")], timestamp_ms=-1)) == 0


def test_groups_are_loaded_despite_meaningless_records(tmp_path: Path) -> None:
    keys = [b"", b"\0", b"\0\1\0\5g", b"\0\2\0\1g", b"\x7f\xff", b"\0\1\0\1g\0\1t\0\0\0\0"]
    with Broker(CONFIG, data_dir=tmp_path) as broker:
        with WireClient(broker.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest("g", 0), 2)
            for key in keys:
                for value in (None, b"", b"\0", b"\0\3", b"\xff" * 9):
                    record = Record(key, value, timestamp=1_700_000_000_000)
                    assert error_of(client, build_batch([record])) == 0
    with Broker(CONFIG, data_dir=tmp_path) as broker:
        with WireClient(broker.bootstrap_servers) as client:
            topic = client.call(commit(), 5).topics[0]
            assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            broker.create_topic("t")
            assert client.call(commit(), 5).topics[0].partitions[0].error_code == 0
