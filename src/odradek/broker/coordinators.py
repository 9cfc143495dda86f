"""The group coordinator and the transaction coordinator of a broker, each created on first use.

Most brokers in tests never have a group or a transaction. The modules of the coordinators are a
third of all imports, so a broker without them serves its first client sooner. If the internal topic
of a coordinator exists, the coordinator is created when the broker starts, because its log must be
loaded before clients send requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.environment.randomness import uuid_to_hex
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.result_tasks import wait

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from odradek.broker.transactions.producer_ids import ProducerIdAllocator
    from odradek.config.broker import BrokerConfig
    from odradek.coordinator.group.group_coordinator import GroupCoordinator
    from odradek.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from odradek.coordinator.transaction.transaction_marker import TransactionMarker
    from odradek.environment.clock import Clock
    from odradek.environment.randomness import Randomness
    from odradek.environment.timers import Timers
    from odradek.ids import TopicPartition
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.replication.replica_manager import ReplicaManager


class Coordinators:
    """The coordinators of one broker. Owned by the event loop.

    A coordinator that is created between `start` and `stop` is active immediately. Before and
    after that, it responds with COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        image: Callable[[], MetadataImage],
        replica_manager: ReplicaManager,
        executor: Executor,
        producer_ids: ProducerIdAllocator,
        randomness: Randomness,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._image = image
        self._replica_manager = replica_manager
        self._executor = executor
        self._producer_ids = producer_ids
        self._randomness = randomness
        self._active = False
        self.made_groups: GroupCoordinator | None = None
        self.made_transactions: TransactionCoordinator | None = None

    async def start(self, wait_s: float) -> None:
        """Activate the coordinators. Wait at most `wait_s` seconds for each existing log."""
        self._active = True
        topics = self._image().topics_by_name
        if CONSUMER_OFFSETS in topics:
            await self.groups.runtime.loads_done(wait_s)
        if TRANSACTION_STATE in topics:
            await self.transactions.runtime.loads_done(wait_s)

    def stop(self) -> None:
        """Complete all delayed operations and stop the coordinators."""
        self._active = False
        if self.made_transactions is not None:
            self.made_transactions.stop()
        if self.made_groups is not None:
            self.made_groups.stop()

    def on_metadata(self, delta: MetadataDelta, old: MetadataImage, new: MetadataImage) -> None:
        """Pass the metadata on. Call this after the logs of `new` have been created."""
        if self.made_groups is not None:
            self.made_groups.on_metadata(delta, old, new)
        if self.made_transactions is not None:
            self.made_transactions.on_metadata(delta, old, new)

    def reload(self, topic_partition: TopicPartition) -> None:
        """Drop the shard of a partition, and load it again if this broker may serve it now."""
        topic, partition = topic_partition
        if topic == CONSUMER_OFFSETS and self.made_groups is not None:
            self.made_groups.runtime.reload(partition)
        elif topic == TRANSACTION_STATE and self.made_transactions is not None:
            self.made_transactions.runtime.reload(partition)

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator."""
        if self.made_groups is None:
            self.made_groups = self._make_groups()
            if self._active:
                self.made_groups.start()
        return self.made_groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator."""
        if self.made_transactions is None:
            self.made_transactions = self._make_transactions()
            if self._active:
                self.made_transactions.start()
        return self.made_transactions

    def _make_groups(self) -> GroupCoordinator:
        from odradek.coordinator.group.group_coordinator import GroupCoordinator

        return GroupCoordinator(
            config=self._config,
            clock=self._clock,
            timers=self._timers,
            image=self._image,
            log_of=self._replica_manager.log,
            append=self._replica_manager.append_internal,
            executor=self._executor,
            new_id=lambda: uuid_to_hex(self._randomness.uuid()),
            new_uuid=self._randomness.uuid,
            append_marker=self._replica_manager.append_marker,
        )

    def _make_transactions(self) -> TransactionCoordinator:
        from odradek.broker.transactions.markers import Results, write_markers
        from odradek.coordinator.transaction.transaction_coordinator import TransactionCoordinator

        async def write(markers: Sequence[TransactionMarker]) -> Results:
            return await wait(write_markers(self._replica_manager, lambda: self.groups, markers))

        return TransactionCoordinator(
            config=self._config,
            clock=self._clock,
            timers=self._timers,
            image=self._image,
            log_of=self._replica_manager.log,
            append=self._replica_manager.append_internal,
            executor=self._executor,
            producer_ids=self._producer_ids,
            write_markers=write,
        )
