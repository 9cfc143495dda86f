"""The runtime: what is appended is what is loaded, and what fails changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.group.records import offset_commit_record, offset_commit_tombstone
from odradek.coordinator.group.shard import GroupShard
from odradek.coordinator.runtime import (
    _Decoder,
    _replay_piece,
    java_string_hash,
    partition_for,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol import record_codec
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from odradek.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.records.record import Record, build_batch
from tests.coordinator.on_disk import OFFSETS, OnDisk, coordinator


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("grüße", 98768023),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_is_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_partition_of_the_one_hash_without_an_absolute_value_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 100))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    assert 0 <= partition_for(group_id, count) < count


def offset(number: int, *, group: str = "g", partition: int = 0, **options: Any) -> Any:
    key = OffsetCommitKey(group=group, topic="t", partition=partition)
    return offset_commit_record(key, OffsetCommitValue(offset=number, metadata="", **options))


def committed(state: OnDisk, group: str = "g", partition: int = 0) -> int | None:
    value = state.groups.runtime.shard(0).offsets.get(group, "t", partition)
    return None if value is None else value.offset


def append(state: OnDisk, *records: tuple[bytes | None, bytes | None], **options: Any) -> None:
    """Puts raw records into the partition behind the coordinator's back."""
    batch = build_batch([Record(key, value) for key, value in records], **options)
    state.log().append_as_leader(memoryview(batch), 0, now_ms=state.clock.time_ms())


def test_restart_finds_what_was_written(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            runtime = state.groups.runtime
            runtime.shard(0)
            runtime.write(0, [offset(1), offset(2, partition=1)])
            runtime.write(0, [offset(3), offset(4, expire_timestamp=99)])
            runtime.write(0, [offset_commit_tombstone("g", "t", 1)])
            assert (committed(state), committed(state, partition=1)) == (4, None)
        async with coordinator(tmp_path) as state:
            assert (committed(state), committed(state, partition=1)) == (4, None)
            value = state.groups.runtime.shard(0).offsets.get("g", "t", 0)
            assert value is not None
            assert value.expire_timestamp == 99

    asyncio.run(run())


def test_loading_in_small_pieces_finds_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            state.groups.runtime.shard(0)
            for number in range(100):
                state.groups.runtime.write(0, [offset(number, group=f"g{number % 7}")])
        async with coordinator(tmp_path, start=False) as state:
            state.groups.runtime._load_piece_bytes = 64
            state.groups.start()
            with pytest.raises(KafkaError) as error:
                state.groups.runtime.shard(0)
            assert error.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await state.groups.runtime.loads_done()
            assert [committed(state, f"g{n}") for n in range(7)] == [98, 99, 93, 94, 95, 96, 97]

    asyncio.run(run())


def test_records_before_the_log_start_are_not_loaded(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            state.groups.runtime.shard(0)
            state.groups.runtime.write(0, [offset(1), offset(2, partition=1)])
            log = state.log()
            log.high_watermark = log.log_end_offset
            log.delete_records(1)
        async with coordinator(tmp_path) as state:
            assert (committed(state), committed(state, partition=1)) == (None, 2)

    asyncio.run(run())


def test_what_could_not_be_appended_has_not_happened(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            runtime = state.groups.runtime
            runtime.shard(0)
            state.append_error = ErrorCode.KAFKA_STORAGE_ERROR
            with pytest.raises(KafkaError):
                runtime.write(0, [offset(1)])
            assert committed(state) is None
            state.append_error = None
            assert runtime.write(0, [offset(2)]) is None
            assert committed(state) == 2

    asyncio.run(run())


def test_write_that_waits_for_the_disk_ends_with_the_flush(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            state.flushes = []
            state.groups.runtime.shard(0)
            waiting = state.groups.runtime.write(0, [offset(1)])
            assert waiting is not None
            assert not waiting.done()
            state.flushes[0].set_result(None)
            await waiting

    asyncio.run(run())


def test_failed_flush_takes_the_shard_out_of_service(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            state.flushes = []
            state.groups.runtime.shard(0)
            waiting = state.groups.runtime.write(0, [offset(1)])
            assert waiting is not None
            state.flushes[0].set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            with pytest.raises(KafkaError):
                await waiting
            with pytest.raises(KafkaError) as error:
                state.groups.runtime.shard(0)
            assert error.value.code is ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


def test_flush_that_fails_after_the_topic_was_made_anew_is_old_news(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            state.flushes = []
            runtime = state.groups.runtime
            runtime.shard(0)
            waiting = runtime.write(0, [offset(1)])
            assert waiting is not None
            runtime.unload_all(ErrorCode.NOT_COORDINATOR)
            state.manager.delete(OFFSETS)
            state.manager.create(OFFSETS, state.image.topics_by_name["t"].topic_id)
            runtime.shard(0)
            state.flushes[0].set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            with pytest.raises(KafkaError):
                await waiting
            assert runtime.shard(0).groups == {}

    asyncio.run(run())


def test_partition_that_is_not_here_has_no_coordinator(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as state:
            with pytest.raises(KafkaError) as error:
                state.groups.runtime.shard(7)
            assert error.value.code is ErrorCode.NOT_COORDINATOR

    asyncio.run(run())


def test_unreadable_records_are_skipped_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = offset(5)
    key = record_codec.encode_key(good.key)
    value = record_codec.encode_value(good.value, 3)
    later = record_codec.encode_key(ConsumerGroupMetadataKey(group_id="new"))
    metadata = record_codec.encode_value(ConsumerGroupMetadataValue(epoch=1), 0)

    async def run() -> None:
        async with coordinator(tmp_path) as state:
            append(
                state,
                (None, b"no key"),
                (b"\x7f\xffunknown type", b""),
                (b"\x00", b"short"),
                (key[:5], value),
                (key, value[:4]),
                (later, metadata),
                (key, value),
            )
        async with coordinator(tmp_path) as state:
            assert committed(state) == 5

    asyncio.run(run())
    assert "a record without a key: skipped, first at offset 0" in caplog.text
    assert "group records have no type 32767: skipped" in caplog.text
    assert "ConsumerGroupMetadataKey records are skipped, first at offset 5" in caplog.text


def test_commits_of_old_brokers_count(tmp_path: Path) -> None:
    key = record_codec.encode_key(LegacyOffsetCommitKey(group="g", topic="t", partition=0))
    value = record_codec.encode_value(LegacyOffsetCommitValue(offset=3, metadata="old"), 0)

    async def run() -> None:
        async with coordinator(tmp_path) as state:
            append(state, (key, value))
        async with coordinator(tmp_path) as state:
            assert committed(state) == 3
            append(state, (key, None))
        async with coordinator(tmp_path) as state:
            assert committed(state) is None

    asyncio.run(run())


class Bytes:
    """A region over bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.closed = False

    def read(self) -> bytes:
        return self.data

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("kind", ["transactional", "control"])
def test_transactional_commits_are_not_taken_for_committed_ones(kind: str) -> None:
    record = offset(9)
    stored = Record(record_codec.encode_key(record.key), record_codec.encode_value(record.value, 3))
    flags = {kind: True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    region = Bytes(bytes(build_batch([stored], base_offset=7, **flags)))
    shard = GroupShard(0, lambda shard: None, lambda shard, code: None)
    assert _replay_piece(_Decoder("group"), shard, region, 0) == 8  # type: ignore[arg-type]
    assert shard.groups == {}
    assert region.closed


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_batches_are_compressed_as_configured(tmp_path: Path, codec: int) -> None:
    async def run() -> None:
        config: dict[str, object] = {"offsets.topic.compression.codec": codec}
        async with coordinator(tmp_path, **config) as state:
            state.groups.runtime.shard(0)
            state.groups.runtime.write(0, [offset(n, partition=n) for n in range(50)])
        async with coordinator(tmp_path) as state:
            assert [committed(state, partition=n) for n in range(50)] == list(range(50))

    asyncio.run(run())
