"""The fetchers of all partitions that this broker follows, one fetcher for each leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.config.definition import invalid_value
from odradek.replication.catch_up_pacer import CatchUpPacer
from odradek.replication.fetch_plan import FetcherSettings
from odradek.replication.fetcher_parts import FetcherParts
from odradek.replication.followed_replica import FollowedReplica
from odradek.replication.follower_truncations import FollowerTruncations
from odradek.replication.replica_fetcher import ReplicaFetcher
from odradek.slicing import begin, in_slices

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Sequence
    from concurrent.futures import Executor

    from odradek.config.broker import BrokerConfig
    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timers
    from odradek.errors import KafkaError
    from odradek.ids import BrokerId, TopicPartition
    from odradek.log.unified_log import UnifiedLog
    from odradek.replication.fetcher_parts import LeaderChannel
    from odradek.replication.partition import Partition
    from odradek.replication.replication_parts import FollowedPartition
    from odradek.replication.replication_state import Brokers


def fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    """Return the settings from Kafka's configs.

    Raises:
        KafkaError: INVALID_CONFIG. A wait exceeds a limit, or has none.
    """
    settings = FetcherSettings(
        config.get_int("replica.fetch.min.bytes"),
        config.get_int("replica.fetch.wait.max.ms"),
        config.get_int("replica.fetch.max.bytes"),
        config.get_int("replica.fetch.response.max.bytes"),
        config.get_int("replica.fetch.backoff.ms"),
        config.get_int("replica.socket.timeout.ms"),
    )
    key, wait_ms = "replica.fetch.wait.max.ms", settings.wait_max_ms
    if wait_ms > settings.timeout_ms:
        raise invalid_value(key, wait_ms, "it must not exceed replica.socket.timeout.ms")
    if wait_ms > config.get_int("replica.lag.time.max.ms"):
        raise invalid_value(key, wait_ms, "it must not exceed replica.lag.time.max.ms")
    return settings


class FetcherManager:
    """The owner of the fetchers (`Fetchers`). Used on the event loop only.

    Args:
        broker_id: The id of this broker.
        broker_epoch: Returns the epoch of its registration.
        brokers: Returns the registered brokers of the newest image.
        listener: The name of the inter-broker listener.
        connect: Returns a channel to an address. The last argument is a name for its purpose.
        clock: The clock for backoffs and rolls.
        timers: Timers for backoffs.
        executor: Runs truncations and flushes.
        loop: The event loop.
        settings: The configs of fetches.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        broker_epoch: Callable[[], int],
        brokers: Callable[[], Brokers],
        listener: str,
        connect: Callable[[str, int, str], LeaderChannel],
        clock: Clock,
        timers: Timers,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        settings: FetcherSettings,
    ) -> None:
        self._brokers = brokers
        self._listener = listener
        self._loop = loop
        self._replicas: dict[TopicPartition, FollowedReplica] = {}
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        self._when_truncated: dict[UnifiedLog, Callable[[], None]] = {}
        self._truncations = FollowerTruncations(
            executor, loop, timers, settings.backoff_ms / 1000, self._truncated
        )
        self._parts = FetcherParts(
            broker_id,
            broker_epoch,
            self._endpoint,
            connect,
            clock,
            timers,
            executor,
            loop,
            settings,
            self._truncations,
            self._storage_failed,
            CatchUpPacer(),
        )

    def follow(self, followed: Sequence[FollowedPartition]) -> None:
        """Fetch these partitions. An entry replaces an earlier one of the same partition."""
        changed: dict[ReplicaFetcher, None] = {}
        for partition, leader, leader_epoch in followed:
            self._drop(partition.topic_partition)
            replica = FollowedReplica(partition, leader, leader_epoch)
            fetcher = self._fetchers.get(leader)
            if fetcher is None:
                fetcher = self._fetchers[leader] = ReplicaFetcher(leader, self._parts)
            self._replicas[partition.topic_partition] = replica
            fetcher.add(replica)
            changed[fetcher] = None
        self._stop_idle()
        for fetcher in changed:
            fetcher.fetch()

    def unfollow(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions no longer. Responses in flight change nothing."""
        for each in topic_partitions:
            self._drop(each)
        self._stop_idle()

    async def stop(self) -> None:
        """End all fetches. Wait shortly for running truncations, but not for running flushes.

        No response changes a replica from now on, although they are removed in time slices.
        """
        fetchers, self._fetchers = self._fetchers, {}
        self._replicas.clear()
        for fetcher in fetchers.values():
            fetcher.stop()
        for fetcher in fetchers.values():
            await in_slices(fetcher.removing())
        await self._truncations.stop()

    def when_truncated(self, log: UnifiedLog, change: Callable[[], None]) -> None:
        """Call `change` when the truncation of `log` has ended. It replaces an earlier one.

        It is not called after a truncation that has failed.
        """
        self._when_truncated[log] = change

    def _drop(self, topic_partition: TopicPartition) -> None:
        replica = self._replicas.pop(topic_partition, None)
        if replica is not None:
            self._fetchers[replica.leader].remove(replica)

    def _stop_idle(self) -> None:
        """End the fetchers without partitions. Their last fetches are freed in time slices."""
        for leader, fetcher in tuple(self._fetchers.items()):
            if not fetcher.replicas:
                del self._fetchers[leader]
                fetcher.stop()
                begin(fetcher.removing(), "the end of a fetcher")

    def _endpoint(self, broker: BrokerId) -> tuple[str, int] | None:
        """Return the address of the inter-broker listener of a registered broker."""
        registration = self._brokers().get(broker)
        if registration is None:
            return None
        for endpoint in registration.listeners:
            if endpoint.listener == self._listener:
                return endpoint.host, endpoint.port
        return None

    def _truncated(self, partition: Partition, error: KafkaError | None) -> None:
        """Continue after a truncation, which may have begun in an earlier leader epoch.

        The replica may have been removed and added again since. It then has another `Partition`
        with the same log.
        """
        log, change = partition.log, self._when_truncated.pop(partition.log, None)
        if error is not None:
            partition.storage_failed()
            replica = self._replica_of(partition)
            if replica is not None:
                self._storage_failed(replica)
                self._stop_idle()
            return
        if change is not None and not log.is_truncating:
            change()
        replica = self._replica_of(partition)
        if replica is not None:
            self._fetchers[replica.leader].truncated(replica)

    def _replica_of(self, partition: Partition) -> FollowedReplica | None:
        """Return the replica with the log of `partition`, but no other one of the same name."""
        replica = self._replicas.get(partition.topic_partition)
        return replica if replica is not None and replica.log is partition.log else None

    def _storage_failed(self, replica: FollowedReplica) -> None:
        """Stop a replica whose log failed.

        Its fetcher may still process a response. A fetcher without replicas ends after that.
        """
        partition = replica.partition
        self._drop(partition.topic_partition)
        partition.storage_failed()
        self._loop.call_soon(self._stop_idle)
