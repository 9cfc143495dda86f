"""`ReplicaManager.append_records`: order of the results, and when they are complete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek import slicing
from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName, TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.log_append_info import LogAppendInfo
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.replication.partition import Partition
from odradek.replication.record_append import AppendEntry, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.result_tasks import wait
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS
from testkit.requests import batch
from tests.replication.builders import NODE, apply, has_delayed_operations, replica_manager
from tests.replication.fakes import HeldExecutor

TOPIC_ID = Uuid(b"1" * 16)
MANY = ELEMENTS_PER_SLICE + 1
TIMEOUT_MS = 600_000

Work = Callable[[ReplicaManager], Coroutine[Any, Any, None]]


def image_of(count: int = 2 * MANY, **configs: str) -> MetadataImage:
    parts = tuple(PartitionImage(at, NODE, 0, 0, (NODE,), (NODE,)) for at in range(count))
    name = TopicName("t")
    overrides = {key.replace("_", "."): value for key, value in configs.items()}
    return MetadataImage().with_topics({name: TopicImage(name, TOPIC_ID, parts)}, {name: overrides})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Run work on a replica manager with one topic."""
    config = BrokerConfig({})
    logs = LogManager([str(tmp_path)], config.log_config({}), ManualClock())
    logs.load()

    async def main(work: Work, **configs: str) -> None:
        with ThreadPoolExecutor(2) as executor:
            manager = replica_manager(logs, executor)
            apply(manager, None, image_of(**configs))
            await work(manager)
            await manager.stop()

    yield lambda work, **configs: asyncio.run(main(work, **configs))
    logs.close(clean=False)


def entry(partition: int, topic: str | Uuid = "t", **options: Any) -> AppendEntry:
    return AppendEntry(topic, partition, memoryview(batch(timestamp_ms=0, **options)))


def code(result: AppendResult) -> ErrorCode:
    return ErrorCode.NONE if result.error is None else result.error.code


@pytest.mark.parametrize("count", [1, MANY], ids=["few", "many"])
@pytest.mark.parametrize("topic", ["t", TOPIC_ID], ids=["name", "id"])
def test_results_are_in_the_order_of_the_entries(
    run: Callable[..., None], count: int, topic: str | Uuid
) -> None:
    async def work(manager: ReplicaManager) -> None:
        good = [entry(at, topic) for at in range(count)]
        entries = [entry(999, topic), *good, AppendEntry(topic, count, None)]
        results = await wait(manager.append_records(entries, 1, TIMEOUT_MS))
        first, *appended, last = results
        assert code(first) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code(last) is ErrorCode.INVALID_RECORD
        assert [result.info.first_offset for result in appended if result.info] == [0] * count
        assert all(manager.log(TopicPartition("t", at)).log_end_offset == 1 for at in range(count))

    run(work)


def test_unknown_topic_id_and_unknown_partition_have_different_errors(
    run: Callable[..., None],
) -> None:
    async def work(manager: ReplicaManager) -> None:
        entries = [entry(0, Uuid(b"2" * 16)), entry(999, TOPIC_ID)]
        results = manager.append_records(entries, 1, TIMEOUT_MS).get()
        assert [code(each) for each in results] == [
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    run(work)


def test_slow_appends_end_the_time_slice_before_the_limit_of_elements(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example the first append to each log, which creates its directory and files."""
    slice_sizes = [0]
    append = Partition.append

    def slow(partition: Partition, *arguments: Any) -> LogAppendInfo:
        clock.advance(1)
        slice_sizes[-1] += 1
        return append(partition, *arguments)

    async def counted() -> None:
        slice_sizes.append(0)
        await asyncio.sleep(0)

    clock = ManualClock()
    monkeypatch.setattr(Partition, "append", slow)
    monkeypatch.setattr(slicing, "end_slice", counted)

    async def work(manager: ReplicaManager) -> None:
        manager.clock = clock
        results = await wait(manager.append_records([entry(at) for at in range(8)], 1, TIMEOUT_MS))
        assert [code(each) for each in results] == [ErrorCode.NONE] * 8
        assert slice_sizes == [SLICE_MS + 1] * 4

    run(work)


@pytest.mark.parametrize("acks", [-2, 2])
def test_other_acks_append_nothing(run: Callable[..., None], acks: int) -> None:
    async def work(manager: ReplicaManager) -> None:
        (result,) = manager.append_records([entry(0)], acks, TIMEOUT_MS).get()
        assert code(result) is ErrorCode.INVALID_REQUIRED_ACKS
        assert manager.log(TopicPartition("t", 0)).log_end_offset == 0

    run(work)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_result_is_executed_after_the_append_and_done_after_the_flush(
    run: Callable[..., None], acks: int
) -> None:
    async def work(manager: ReplicaManager) -> None:
        result = manager.append_records([entry(0), entry(1)], acks, TIMEOUT_MS)
        assert (result.executed, result.done) == (True, False)
        assert [code(each) for each in await wait(result)] == [ErrorCode.NONE] * 2
        log = manager.log(TopicPartition("t", 1))
        assert (log.recovery_point, log.high_watermark) == (1, 1)

    run(work, flush_messages="1")


def test_partition_that_is_stopped_during_the_wait_has_the_error(
    run: Callable[..., None],
) -> None:
    async def work(manager: ReplicaManager) -> None:
        result = manager.append_records([entry(0), entry(1)], -1, TIMEOUT_MS)
        manager.partition("t", 0).stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        first, second = await wait(result)
        assert (code(first), code(second)) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NONE,
        )
        assert first.topic_partition == ("t", 0)

    run(work, flush_messages="1")


def test_acks_all_times_out(run: Callable[..., None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        executor = HeldExecutor()
        manager._executor = executor
        result = manager.append_records([entry(0)], -1, 0)
        assert [code(each) for each in await wait(result)] == [ErrorCode.REQUEST_TIMED_OUT]
        assert manager.log(TopicPartition("t", 0)).log_end_offset == 1
        assert not has_delayed_operations(manager.partition("t", 0))
        executor.release()

    run(work, flush_messages="1")


def test_entry_with_an_error_is_not_appended(run: Callable[..., None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        refused = entry(0)
        refused.error = KafkaError(ErrorCode.INVALID_TXN_STATE)
        first, second = manager.append_records([refused, entry(1)], 1, TIMEOUT_MS).get()
        assert (code(first), code(second)) == (ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE)
        assert manager.log(TopicPartition("t", 0)).log_end_offset == 0

    run(work)


@pytest.mark.parametrize("records", [1, 50_000], ids=["one slice", "many slices"])
def test_decompressed_batches_are_appended_or_refused(
    run: Callable[..., None], records: int
) -> None:
    """The topic is compacted, and a batch without keys is refused."""

    async def work(manager: ReplicaManager) -> None:
        values = [b"v"] * records
        keyless = memoryview(batch(*values, timestamp_ms=0))
        (result,) = await wait(
            manager.append_records([AppendEntry("t", 0, keyless)], 1, TIMEOUT_MS)
        )
        assert code(result) is ErrorCode.INVALID_RECORD
        assert result.log_start_offset == 0
        assert manager.log(TopicPartition("t", 0)).log_end_offset == 0

    run(work, cleanup_policy="compact")


def test_recompressed_batches_keep_the_order_of_the_results(run: Callable[..., None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        large = memoryview(batch(*[bytes(100)] * 50_000, timestamp_ms=0))
        entries = [AppendEntry("t", 0, large), entry(1), entry(999)]
        result = manager.append_records(entries, 1, TIMEOUT_MS)
        first, second, third = await wait(result)
        assert first.info is not None
        assert first.info.last_offset == 49_999
        assert second.info is not None
        assert code(third) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(work, compression_type="gzip", max_message_bytes="100000000")
