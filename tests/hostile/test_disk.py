"""A full disk and a failing disk, from the view of the broker's clients."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.environment.environment import Environment
from odradek.errors import ErrorCode
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.records.record import iter_batches, iter_records
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import WireClient
from tests.helpers.faulty_files import FaultyFiles
from tests.hostile.attacks import Attacker, reason, responses_until_closed
from tests.hostile.conftest import create_topic
from tests.hostile.process import TIMEOUT_S, BrokerProcess

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Attacker, Path]]:
    """A broker with a disk of its own that can be filled, and a client of it."""
    with BrokerProcess(tmp_path) as process, Attacker(process) as client:
        create_topic(client, "t")
        yield process, client, tmp_path / "t-0" / "00000000000000000000.log"


def sent(client: WireClient, value: bytes, topic: str = "t", acks: int = 1) -> tuple[int, int]:
    response = client.call(produce(topic, batch(value), acks=acks), 9)
    partition = response.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def values(client: WireClient, topic: str = "t") -> list[bytes | None]:
    response = client.call(fetch(topic), 12).responses[0].partitions[0]
    assert response.error_code == 0
    return [
        record.value
        for each in iter_batches(response.records or b"")
        for record in iter_records(each)
    ]


def test_a_full_disk_refuses_appends_serves_reads_and_recovers(
    disk: tuple[BrokerProcess, Attacker, Path],
) -> None:
    process, client, log = disk
    for number in range(3):
        assert sent(client, b"%d" % number) == (0, number)
    whole = log.stat().st_size
    process.limit_file_size(whole + 500)
    assert sent(client, bytes(1000)) == (STORAGE, -1)
    assert log.stat().st_size == whole, "the partial write was not cut off"
    assert sent(client, b"3") == (0, 3), "what still fits is taken"
    process.limit_file_size(0)
    for acks in (1, -1):
        assert sent(client, b"no", acks=acks) == (STORAGE, -1)
    assert values(client) == [b"0", b"1", b"2", b"3"]
    process.wait_for_line(re.compile("The partial write was cut off").search)
    process.limit_file_size(-1)
    assert sent(client, bytes(1000), acks=-1) == (0, 4)
    assert values(client) == [b"0", b"1", b"2", b"3", bytes(1000)]


def test_a_full_disk_closes_the_connection_of_a_producer_with_acks_0(
    disk: tuple[BrokerProcess, Attacker, Path],
) -> None:
    process, client, _ = disk
    assert sent(client, b"first") == (0, 0)
    process.limit_file_size(0)
    client.send(produce("t", acks=0), 9)
    assert responses_until_closed(client) == []
    assert "KAFKA_STORAGE_ERROR" in reason(client)
    process.limit_file_size(-1)


def commit(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, -1, "")
    topics = [OffsetCommitRequestTopic("t", partitions=[partition])]
    return OffsetCommitRequest("g", -1, "", None, -1, topics)


def test_a_full_disk_refuses_offsets_and_topics_until_there_is_space(
    disk: tuple[BrokerProcess, Attacker, Path],
) -> None:
    process, client, _ = disk
    client.call(FindCoordinatorRequest("g", 0), 2)
    assert client.call(commit(1), 5).topics[0].partitions[0].error_code == 0
    process.limit_file_size(0)
    refused = client.call(commit(2), 5).topics[0].partitions[0].error_code
    assert refused == ErrorCode.NOT_COORDINATOR  # as in Kafka: the client looks up again
    with pytest.raises(AssertionError):
        create_topic(client, "later")
    process.limit_file_size(-1)
    assert client.call(commit(2), 5).topics[0].partitions[0].error_code == 0
    create_topic(client, "later")
    assert sent(client, b"x", "later") == (0, 0)


class HeldFiles(FaultyFiles):
    """Files whose fsync can be made to wait, and to fail when it continues."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.asked = threading.Event()

    def fsync(self, fd: int) -> None:
        self.fsyncs += 1
        self.asked.set()
        assert self.may_sync.wait(TIMEOUT_S)
        if self.fail_fsync is not None:
            error, self.fail_fsync = self.fail_fsync, None
            raise error
        os.fsync(fd)


@pytest.fixture
def files() -> HeldFiles:
    return HeldFiles()


def test_no_acknowledgement_before_fsync_and_none_after_a_failed_one(
    files: HeldFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Broker(environment=Environment(files=files)) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("durable", config={"flush.messages": 1})
        broker.create_topic("other")
        assert sent(client, b"first", "durable") == (0, 0)
        with WireClient(broker.bootstrap_servers) as reader:
            files.may_sync.clear()
            files.asked.clear()
            client.send(produce("durable", batch(b"second")), 9)
            assert files.asked.wait(TIMEOUT_S)
            assert values(reader, "durable") == [b"first"], "shown before it was durable"
            assert sent(reader, b"x", "other") == (0, 0), "others are served meanwhile"
            files.fail_fsync = OSError(errno.EIO, "the disk is gone")
            files.may_sync.set()
            response = client.receive().responses[0].partition_responses[0]
            assert (response.error_code, response.base_offset) == (STORAGE, -1)
            synced = files.fsyncs
            for topic in ("durable", "other"):
                assert sent(client, b"no", topic) == (STORAGE, -1)
            got = reader.call(fetch("durable"), 12).responses[0].partitions[0]
            assert got.error_code == STORAGE
            assert files.fsyncs == synced, "a failed fsync was tried again"
    assert "is offline" in caplog.text


def test_a_disk_that_fails_while_writing_goes_offline(
    files: HeldFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Broker(environment=Environment(files=files)) as broker,
        WireClient(broker.bootstrap_servers) as client,
    ):
        broker.create_topic("t")
        assert sent(client, b"first") == (0, 0)
        files.fail_pwrite = OSError(errno.EIO, "the disk is gone")
        assert sent(client, b"second") == (STORAGE, -1)
        assert sent(client, b"third") == (STORAGE, -1)
        assert client.call(fetch("t"), 12).responses[0].partitions[0].error_code == STORAGE
    assert "is offline" in caplog.text
