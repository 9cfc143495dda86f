"""A broker of a cluster that leads the partitions of one topic, with followers 2 and 3."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.ids import BrokerId, TopicName
from odradek.log.directories.log_manager import LogManager
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.offloading import WorkRunner
from odradek.records.record import Record, build_batch
from odradek.replication.delayed_fetch import FetchParams
from odradek.replication.fetch_data import FetchIsolation, FetchPartitionData
from odradek.replication.follower_news import FollowerNews
from odradek.replication.replica_manager import ReplicaManager
from odradek.results import Result
from tests.helpers.led_partitions import led
from tests.replication.builders import apply
from tests.replication.cluster_fakes import ALL, EPOCH, LEADER, TOPIC_ID, A, Cluster, Target

Test = Callable[["Broker"], Awaitable[None]]


class Broker:
    """Broker 1 of a cluster, with a topic whose partitions it leads in epoch 5."""

    def __init__(
        self,
        logs: LogManager,
        executor: Executor,
        partitions: int,
        config: LogConfig = LogConfig(),  # noqa: B008
    ) -> None:
        self.cluster = Cluster()
        self.executor = executor
        self.manager = ReplicaManager(
            LEADER,
            logs,
            self.cluster.clock,
            LoopTimers(),
            executor,
            lambda _: config,
            asyncio.get_running_loop(),
            WorkRunner(executor, 1, asyncio.Lock()),
            replication=self.cluster.parts,
        )
        self.image = MetadataImage(offset=1)
        images = [replace(led(5, ALL, partition_epoch=1), partition=at) for at in range(partitions)]
        self.set_topic(TopicImage(TopicName("t"), TOPIC_ID, images))
        self.targets = [Target(0, 5, partition=at) for at in range(partitions)]

    def set_topic(self, topic: TopicImage) -> None:
        new = self.image.with_topics({topic.name: topic}, {})
        apply(self.manager, self.image, new)
        self.image = new

    def elect(self, leader_epoch: int, leader: BrokerId = LEADER) -> None:
        """Begin a leader epoch of all partitions, with this broker or another one as leader."""
        topic = self.image.topics_by_id[TOPIC_ID]
        images = [
            replace(
                each,
                leader=leader,
                leader_epoch=leader_epoch,
                partition_epoch=each.partition_epoch + 1,
            )
            for each in topic.partitions
        ]
        self.set_topic(TopicImage(topic.name, TOPIC_ID, images))

    def append(self, partition: int = 0) -> None:
        records = memoryview(build_batch([Record(None, b"x", 0)]))
        self.manager.partition("t", partition).append(records, 1, 0)

    def news(self, replica: object = A, epoch: int = EPOCH) -> FollowerNews:
        """Return the news of a session with all partitions, none of which was visited."""
        news = FollowerNews(replica, epoch)  # type: ignore[arg-type]
        for target in self.targets:
            news.visit(target)
        return news

    def fetch(
        self, news: FollowerNews, wait_ms: int = 0
    ) -> Result[list[tuple[Target, FetchPartitionData]]]:
        params = FetchParams(FetchIsolation.LOG_END, news.replica_id, 1, 1 << 20, wait_ms)
        return self.manager.fetch_for_follower(params, news, Result)  # type: ignore[return-value]

    def visited(self, news: FollowerNews) -> list[int]:
        return [target.partition for target, _ in self.fetch(news).get()]

    def follow(self, news: FollowerNews, partition: int = 0) -> None:
        """Fetch at the log end, as a follower that has appended everything."""
        target = self.targets[partition]
        target.fetch_offset = self.manager.partition("t", partition).log.log_end_offset
        news.visit(target)
        self.fetch(news)


def run_leader(
    tmp_path: Path,
    test: Test,
    partitions: int = 3,
    *,
    executor: Executor | None = None,
    config: LogConfig = LogConfig(),  # noqa: B008
) -> None:
    """Run a test with a broker. `executor` runs flushes and reads from the disk."""

    async def main(executor: Executor) -> None:
        logs = LogManager([str(tmp_path)], config, ManualClock())
        logs.load("cluster", 1)
        try:
            broker = Broker(logs, executor, partitions, config)
            await test(broker)
            await broker.manager.stop()
        finally:
            logs.close(clean=False)

    with ThreadPoolExecutor(1) as threads:
        asyncio.run(main(executor or threads))
