"""The controller: the only writer of the cluster's metadata, and publisher of the image.

Each change is an event of one queue (`EventQueue`) and takes the same steps:

1. A *plan* decides on the newest image and returns records (`odradek.controller.plans`).
2. A `MetadataDelta` replays the records, which gives the next image.
3. The *commit* writes the nodes that follow (`store_operations`) in one fenced write
   (`MetadataWriter`).
4. The image is *published*: subscribers are called with the delta, the old and the new image.

Only then does the call return. When a client receives the response, the change is in the store, a
new topic can be used, and a deleted one no longer exists.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from odradek.config.broker import BrokerConfig
from odradek.controller.event_queue import EventQueue, log_failure
from odradek.controller.loading import load, prepare
from odradek.controller.metadata_writer import MetadataWriter
from odradek.controller.plan import end_stage, planning_single_broker
from odradek.controller.store_operations import store_operations
from odradek.environment.clock import Clock, SystemClock
from odradek.environment.randomness import SystemRandomness
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata import znodes
from odradek.metadata.delta import MetadataDelta, MetadataProvenance, whole_delta
from odradek.metadata.features import FeatureUpdate
from odradek.metadata.image import BrokerRegistration, MetadataImage
from odradek.metadata.publisher import MetadataPublisher, Subscriber
from odradek.metadata.quotas import Entity, QuotaAlteration
from odradek.metadata.records import MetadataRecord
from odradek.metadata.store.interface import Delete, SingleNodeStore, StoreFailure
from odradek.slicing import in_slices

if TYPE_CHECKING:
    from odradek.controller import plans
    from odradek.controller.plan import Plan
    from odradek.metadata.config_changes import ConfigChange
    from odradek.metadata.kafka_import.takeover import Takeover
    from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
else:

    class _ImportedWithFirstUse:
        """A module that is not imported before the first use of one of its functions."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, function):
            return getattr(import_module(self._name), function)

    # Only requests need the plans, and their import would delay the start.
    plans = _ImportedWithFirstUse("odradek.controller.plans")

logger = logging.getLogger(__name__)

R = TypeVar("R")
FindTakeover = Callable[[], Awaitable["Takeover | None"]]


class Controller:
    """The controller of a cluster with one broker, on the event loop."""

    def __init__(
        self,
        store: SingleNodeStore,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        new_uuid: Callable[[], Uuid] | None = None,
    ) -> None:
        self._publisher = MetadataPublisher(config, MetadataImage())
        self._store = store
        self._config = config
        self._clock = clock or SystemClock()
        self._new_uuid = new_uuid or SystemRandomness().uuid
        self._events = EventQueue()
        self._writer: MetadataWriter | None = None

    @property
    def image(self) -> MetadataImage:
        """The image that was published last."""
        return self._publisher.image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(delta, old_image, new_image)` at every change (`MetadataPublisher`).

        The first change is the load of the store's contents.
        """
        self._publisher.subscribe(subscriber)

    @property
    def epoch(self) -> int:
        """The controller epoch: the number of starts on this store, from 1."""
        return self.image.controller_epoch

    def applied_offsets(self) -> dict[BrokerId, int]:
        """Return the metadata offset that each other broker has reported: there is none."""
        return {}

    async def change_count(self) -> int:
        """Return the number of changes of the metadata store, over all runs.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when it cannot be read.
        """
        try:
            return await self._store.change_count()
        except StoreFailure as error:
            logger.error("cannot read the metadata store: %s. The request is refused", error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "The metadata cannot be read. The log of the broker has the cause.",
            ) from error

    # --- start and stop ---

    async def start(
        self,
        broker: BrokerRegistration,
        cluster_id: str | None = None,
        find_takeover: FindTakeover | None = None,
    ) -> None:
        """Load the cluster from the store, register this broker, and publish the first image.

        Args:
            broker: This broker.
            cluster_id: The cluster id of the log directories, if they are older than the store.
            find_takeover: Finds the metadata of a Kafka broker to import. All of it becomes the
                first contents of a new store, in one write.

        Raises:
            KafkaError: INCONSISTENT_CLUSTER_ID. The store belongs to another cluster.
        """
        await self._store.open()
        try:
            image = await self._started(broker, cluster_id, find_takeover)
        except BaseException:
            await self._store.close()
            raise
        await self._publisher.publish(whole_delta(image), image)

    async def _started(
        self,
        broker: BrokerRegistration,
        cluster_id: str | None,
        find_takeover: FindTakeover | None,
    ) -> MetadataImage:
        """Return the image with this broker as the controller and the leader of its partitions."""
        takeover = None if find_takeover is None else await self._takeover(find_takeover)
        imported = None if takeover is None else takeover.operations
        kept = await prepare(self._store, cluster_id, self._new_uuid, imported)
        epoch, epoch_version = await self._next_controller_epoch()
        loaded = await load(self._store, kept, broker.id)
        self._writer = MetadataWriter(self._store, epoch, epoch_version, loaded.position_version)
        registered = await self._register(broker)
        plan = await in_slices(planning_single_broker(loaded.image, registered))
        delta, image = await self._replayed(loaded.image, plan.records, registered)
        failure = await self._write(delta, image)
        if failure is not None:
            raise failure
        return image

    async def _takeover(self, find_takeover: FindTakeover) -> Takeover | None:
        """Return the metadata to import if the store is new: it has no cluster id."""
        (cluster_id,) = await self._store.get_many([znodes.CLUSTER_ID])
        return await find_takeover() if cluster_id is None else None

    async def _next_controller_epoch(self) -> tuple[int, int]:
        """Raise the epoch at every start, to distinguish this run's writes from earlier ones.

        Return the epoch and the version of its node.
        """
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = int(node.data) + 1
        stat = await self._store.set(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version)
        return epoch, stat.version

    async def _register(self, broker: BrokerRegistration) -> BrokerRegistration:
        """Create the ephemeral node of this broker. Return the broker with its epoch.

        Earlier releases created nodes that are not ephemeral. This is the only broker of the store,
        so nodes that exist are left from runs that did not stop cleanly.
        """
        stale = await self._store.children(znodes.BROKER_IDS)
        if stale:
            await self._store.multi([Delete(f"{znodes.BROKER_IDS}/{name}") for name in stale])
        path = f"{znodes.BROKER_IDS}/{broker.id}"
        data = znodes.encode_broker(broker, self._clock.time_ms())
        created = await self._store.create(path, data, ephemeral=True)
        return replace(broker, epoch=created.stat.czxid)

    async def stop(self) -> None:
        """Wait for the changes in the queue, and close the store, which unregisters the broker."""
        await self._events.close()
        await self._store.close()

    # --- changes ---

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        """Create the valid topics in one write. The results are in the order of `topics`."""
        return await self._events.run(lambda: self._create_topics(topics, validate_only))

    async def delete_topics(self, ids: Sequence[Uuid]) -> list[KafkaError | None]:
        """Delete topics by id in one write. The results are in the order of `ids`."""
        return await self._events.run(lambda: self._delete_topics(ids))

    def deletions_finished(self, topic_ids: Collection[Uuid]) -> None:
        """Record soon that this broker has no logs of these deleted topics, and none can reappear.

        A record that cannot be written does no harm. The next start finishes its deletion again.
        """
        broker = BrokerId(self._config.node_id)

        async def finish() -> None:
            await self._commit(plans.plan_deletions_finished(self.image, broker, topic_ids))

        if self._events.is_open:
            self._events.append(finish).add_done_callback(log_failure)

    async def unregister_broker(self, broker: BrokerId) -> None:
        """Refuse to unregister a broker, because there is only this one.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED. INVALID_REQUEST, it is this broker.
        """
        if broker == self._config.node_id:
            text = f"Broker {broker} is the only one. It cannot be unregistered."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        text = f"Broker ID {broker} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions to topics in one write. The results are in the order of `requests`."""
        return await self._events.run(lambda: self._create_partitions(requests, validate_only))

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Alter configs of any resources in one write. The results are in order of `changes`."""
        return await self._events.run(lambda: self._alter_configs(changes, validate_only))

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> dict[Entity, KafkaError | None]:
        """Alter client quotas in one write. Return the error or None for each entity."""
        return await self._events.run(lambda: self._alter_client_quotas(alterations, validate_only))

    async def update_features(
        self,
        changes: Mapping[str, int] | Sequence[FeatureUpdate],
        *,
        validate_only: bool = False,
    ) -> KafkaError | None:
        """Finalize levels of features in one write. Level 0 means "off".

        Args:
            changes: A mapping sets levels in either direction. Updates have the direction that
                they allow.
            validate_only: Check the changes without making them.

        Returns:
            The error, or None.
        """
        return await self._events.run(lambda: self._update_features(changes, validate_only))

    async def allocate_producer_ids(self, broker: BrokerId | None = None) -> range:
        """Return the next block of producer ids, which this cluster has never allocated before.

        `broker` is the broker that gets the block. None is this one.
        """
        receiver = BrokerId(self._config.node_id) if broker is None else broker
        return await self._events.run(lambda: self._allocate_producer_ids(receiver))

    async def _create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> list[CreatedTopic | KafkaError]:
        planning = plans.planning_topics(self.image, self._config, topics, self._new_uuid)
        plan = await in_slices(planning)
        failure = await self._commit(plan, validate_only)
        if failure is None:
            return plan.result
        return [each if isinstance(each, KafkaError) else failure for each in plan.result]

    async def _delete_topics(self, ids: Sequence[Uuid]) -> list[KafkaError | None]:
        plan = await in_slices(plans.planning_topic_deletions(self.image, ids))
        failure = await self._commit(plan)
        return [error or failure for error in plan.result]

    async def _create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool
    ) -> list[KafkaError | None]:
        plan = await in_slices(plans.planning_partitions(self.image, requests))
        failure = await self._commit(plan, validate_only)
        return [error or failure for error in plan.result]

    async def _alter_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool
    ) -> list[KafkaError | None]:
        planning = plans.planning_config_changes(self.image, self._config, changes)
        plan = await in_slices(planning)
        failure = await self._commit(plan, validate_only)
        return [error or failure for error in plan.result]

    async def _alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> dict[Entity, KafkaError | None]:
        plan = await in_slices(plans.planning_quotas(self.image, alterations))
        failure = await self._commit(plan, validate_only)
        return {entity: error or failure for entity, error in plan.result.items()}

    async def _update_features(
        self, changes: Mapping[str, int] | Sequence[FeatureUpdate], validate_only: bool
    ) -> KafkaError | None:
        plan = plans.plan_features(self.image, self._config, changes)
        return await self._commit(plan, validate_only) or plan.result

    async def _allocate_producer_ids(self, broker: BrokerId) -> range:
        plan = plans.plan_producer_ids(self.image, broker)
        failure = await self._commit(plan)
        if failure is not None:
            raise failure
        return plan.result

    # --- commit and publication ---

    async def _commit(self, plan: Plan[R], validate_only: bool = False) -> KafkaError | None:
        """Write the records first, then publish, so a client never sees an unwritten change.

        Returns:
            The error if they cannot be written. Then nothing has changed.
        """
        if validate_only or not plan.records:
            return None
        delta, image = await self._replayed(self.image, plan.records)
        failure = await self._write(delta, image)
        if failure is None:
            await self._publisher.publish(delta, image)
        return failure

    async def _replayed(
        self,
        image: MetadataImage,
        records: Sequence[MetadataRecord],
        registered: BrokerRegistration | None = None,
    ) -> tuple[MetadataDelta, MetadataImage]:
        """Return the changes, and the image after them at the next metadata offset.

        A registration needs no record, whose class would delay the start.
        """
        await end_stage(len(records))
        delta = MetadataDelta(image)
        if registered is not None:
            delta.register(registered)
        await in_slices(delta.replaying(records))
        provenance = MetadataProvenance(
            BrokerId(self._config.node_id), self._running.epoch, image.offset + 1
        )
        return delta, await in_slices(delta.applying(provenance))

    async def _write(self, delta: MetadataDelta, image: MetadataImage) -> KafkaError | None:
        await end_stage(len(delta.records))
        operations = await in_slices(store_operations(delta, image, image.controller_epoch))
        await end_stage(len(operations))
        return await self._running.write(operations, image.offset)

    @property
    def _running(self) -> MetadataWriter:
        assert self._writer is not None, "the controller has not started"
        return self._writer
