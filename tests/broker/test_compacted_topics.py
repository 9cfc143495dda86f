"""Validation of records that clients write to a compacted topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.records.batch import Compression
from odradek.records.record import Record, build_batch
from odradek.testing import Broker
from testkit.requests import list_offsets, produce
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import commit, committed, find

KEYLESS = "Compacted topic cannot accept message without key in topic partition t-0"


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_each_record_without_a_key_is_reported_and_nothing_is_appended(
    broker: Broker, client: WireClient, compression: Compression
) -> None:
    broker.create_topic("t", config={"cleanup.policy": "compact,delete"})
    records = [Record(key, b"v", 1_700_000_000_000) for key in (b"a", None, b"", None)]
    data = build_batch(records, compression=compression)
    response = client.call(produce(records=data), 8).responses[0].partition_responses[0]
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert (response.base_offset, response.log_append_time_ms, response.log_start_offset) == (
        -1,
        -1,
        0,
    )
    errors = [(each.batch_index, each.batch_index_error_message) for each in response.record_errors]
    assert errors == [(1, KEYLESS), (3, KEYLESS)]
    assert response.error_message.startswith(
        "One or more records have been rejected due to 2 record errors in total, and only showing "
        f"the first three errors at most: [RecordError(batchIndex=1, message='{KEYLESS}'), "
    )
    end = client.call(list_offsets(-1), 5).topics[0].partitions[0].offset
    assert end == 0


def test_a_topic_refuses_records_without_a_key_once_it_is_compacted(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    records = build_batch([Record(None, b"v")], timestamp_ms=1_700_000_000_000)

    def send() -> int:
        response = client.call(produce(records=records), 7).responses[0].partition_responses[0]
        return int(response.error_code)

    assert send() == ErrorCode.NONE

    async def alter(server: object) -> None:
        from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
        from odradek.metadata.resources import ResourceType

        op = ConfigOp("cleanup.policy", OpType.SET, "compact")
        change = ConfigChange(ResourceType.TOPIC, "t", [op], False)
        await server.services.controller.alter_configs([change])  # type: ignore[attr-defined]

    broker.call(alter)
    assert send() == ErrorCode.INVALID_RECORD


def test_compacted_committed_offsets_are_loaded_again(tmp_path: Path) -> None:
    config = {"offsets.topic.num.partitions": 1, "log.cleaner.backoff.ms": 3_600_000}
    with Broker(config, data_dir=tmp_path) as broker:
        broker.create_topic("t")

        async def clean(server: Any) -> tuple[int, int]:
            services = server.services
            log = services.log_manager.get(TopicPartition("__consumer_offsets", 0))
            log.roll(services.clock.time_ms())
            log.flush()
            services.log_manager.checkpoint()
            before = log.size_bytes
            assert await server.log_cleaner.clean() == 1
            return before, log.size_bytes

        with WireClient(broker.bootstrap_servers) as client:
            find(client)
            for offset in range(50):
                assert commit(client, 8, offset=offset) is ErrorCode.NONE
            before, after = broker.call(clean)
            assert after < before / 10
            assert committed(client).committed_offset == 49
        runtime_reloads(broker)
        with WireClient(broker.bootstrap_servers) as client:
            assert committed(client).committed_offset == 49


def runtime_reloads(broker: Broker) -> None:
    """Make the group coordinator load its log again."""

    async def reload(server: Any) -> None:
        runtime = server.services.groups.runtime
        runtime.unload(0)
        runtime.follow(0)
        await runtime.loads_done(120)

    broker.call(reload)
