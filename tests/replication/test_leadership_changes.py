"""Leadership by the image: which partitions are led, followed or stopped, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicName, TopicPartition
from odradek.log.directories.log_manager import LogManager
from odradek.log.truncation import LogTruncations
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from odradek.metadata.image_records import registration_record
from odradek.offloading import WorkRunner
from odradek.records.record import Record, build_batch
from odradek.replication.partition import Partition
from odradek.replication.record_append import AppendEntry
from odradek.replication.replica_manager import ReplicaManager
from odradek.result_tasks import wait
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.helpers.led_partitions import led
from tests.helpers.metadata_deltas import after_deletion
from tests.replication.builders import apply
from tests.replication.cluster_fakes import (
    ALL,
    EPOCH,
    LEADER,
    TOPIC_ID,
    TP,
    A,
    B,
    Cluster,
    Target,
    replication_of,
)


class Broker:
    """Broker 1, and the image of a topic with one partition."""

    def __init__(self, logs: LogManager, executor: ThreadPoolExecutor) -> None:
        self.cluster = Cluster()
        self.logs = logs
        self.manager = ReplicaManager(
            LEADER,
            logs,
            self.cluster.clock,
            LoopTimers(),
            executor,
            BrokerConfig({}).log_config,
            asyncio.get_running_loop(),
            WorkRunner(executor, 1, asyncio.Lock()),
            replication=self.cluster.parts,
        )
        self.image = MetadataImage(offset=1)
        self.partition_image: PartitionImage

    def set(self, image: PartitionImage, configs: dict[str, str] | None = None) -> None:
        """Apply an image with the partition, and optionally new configs of its topic."""
        self.partition_image = image
        topic = TopicImage(TopicName("t"), TOPIC_ID, [image])
        changed = {} if configs is None else {topic.name: configs}
        self.apply(self.image.with_topics({topic.name: topic}, changed))

    def apply(self, image: MetadataImage) -> None:
        apply(self.manager, self.image, image)
        self.image = image

    @property
    def partition(self) -> Partition:
        return self.manager.partition(*TP)

    @property
    def followed(self) -> tuple[int, int] | None:
        """Leader and epoch that the fetcher follows."""
        found = self.cluster.fetchers.followed.get(TP)
        if found is None:
            return None
        assert found.partition is self.partition
        return found.leader, found.leader_epoch


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Callable[[Broker], Any]], None]]:
    executor = ThreadPoolExecutor(1)

    def run(test: Callable[[Broker], Any]) -> None:
        async def main() -> None:
            logs = LogManager([str(tmp_path)], LogConfig(), ManualClock())
            logs.load("cluster", 1)
            try:
                outcome = test(Broker(logs, executor))
                if outcome is not None:
                    await outcome
            finally:
                logs.close(clean=False)

        asyncio.run(main())

    yield run
    executor.shutdown()


Run = Callable[[Callable[[Broker], Any]], None]


def of(leader: int, leader_epoch: int, partition_epoch: int, **changes: Any) -> PartitionImage:
    image = led(leader_epoch, ALL, leader=leader, partition_epoch=partition_epoch)
    return replace(image, **changes)


def append(broker: Broker) -> None:
    broker.partition.append(memoryview(build_batch([Record(None, b"x", 0)])), 1, 0)


def test_follower_is_fetched_from_the_leader_of_its_epoch(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(A, 3, 1))
        assert broker.followed == (A, 3)
        calls = broker.cluster.fetchers.calls
        broker.set(of(A, 3, 2, isr=(A, LEADER)))
        assert broker.cluster.fetchers.calls == calls  # the ISR is no news for the fetcher
        assert broker.partition.isr == (A, LEADER)
        broker.set(of(A, 4, 3))
        assert broker.followed == (A, 4)
        broker.set(of(B, 5, 4))
        assert broker.followed == (B, 5)

    run(test)


def test_partition_without_a_leader_is_not_fetched(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(A, 3, 1))
        broker.set(of(NO_LEADER, 4, 2))
        assert broker.followed is None
        assert broker.partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_leader_is_not_fetched(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(A, 3, 1))
        broker.set(of(LEADER, 4, 2))
        assert broker.followed is None
        append(broker)
        assert broker.partition.replication is not None

    run(test)


@pytest.mark.parametrize("end", ["deleted", "released", "failed"])
def test_partition_that_is_gone_is_not_fetched(run: Run, end: str) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(A, 3, 1))
        if end == "deleted":
            broker.apply(after_deletion(broker.image, "t"))
        elif end == "released":
            broker.set(of(A, 4, 2, replicas=(A, B), isr=(A, B)))
        else:
            run_to_completion(broker.manager.failing_log_dir(broker.partition.log.log_dir))
            assert broker.partition.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert TP not in broker.cluster.fetchers.followed

    run(test)


def test_failed_partition_is_neither_led_nor_fetched_again(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(A, 3, 1))
        broker.partition.storage_failed()
        broker.set(of(B, 4, 2))
        broker.set(of(LEADER, 5, 3))
        assert broker.partition.error is ErrorCode.KAFKA_STORAGE_ERROR

    run(test)


def test_becoming_leader_waits_for_the_end_of_a_truncation(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker)
        append(broker)
        broker.set(of(A, 4, 2))
        partition, truncations = broker.partition, LogTruncations()
        truncations.truncate_to(partition.log, 1)
        broker.set(of(LEADER, 5, 3))
        assert broker.followed is None
        assert partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.set(of(LEADER, 5, 4, isr=(LEADER, A)))
        truncations.execute()
        assert partition.error
        broker.cluster.fetchers.truncation_ended(partition.log)
        assert not partition.error
        assert (partition.leader_epoch, partition.isr) == (5, (LEADER, A))
        append(broker)
        assert partition.log.end_offset_for_epoch(3) == (3, 1)

    run(test)


def test_replica_that_is_added_again_during_a_truncation_leads_after_it(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker)
        broker.set(of(A, 4, 2))
        removed, truncations = broker.partition, LogTruncations()
        truncations.truncate_to(removed.log, 0)
        broker.set(of(LEADER, 5, 3))
        broker.set(of(A, 6, 4, replicas=(A, B), isr=(A, B)))
        broker.set(of(A, 6, 5))
        broker.set(of(LEADER, 7, 6))
        partition = broker.partition
        assert partition is not removed
        assert partition.error
        truncations.execute()
        broker.cluster.fetchers.truncation_ended(partition.log)
        assert (partition.error, partition.leader_epoch) == (ErrorCode.NONE, 7)
        assert removed.error

    run(test)


def test_partition_that_is_deleted_during_a_truncation_is_never_led(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker)
        broker.set(of(A, 4, 2))
        partition, truncations = broker.partition, LogTruncations()
        truncations.truncate_to(partition.log, 0)
        broker.set(of(LEADER, 5, 3))
        broker.apply(after_deletion(broker.image, "t"))
        truncations.execute()
        broker.cluster.fetchers.truncation_ended(partition.log)
        assert partition.error
        assert partition.replication is None

    run(test)


def test_truncation_that_ends_after_another_election_does_not_depose_the_new_leader(
    run: Run,
) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker)
        broker.set(of(A, 4, 2))
        partition, truncations = broker.partition, LogTruncations()
        truncations.truncate_to(partition.log, 0)
        broker.set(of(LEADER, 5, 3))
        broker.set(of(B, 6, 4))
        truncations.execute()
        broker.cluster.fetchers.truncation_ended(partition.log)
        assert (partition.leader, partition.leader_epoch) == (B, 6)
        assert partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.followed == (B, 6)
        broker.set(of(B, 6, 5, isr=(B, A)))
        assert broker.followed == (B, 6)

    run(test)


def test_isr_does_not_count_with_an_earlier_min_isr(run: Run) -> None:
    """One delta raises min.insync.replicas and shrinks the ISR.

    The controller put the removed replicas into the ELR. With the earlier minimum the leader would
    commit records that they lack (KIP-966).
    """

    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1), {"min.insync.replicas": "1"})
        partition = broker.partition
        for replica in (A, B):
            replication_of(partition).fetch(replica, EPOCH, Target(0, 3), 0, updates=True)
        append(broker)
        broker.cluster.change_broker(A, fenced=True)
        broker.cluster.change_broker(B, fenced=True)
        shrunk = of(LEADER, 3, 2, isr=(LEADER,), elr=(BrokerId(A), BrokerId(B)))
        broker.set(shrunk, {"min.insync.replicas": "2"})
        assert partition.log.high_watermark == 0
        broker.set(replace(shrunk, partition_epoch=3), {"min.insync.replicas": "1"})
        assert partition.log.high_watermark == 1

    run(test)


def test_deposed_leader_does_not_commit_with_the_min_isr_of_the_next_epoch(run: Run) -> None:
    """One delta has a new leader, and then lowers min.insync.replicas.

    The new leader came from the ELR and may lack the last record of the earlier one.
    """

    def test(broker: Broker) -> None:
        led = of(LEADER, 3, 1, isr=(LEADER,), elr=(BrokerId(A), BrokerId(B)))
        broker.set(led, {"min.insync.replicas": "2"})
        append(broker)
        broker.set(of(A, 4, 2, isr=(BrokerId(A),)), {"min.insync.replicas": "1"})
        partition = broker.partition
        assert partition.log.config.min_insync_replicas == 1
        assert (partition.log.high_watermark, partition.log.log_end_offset) == (0, 1)
        assert partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.followed == (A, 4)

    run(test)


def test_deletions_that_a_fenced_broker_completes_are_tried_in_time_slices(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker)
        for replica in (A, B):
            for offset in (0, 1):
                fetched = Target(offset, 3)
                replication_of(broker.partition).fetch(replica, EPOCH, fetched, 0, updates=True)
        count = 5 * ELEMENTS_PER_SLICE
        key = TopicPartition(TopicName("t"), 0)
        deletions = [broker.manager.delete_records(key, 1, 30_000) for _ in range(count)]
        assert not any(each.done for each in deletions)
        delta = MetadataDelta(broker.image)
        for replica in (A, B):
            broker.cluster.change_broker(replica, fenced=True)
            delta.replay(registration_record(broker.cluster.brokers[replica]))
        done = [0]
        for _ in broker.manager.apply(delta, broker.image, broker.image):
            done.append(sum(each.done for each in deletions))
            assert done[-1] - done[-2] <= ELEMENTS_PER_SLICE
        assert done[-1] == count
        assert {each.get() for each in deletions} == {1}

    run(test)


def test_partition_elsewhere_is_reported_with_its_leader(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(A, 3, 1, replicas=(A, B), isr=(A,)))
        for topic in ("t", TOPIC_ID):
            code = broker.manager.unknown_code(topic, 0)
            assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert broker.manager.leader_elsewhere(topic, 0) == (A, 3)
            code = broker.manager.unknown_code(topic, 1)
            assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.manager.unknown_code("other", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


@pytest.mark.parametrize("acks", [0, 1])
def test_r11_acks_0_and_1_wait_for_the_flush_and_not_for_followers(run: Run, acks: int) -> None:
    async def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1), {"flush.messages": "1"})
        records = memoryview(build_batch([Record(None, b"x", 0)]))
        result = broker.manager.append_records([AppendEntry("t", 0, records)], acks, 30_000)
        assert not result.done
        await broker.manager.flushes_ended()
        (appended,) = result.get()
        assert appended.error is None
        assert broker.partition.log.high_watermark == 0

    run(test)


def test_r3_acks_all_times_out_without_followers_and_keeps_the_records(run: Run) -> None:
    async def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        records = memoryview(build_batch([Record(None, b"x", 0)]))
        result = broker.manager.append_records([AppendEntry("t", 0, records)], -1, 0)
        (appended,) = await wait(result)
        assert appended.error is not None
        assert appended.error.code is ErrorCode.REQUEST_TIMED_OUT
        assert broker.partition.log.log_end_offset == 1

    run(test)
