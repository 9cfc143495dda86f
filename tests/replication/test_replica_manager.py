"""Images become partitions and logs, the broker's own appends, and a disk that fails."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid
from odradek.log.directories.log_manager import LogManager
from odradek.log.log_dir import LogDir
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.replication import partition_flushes
from odradek.replication.partition import Partition
from odradek.replication.replica_manager import PARTITIONS_APPLIED_A_SLICE, ReplicaManager
from odradek.result_tasks import wait
from odradek.slicing import run_to_completion
from testkit.requests import batch as batch_now
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.metadata_deltas import after_deletion
from tests.replication.builders import NODE, apply, replica_manager
from tests.replication.cluster_fakes import refused
from tests.replication.fakes import HeldExecutor

FIRST_ID, SECOND_ID = Uuid(b"1" * 16), Uuid(b"2" * 16)
KEY = TopicPartition("t", 0)


def topic(topic_id: Uuid = FIRST_ID, partitions: int = 1, epoch: int = 0) -> TopicImage:
    parts = tuple(
        PartitionImage(number, NODE, epoch, 0, (NODE,), (NODE,)) for number in range(partitions)
    )
    return TopicImage(TopicName("t"), topic_id, parts)


def image_of(*topics: TopicImage, **configs: str) -> MetadataImage:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    return MetadataImage().with_topics(
        {each.name: each for each in topics}, {each.name: named for each in topics}
    )


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([str(tmp_path)], BrokerConfig({}).log_config({}), ManualClock())
    manager.load()
    yield manager
    manager.close(clean=False)


Work = Callable[[ReplicaManager], Coroutine[Any, Any, None]]


@pytest.fixture
def run(logs: LogManager, executor: ThreadPoolExecutor) -> Callable[[Work], None]:
    """Run work on a replica manager over `logs`."""

    async def main(work: Work) -> None:
        manager = replica_manager(logs, executor)
        await work(manager)
        await manager.stop()

    return lambda work: asyncio.run(main(work))


def batch() -> bytearray:
    return batch_now(timestamp_ms=0)


def test_image_creates_and_removes_logs(
    run: Callable[[Work], None], logs: LogManager, tmp_path: Path
) -> None:
    async def work(manager: ReplicaManager) -> None:
        image = image_of(topic(partitions=2))
        apply(manager, None, image)
        assert manager.unknown_code(FIRST_ID, 9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert {str(log.topic_partition) for log in logs.all_logs()} == {"t-0", "t-1"}
        wider = image_of(topic(partitions=3))
        apply(manager, image, wider)
        assert manager.partition("t", 2).log.topic_id == FIRST_ID
        apply(manager, wider, after_deletion(wider, "t"))
        assert list(logs.all_logs()) == []
        assert manager.unknown_code(FIRST_ID, 9) is ErrorCode.UNKNOWN_TOPIC_ID
        assert refused(lambda: manager.partition("t", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(work)
    assert not (tmp_path / "t-0").exists()


def test_recreated_topic_is_empty(run: Callable[[Work], None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        image = image_of(topic())
        apply(manager, None, image)
        manager.append_internal(KEY, batch())
        apply(manager, image, image_of(topic(SECOND_ID)))
        log = manager.log(KEY)
        assert (log.topic_id, log.log_end_offset) == (SECOND_ID, 0)
        assert manager.unknown_code(SECOND_ID, 9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert manager.unknown_code(FIRST_ID, 9) is ErrorCode.UNKNOWN_TOPIC_ID

    run(work)


def test_log_of_another_topic_of_that_name_is_not_served(
    run: Callable[[Work], None], logs: LogManager
) -> None:
    stale = logs.create(KEY, SECOND_ID)
    stale.append_as_leader(memoryview(batch()), 0, now_ms=0)

    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic()))
        assert manager.log(KEY).log_end_offset == 0

    run(work)


def test_changed_config_reaches_log_and_produce_path(run: Callable[[Work], None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        image = image_of(topic())
        apply(manager, None, image)
        partition = manager.partition("t", 0)
        assert partition.appends_as_received
        changed = replace(
            image, topic_configs=PersistentMap({TopicName("t"): {"compression.type": "zstd"}})
        )
        apply(manager, image, changed)
        assert partition.log.config.compression_type == "zstd"
        assert (partition.appends_as_received, partition.needs_recompression) == (False, True)
        apply(manager, changed, image)
        assert partition.appends_as_received

    run(work)


def test_new_leader_epoch_is_taken_over(run: Callable[[Work], None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        image = image_of(topic())
        apply(manager, None, image)
        manager.append_internal(KEY, batch())
        apply(manager, image, image_of(topic(epoch=4)))
        partition = manager.partition("t", 0)
        assert partition.leader_epoch == 4
        assert partition.end_offset_for_epoch(0) == (0, 1)

    run(work)


def test_partition_led_elsewhere_is_not_served(run: Callable[[Work], None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        image = image_of(topic())
        apply(manager, None, image)
        moved = replace(topic().partitions[0], leader=BrokerId(2), leader_epoch=1)
        apply(manager, image, image_of(replace(topic(), partitions=(moved,))))
        for call in (lambda: manager.log(KEY), lambda: manager.append_internal(KEY, batch())):
            assert refused(call) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(work)


def test_internal_append_waits_for_a_flush_that_is_due(run: Callable[[Work], None]) -> None:
    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(), flush_messages="1"))
        appended = manager.append_internal(KEY, batch())
        assert not appended.done
        assert manager.log(KEY).high_watermark == 0
        info = await asyncio.wait_for(wait(appended), 120)
        assert (info.last_offset, manager.log(KEY).recovery_point) == (0, 1)

    run(work)


@pytest.mark.parametrize("failures", [2, 12, 22])
def test_flush_without_a_free_descriptor_is_repeated_until_there_is_one(
    run: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """After each ten attempts the broker hands over its leaderships. The directory stays online."""

    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(), flush_messages="1"))
        log, left, reported = manager.log(KEY), failures, []
        flush = log.flush

        def report(log_dir: LogDir) -> None:
            reported.append(log_dir)
            log_dir.space_freed()

        monkeypatch.setattr(log.log_dir, "_on_full", report)

        def fail_first() -> None:
            nonlocal left
            if left:
                left -= 1
                raise log.log_dir.io_failed(OSError(errno.EMFILE, "too many files"), "flushing")
            flush()

        monkeypatch.setattr(log, "flush", fail_first)
        monkeypatch.setattr(partition_flushes, "FLUSH_RETRY_S", 0)
        appended = manager.append_internal(KEY, batch())
        await asyncio.wait_for(wait(appended), 120)
        assert not left
        assert not log.log_dir.offline
        assert len(reported) == failures // partition_flushes.FLUSH_ATTEMPTS_BEFORE_HANDOVER

    run(work)


def test_start_waits_for_the_first_attempt_of_a_flush_only(
    run: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor the flush may never succeed, and the broker starts all the same."""

    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(), flush_messages="1"))
        log, left = manager.log(KEY), 100
        flush = log.flush

        def fail_first() -> None:
            nonlocal left
            left -= 1
            if left:
                raise log.log_dir.io_failed(OSError(errno.EMFILE, "too many files"), "flushing")
            flush()

        monkeypatch.setattr(log, "flush", fail_first)
        monkeypatch.setattr(partition_flushes, "FLUSH_RETRY_S", 0)
        appended = manager.append_internal(KEY, batch())
        await manager.flushes_ended()
        assert not appended.done
        await asyncio.wait_for(wait(appended), 120)

    run(work)


def test_flush_of_a_stopped_partition_is_not_repeated(
    run: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each tenth attempt would hand over the leaderships of the whole directory."""

    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(), flush_messages="1"))
        log, attempts = manager.log(KEY), 0
        flush = log.flush

        def fail_first() -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 3:
                return flush()
            raise log.log_dir.io_failed(OSError(errno.EMFILE, "too many files"), "flushing")

        monkeypatch.setattr(log, "flush", fail_first)
        monkeypatch.setattr(partition_flushes, "FLUSH_RETRY_S", 0)

        def stop(partition: Partition, *_: object) -> None:
            partition.stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)

        monkeypatch.setattr(manager._flushes, "_flush_refused", stop)
        manager.append_internal(KEY, batch())
        while manager._flushes._running:
            await manager.flushes_ended()
        assert attempts == 1

    run(work)


@pytest.mark.parametrize("failures", [2, 12])
def test_flush_that_fails_unexpectedly_is_repeated(
    run: Callable[[Work], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failures: int,
) -> None:
    """Otherwise acks=all would wait until another batch is appended."""

    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(), flush_messages="1"))
        log, errors = manager.log(KEY), [ValueError("unexpected")] * failures
        flush = log.flush

        def fail_first() -> None:
            if errors:
                raise errors.pop()
            flush()

        monkeypatch.setattr(log, "flush", fail_first)
        monkeypatch.setattr(partition_flushes, "FLUSH_RETRY_S", 0)
        appended = manager.append_internal(KEY, batch())
        await asyncio.wait_for(wait(appended), 120)
        assert not errors
        assert log.recovery_point == 1
        assert log.log_dir.is_full is (failures > 10), "the leaderships were handed over"
        assert "bug in the flush of t-0" in caplog.text
        assert "ValueError" in caplog.text

    run(work)


def test_unexpected_error_after_a_flush_fails_the_partition(
    run: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(), flush_messages="1"))

        def fail(_: Partition, end_offset: int) -> None:
            raise ValueError(end_offset)

        monkeypatch.setattr(Partition, "flushed", fail)
        manager.append_internal(KEY, batch())
        await manager.flushes_ended()
        assert refused(lambda: manager.log(KEY)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert "flushing t-0 failed" in caplog.text
        assert "ValueError" in caplog.text

    run(work)


def test_added_partitions_do_not_commit_records_that_wait_for_a_flush(
    logs: LogManager,
) -> None:
    """CreatePartitions publishes an image in which the topic's partition keeps its epoch."""

    async def main() -> None:
        executor = HeldExecutor()
        manager = replica_manager(logs, executor)
        image = image_of(topic(), flush_messages="1")
        apply(manager, None, image)
        appended = manager.append_internal(KEY, batch())
        await executor.asked.wait()
        apply(manager, image, image_of(topic(partitions=2), flush_messages="1"))
        assert not appended.done
        assert manager.log(KEY).high_watermark == 0
        executor.release()
        assert (await asyncio.wait_for(wait(appended), 120)).last_offset == 0
        assert manager.log(KEY).high_watermark == 1
        await manager.stop()

    asyncio.run(main())


def test_recovered_records_are_committed_after_the_flush_that_is_due(
    logs: LogManager, tmp_path: Path
) -> None:
    """A producer retries the batch that a kill left unacknowledged."""
    now_ms = ManualClock().time_ms()
    repeated = {"timestamp_ms": now_ms, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log = logs.create(KEY, FIRST_ID)
    log.append_as_leader(memoryview(batch_now(**repeated)), 0, now_ms=now_ms)
    logs.close(clean=False)
    restarted = LogManager([str(tmp_path)], BrokerConfig({}).log_config({}), ManualClock())
    restarted.load()

    async def main() -> None:
        executor = HeldExecutor()
        manager = replica_manager(restarted, executor)
        apply(manager, None, image_of(topic(), flush_messages="1"))
        flushed = asyncio.create_task(manager.flushes_ended())
        appended = manager.append_internal(KEY, batch_now(**repeated))
        await executor.asked.wait()
        assert not appended.done
        assert not flushed.done()
        executor.release()
        info = await asyncio.wait_for(wait(appended), 120)
        assert (info.last_offset, info.duplicate) == (0, True)
        log = manager.log(KEY)
        assert (log.recovery_point, log.high_watermark) == (1, 1)
        await asyncio.wait_for(flushed, 120)
        await manager.stop()

    asyncio.run(main())
    restarted.close(clean=False)


def test_start_without_a_directory_does_not_replace_its_logs_by_empty_ones(
    tmp_path: Path, executor: ThreadPoolExecutor
) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]

    def opened_logs() -> LogManager:
        logs = LogManager(paths, BrokerConfig({}).log_config({}), ManualClock())
        logs.load()
        return logs

    before = opened_logs()
    empty, missing = (before.create(TopicPartition("t", number), FIRST_ID) for number in (0, 1))
    assert (empty.log_dir, missing.log_dir) == tuple(before.log_dirs)
    before.close()
    logs = opened_logs()
    logs.log_dirs[1].fail(OSError(5, "Input/output error"), "a test")

    async def main() -> None:
        manager = replica_manager(logs, executor)
        image = replace(image_of(topic(partitions=2)), offset=1)
        apply(manager, None, image)
        assert manager.log(KEY).log_end_offset == 0
        code = refused(lambda: manager.log(TopicPartition("t", 1)))
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        # A partition that is added has no log anywhere.
        apply(manager, image, image_of(topic(partitions=3)))
        assert manager.log(TopicPartition("t", 2)).log_end_offset == 0
        await manager.stop()

    asyncio.run(main())
    logs.close(clean=False)


def test_failed_directory_fails_its_partitions_and_delayed_operations(
    run: Callable[[Work], None], logs: LogManager
) -> None:
    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(), flush_messages="1"))
        log = manager.log(KEY)
        log.log_dir.fail(OSError(5, "Input/output error"), "a test")
        run_to_completion(manager.failing_log_dir(log.log_dir))
        for call in (lambda: manager.log(KEY), lambda: manager.append_internal(KEY, batch())):
            assert refused(call) is ErrorCode.KAFKA_STORAGE_ERROR
        # A later image does not make it serve again.
        apply(manager, None, image_of(topic(epoch=1)))
        assert refused(lambda: manager.log(KEY)) is ErrorCode.KAFKA_STORAGE_ERROR

    run(work)


def test_partitions_of_a_failed_directory_are_stopped_in_time_slices(
    run: Callable[[Work], None],
) -> None:
    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic(partitions=3 * PARTITIONS_APPLIED_A_SLICE)))
        log_dir = manager.log(KEY).log_dir
        log_dir.fail(OSError(5, "Input/output error"), "a test")
        stopped = []
        for _ in manager.failing_log_dir(log_dir):
            stopped.append(sum(each.error is not ErrorCode.NONE for each in manager.partitions()))
        assert stopped == [PARTITIONS_APPLIED_A_SLICE * slices for slices in (1, 2, 3)]

    run(work)


@pytest.mark.parametrize(("offset", "start"), [(2, 2), (-1, 3), (0, 0), (3, 3)])
def test_records_are_deleted_up_to_the_high_watermark(
    run: Callable[[Work], None], offset: int, start: int
) -> None:
    async def work(manager: ReplicaManager) -> None:
        apply(manager, None, image_of(topic()))
        for _ in range(3):
            manager.append_internal(KEY, batch())
        assert manager.delete_records(KEY, offset, 0).get() == start
        for wrong in (4, -2):
            code = refused(lambda wrong=wrong: manager.delete_records(KEY, wrong, 0))  # type: ignore[misc]
            assert code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(work)


@pytest.mark.parametrize(("code", "fails"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_log_whose_topic_id_cannot_be_written_is_not_served(
    tmp_path: Path, executor: ThreadPoolExecutor, code: int, fails: bool
) -> None:
    """The other partitions are served. Without a descriptor the next start writes the topic id."""
    files = FaultyFiles()
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    config = BrokerConfig({}).log_config({})
    logs = LogManager([first], config, ManualClock(), files=files)
    logs.load()
    logs.create(KEY, FIRST_ID).append_as_leader(memoryview(batch()), 0, now_ms=0)
    logs.close()
    (tmp_path / "first" / "t-0" / "partition.metadata").unlink()
    logs = LogManager([first, second], config, ManualClock(), files=files)
    logs.load()

    async def main() -> None:
        manager = replica_manager(logs, executor)
        files.fail_pwrite = OSError(code, "the topic id is not written")
        apply(manager, MetadataImage(offset=1), image_of(topic(partitions=2)))
        assert files.fail_pwrite is None
        assert refused(lambda: manager.log(KEY)) is ErrorCode.KAFKA_STORAGE_ERROR
        other = manager.log(TopicPartition("t", 1))
        assert [each.offline for each in logs.log_dirs] == [fails, False]
        assert [each.topic_id for each in logs.all_logs()] == [None, FIRST_ID]
        assert other.log_dir is logs.log_dirs[1]
        await manager.stop()

    asyncio.run(main())
    logs.close(clean=False)


def test_deletion_of_a_topic_during_a_flush_is_no_error(
    logs: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        executor = HeldExecutor()
        manager = replica_manager(logs, executor)
        image = image_of(topic(), flush_messages="1")
        apply(manager, None, image)
        result = manager.append_internal(KEY, batch())
        await executor.asked.wait()
        apply(manager, image, after_deletion(image, "t"))
        while executor.held:
            executor.release()
            await asyncio.sleep(0)
        await manager.flushes_ended()
        assert result.error is not None
        await manager.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.records == []
