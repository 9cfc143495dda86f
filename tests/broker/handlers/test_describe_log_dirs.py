"""DescribeLogDirs over the wire: every version, sizes, and an offline directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.testing import Broker
from testkit.requests import batch, produce
from testkit.wire import WireClient


def sizes(response: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_returns_sizes(broker: Broker, client: WireClient, version: int) -> None:
    broker.create_topic("t", 2)
    records = batch(b"value" * 100)
    client.call(produce("t", records, partition=1), 8)
    response = client.call(DescribeLogDirsRequest(None), version)
    (result,) = response.results
    assert (response.error_code, result.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert Path(result.log_dir).is_dir()
    assert sizes(response) == {("t", 0): 0, ("t", 1): len(records)}
    partition = result.topics[0].partitions[0]
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0
    else:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)


def test_only_requested_partitions_are_returned(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 3)
    broker.create_topic("u")
    topics = [DescribableLogDirTopic("t", [1, 7]), DescribableLogDirTopic("nope", [0])]
    assert sizes(client.call(DescribeLogDirsRequest(topics), 4)) == {("t", 1): 0}
    (result,) = client.call(DescribeLogDirsRequest([]), 4).results
    assert result.topics == []


def test_several_directories_are_returned(tmp_path: Path) -> None:
    directories = [str(tmp_path / name) for name in ("one", "two")]
    with Broker({"log.dirs": ",".join(directories)}) as broker:
        broker.create_topic("t", 4)
        with WireClient(broker.bootstrap_servers) as client:
            response = client.call(DescribeLogDirsRequest(None), 4)
    assert sorted(result.log_dir for result in response.results) == directories
    assert len(sizes(response)) == 4


def test_offline_directory_is_a_storage_error(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")

    async def fail(server: Any) -> None:
        (log_dir,) = server.services.log_manager.log_dirs
        log_dir.fail(OSError("gone"), "a test")

    broker.call(fail)
    (result,) = client.call(DescribeLogDirsRequest(None), 4).results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
