"""The group coordinator and the transaction coordinator of a broker, each created when needed.

Most brokers in tests never have a group or a transaction. The modules of the coordinators are a
third of all imports, so a broker without them serves its first client sooner. A coordinator is
created in three cases:

- The broker starts, and leads a partition of the internal topic. The log is loaded before clients
  send requests.
- The broker is elected for a partition later. A thread imports the modules first. The log is loaded
  without a request, because the timers of groups and the prepared transactions wait in it.
- A request needs the coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.environment.randomness import uuid_to_hex
from odradek.ids import TopicName, TopicPartition
from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.result_tasks import wait
from odradek.slicing import begin

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from odradek.broker.transactions.producer_ids import ProducerIdAllocator
    from odradek.broker.transactions.transaction_peers import TransactionPeers
    from odradek.config.broker import BrokerConfig
    from odradek.coordinator.group.group_coordinator import GroupCoordinator
    from odradek.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from odradek.coordinator.transaction.transaction_marker import MarkerCodes, TransactionMarker
    from odradek.environment.clock import Clock
    from odradek.environment.randomness import Randomness
    from odradek.environment.timers import Timer, Timers
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.replication.replica_manager import ReplicaManager
    from odradek.results import Result

logger = logging.getLogger(__name__)

IMPORT_RETRY_S = 1.0
"""Time between two attempts to import the modules of a coordinator."""


class Coordinators:
    """The coordinators of one broker. Owned by the event loop.

    A coordinator that is created between `start` and `stop` is active immediately. Before and
    after that, it responds with COORDINATOR_NOT_AVAILABLE. `peers` writes the markers of partitions
    that other brokers lead. It is None in a single broker, which leads all of them.
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
        peers: TransactionPeers | None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._image = image
        self._replica_manager = replica_manager
        self._executor = executor
        self._producer_ids = producer_ids
        self._randomness = randomness
        self._peers = peers
        self._active = False
        self.made_groups: GroupCoordinator | None = None
        self.made_transactions: TransactionCoordinator | None = None
        # The topics whose coordinators are created when a thread has imported their modules.
        self._imported: set[TopicName] = set()
        self._retries: dict[TopicName, Timer] = {}
        replica_manager.on_leadership(self.leadership_changed)

    async def start(self, wait_s: float) -> None:
        """Activate the coordinators. Wait at most `wait_s` seconds for the logs of each one."""
        self._active = True
        if self._leads(CONSUMER_OFFSETS):
            await self.groups.runtime.loads_done(wait_s)
        if self._leads(TRANSACTION_STATE):
            await self.transactions.runtime.loads_done(wait_s)

    def _leads(self, topic: TopicName) -> bool:
        """Return whether this broker leads a partition of the topic."""
        led_epoch = self._replica_manager.led_epoch
        count = self._image().partition_count(topic)
        return any(led_epoch(TopicPartition(topic, each)) is not None for each in range(count))

    def stop(self) -> None:
        """Complete all delayed operations and stop the coordinators."""
        self._active = False
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        if self.made_transactions is not None:
            self.made_transactions.stop()
        if self.made_groups is not None:
            self.made_groups.stop()

    def on_metadata(self, delta: MetadataDelta, _: MetadataImage, new: MetadataImage) -> None:
        """Pass the metadata on. Call this after the logs of `new` have been created."""
        if self.made_groups is not None:
            self.made_groups.on_metadata(delta, new)

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """Load or drop the shard of a partition that this broker begins or ends to lead.

        A coordinator that does not exist is created soon if this broker leads the partition.
        """
        topic, partition = TopicName(topic_partition.topic), topic_partition.partition
        made: GroupCoordinator | TransactionCoordinator | None
        if topic == CONSUMER_OFFSETS:
            made = self.made_groups
        elif topic == TRANSACTION_STATE:
            made = self.made_transactions
        else:
            return
        if not self._active:
            return
        if made is not None:
            made.leadership_changed(partition)
        elif self._replica_manager.led_epoch(topic_partition) is not None:
            self._make_soon(topic)

    def _make_soon(self, topic: TopicName) -> None:
        if topic not in self._imported:
            self._imported.add(topic)
            begin(self._making(topic), f"the creation of the coordinator of {topic}")

    def _make_again(self, topic: TopicName) -> None:
        """Create a coordinator after a failure, unless a request has created it."""
        del self._retries[topic]
        made = self.made_groups if topic == CONSUMER_OFFSETS else self.made_transactions
        if self._active and made is None and self._leads(topic):
            self._make_soon(topic)

    def _making(self, topic: TopicName) -> Generator[asyncio.Future[Any], None, None]:
        """Create a coordinator, after a thread has imported its modules."""
        from odradek.broker.requests.first_use import GROUPS, TRANSACTIONS, import_modules

        is_group = topic == CONSUMER_OFFSETS
        imported = partial(import_modules, *(GROUPS if is_group else TRANSACTIONS))
        importing = asyncio.get_running_loop().run_in_executor(self._executor, imported)
        yield importing
        self._imported.discard(topic)
        if not self._active or importing.cancelled():
            return
        error = importing.exception()
        if error is None:
            _ = self.groups if is_group else self.transactions
            return
        # For example, the process has no free descriptor. Prepared transactions wait in the log.
        logger.warning(
            "the coordinator of %s is not created: %s. The next attempt is in %g s",
            topic,
            error,
            IMPORT_RETRY_S,
        )
        if topic not in self._retries:
            retry = self._timers.call_later(IMPORT_RETRY_S, self._make_again, topic)
            self._retries[topic] = retry

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
            partitions=self._replica_manager,
            executor=self._executor,
            new_id=lambda: uuid_to_hex(self._randomness.uuid()),
            new_uuid=self._randomness.uuid,
        )

    def _make_transactions(self) -> TransactionCoordinator:
        from odradek.broker.transactions.markers import Results, write_markers
        from odradek.coordinator.transaction.transaction_coordinator import TransactionCoordinator

        def write_here(markers: Sequence[TransactionMarker]) -> Result[Results]:
            return write_markers(self._replica_manager, lambda: self.groups, markers)

        async def write(markers: Sequence[TransactionMarker]) -> MarkerCodes:
            return await wait(write_markers(self._replica_manager, lambda: self.groups, markers))

        async def write_in_cluster(markers: Sequence[TransactionMarker]) -> MarkerCodes:
            assert self._peers is not None, "a single broker leads all partitions"
            return await self._peers.markers.write(write_here, markers)

        return TransactionCoordinator(
            config=self._config,
            clock=self._clock,
            timers=self._timers,
            image=self._image,
            partitions=self._replica_manager,
            executor=self._executor,
            producer_ids=self._producer_ids,
            write_markers=write if self._peers is None else write_in_cluster,
        )
