"""The two coordinators of a broker, made when the first of them is asked for something.

Most brokers that a test starts never see a group or a transaction, and their machines are a third
of what there is to import: a broker answers its first client that much sooner. One whose internal
topic has a log is made at the start, since its log has to be loaded before clients ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.result_tasks import wait

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from odradek.broker.transactions.producer_ids import ProducerIdAllocator
    from odradek.config.broker import BrokerConfig
    from odradek.controller.controller import Controller
    from odradek.coordinator.group.group_coordinator import GroupCoordinator
    from odradek.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from odradek.coordinator.transaction.transaction_marker import TransactionMarker
    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timers
    from odradek.metadata.image import MetadataImage
    from odradek.replication.replica_manager import ReplicaManager


class Coordinators:
    """Owned by the event loop. Between `start` and `stop` what is made serves at once; before and
    after, it answers that there is no coordinator.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        controller: Controller,
        replica_manager: ReplicaManager,
        executor: Executor,
        producer_ids: ProducerIdAllocator,
    ) -> None:
        self._config = config
        self._clock = clock
        self._timers = timers
        self._controller = controller
        self._replica_manager = replica_manager
        self._executor = executor
        self._producer_ids = producer_ids
        self._active = False
        self.made_groups: GroupCoordinator | None = None
        self.made_transactions: TransactionCoordinator | None = None

    async def start(self, wait_s: float) -> None:
        """Serves; waits at most `wait_s` for each of the logs that there are."""
        self._active = True
        topics = self._controller.image.topics_by_name
        if CONSUMER_OFFSETS in topics:
            await self.groups.runtime.loads_done(wait_s)
        if TRANSACTION_STATE in topics:
            await self.transactions.runtime.loads_done(wait_s)

    def stop(self) -> None:
        """Answers whoever waits, and serves nothing more."""
        self._active = False
        if self.made_transactions is not None:
            self.made_transactions.stop()
        if self.made_groups is not None:
            self.made_groups.stop()

    def on_metadata(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Passes the metadata on; to be called when the logs of `new` exist."""
        if self.made_groups is not None:
            self.made_groups.on_metadata(old, new)
        if self.made_transactions is not None:
            self.made_transactions.on_metadata(old, new)

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
        from uuid import uuid4

        from odradek.coordinator.group.group_coordinator import GroupCoordinator

        return GroupCoordinator(
            config=self._config,
            clock=self._clock,
            timers=self._timers,
            image=lambda: self._controller.image,
            log_of=self._replica_manager.log,
            append=self._replica_manager.append_internal,
            executor=self._executor,
            new_id=lambda: str(uuid4()),
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
            image=lambda: self._controller.image,
            log_of=self._replica_manager.log,
            append=self._replica_manager.append_internal,
            executor=self._executor,
            producer_ids=self._producer_ids,
            write_markers=write,
        )
