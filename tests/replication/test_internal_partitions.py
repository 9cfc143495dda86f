"""The calls of coordinators: leadership of internal partitions, appends in one leader epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.directories.log_manager import LogManager
from odradek.log.truncation import LogTruncations
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.offloading import WorkRunner
from odradek.records.record import Record, build_batch
from odradek.replication.replica_manager import ReplicaManager
from odradek.slicing import run_to_completion
from tests.helpers.led_partitions import led
from tests.replication.builders import apply
from tests.replication.cluster_fakes import ALL, LEADER, TOPIC_ID, A, B, Cluster, refused

TP = TopicPartition(CONSUMER_OFFSETS, 0)


class Broker:
    """Broker 1, the reports of its leadership, and the image of an internal topic."""

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
        self.reports: list[tuple[TopicPartition, int | None]] = []
        self.manager.on_leadership(
            lambda each: self.reports.append((each, self.manager.led_epoch(each)))
        )

    def set(self, *partitions: PartitionImage, name: Any = CONSUMER_OFFSETS) -> None:
        topics = {name: TopicImage(name, TOPIC_ID, list(partitions))} if partitions else {}
        image = MetadataImage(offset=1).with_topics(topics, {})
        apply(self.manager, self.image, image)
        self.image = image

    def taken(self) -> list[int | None]:
        """Return the epochs that were reported since the last call."""
        reports, self.reports = self.reports, []
        assert {each for each, _ in reports} <= {TP}
        return [epoch for _, epoch in reports]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Callable[[Broker], Any]], None]]:
    executor = ThreadPoolExecutor(1)

    def run(test: Callable[[Broker], Any]) -> None:
        async def main() -> None:
            logs = LogManager([str(tmp_path)], LogConfig(), ManualClock())
            logs.load("cluster", 1)
            try:
                test(Broker(logs, executor))
            finally:
                logs.close(clean=False)

        asyncio.run(main())

    yield run
    executor.shutdown()


Run = Callable[[Callable[[Broker], Any]], None]


def of(leader: int, leader_epoch: int, partition_epoch: int, **changes: Any) -> PartitionImage:
    image = led(leader_epoch, ALL, leader=leader, partition_epoch=partition_epoch)
    return replace(image, **changes)


def test_elections_and_losses_are_reported(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        assert broker.taken() == [3]
        broker.set(of(A, 4, 2))
        assert broker.taken() == [None]
        broker.set(of(B, 5, 3))
        broker.taken()
        broker.set(of(LEADER, 6, 4))
        assert broker.taken() == [6]
        broker.set(of(LEADER, 8, 5))
        assert broker.taken() == [8], "an election between was missed"

    run(test)


@pytest.mark.parametrize("end", ["deleted", "another replica", "failed directory"])
def test_end_of_a_partition_is_reported(run: Run, end: str) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        broker.taken()
        if end == "deleted":
            broker.set()
        elif end == "another replica":
            broker.set(of(A, 4, 2, replicas=(A, B), isr=(A, B)))
        else:
            log_dir = broker.manager.partition(*TP).log.log_dir
            run_to_completion(broker.manager.failing_log_dir(log_dir))
        assert broker.taken() == [None]

    run(test)


def test_leadership_that_waits_for_a_truncation_is_reported_when_it_begins(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker, 3)
        append(broker, 3)
        broker.set(of(A, 4, 2))
        broker.taken()
        partition, truncations = broker.manager.partition(*TP), LogTruncations()
        truncations.truncate_to(partition.log, 1)
        broker.set(of(LEADER, 5, 3))
        assert broker.taken() == []
        truncations.execute()
        broker.cluster.fetchers.truncation_ended(partition.log)
        assert broker.taken() == [5]

    run(test)


def test_other_topics_are_not_reported(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1), name="t")
        assert broker.taken() == []

    run(test)


def append(broker: Broker, leader_epoch: int) -> None:
    records = build_batch([Record(None, b"x", 0)])
    broker.manager.append_internal(TP, records, leader_epoch=leader_epoch)


def test_append_of_another_leader_epoch_is_refused(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker, 3)
        broker.set(of(LEADER, 5, 2))
        for epoch in (3, 4, 6):
            assert refused(partial(append, broker, epoch)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            with pytest.raises(KafkaError, match="leader epoch"):
                broker.manager.append_marker(TP, 7, 0, 0, True, leader_epoch=epoch)
        append(broker, 5)
        assert broker.manager.log(TP).log_end_offset == 2

    run(test)


def test_wait_ends_when_the_high_watermark_reaches_the_offset(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker, 3)
        append(broker, 3)
        partition = broker.manager.partition(*TP)
        reached: list[int] = []
        broker.manager.await_committed(TP, 2, reached.append)
        partition.advance_high_watermark(1)
        assert reached == []
        partition.advance_high_watermark(2)
        assert reached == [2]
        broker.manager.await_committed(TP, 1, reached.append)
        assert reached == [2, 2], "at once"

    run(test)


def test_wait_ends_without_a_call_when_the_leadership_ends(run: Run) -> None:
    def test(broker: Broker) -> None:
        broker.set(of(LEADER, 3, 1))
        append(broker, 3)
        reached: list[int] = []
        broker.manager.await_committed(TP, 1, reached.append)
        broker.set(of(A, 4, 2))
        broker.manager.partition(*TP).advance_high_watermark(1)
        assert reached == []
        wait = partial(broker.manager.await_committed, TP, 1, reached.append)
        assert refused(wait) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)
