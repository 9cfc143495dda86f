"""The controller: the only writer of topics, partitions and configs, and publisher of the image.

The controller decides on every change with the newest image (`odradek.controller.placement`,
`odradek.metadata.config_changes`). It writes the change to the metadata store in one `multi`, and
then publishes it: it calls the subscribers with the old and the new image on the event loop. Only
then does the call return. When a client receives the response, the change is in the store, a new
topic can be used, and a deleted one no longer exists.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from odradek.config.broker import BrokerConfig
from odradek.controller.placement import plan_partitions, plan_topics
from odradek.environment.clock import Clock, SystemClock
from odradek.environment.randomness import SystemRandomness
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid, uuid_to_string
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ResourceType, plan_config_change
from odradek.metadata.features import FeatureUpdate, check_update, default_levels, with_levels
from odradek.metadata.image import (
    NO_LEADER,
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicDeletion,
    TopicImage,
)
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.quota_nodes import CLIENTS, USERS, load_quotas, quota_operations
from odradek.metadata.quotas import Entity, QuotaAlteration, planning_alterations
from odradek.metadata.store.interface import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeExistsError,
    Operation,
    Set,
    SingleNodeStore,
    StoreFailure,
)
from odradek.metadata.topics import CreatedTopic, NewPartitions, NewTopic, check_change_count
from odradek.slicing import SliceCounter, in_slices

if TYPE_CHECKING:
    from odradek.metadata.kafka_import.takeover import Takeover

logger = logging.getLogger(__name__)

Subscriber = Callable[[MetadataImage, MetadataImage], Generator[None, None, None] | None]
Result = TypeVar("Result")
FindTakeover = Callable[[], Awaitable["Takeover | None"]]


class Controller:
    """The controller of a single-node cluster, on the event loop.

    `image` is the image published last. Changes are made one after the other. If a caller is
    cancelled, its change is still completed, so store and image never diverge.
    """

    def __init__(
        self,
        store: SingleNodeStore,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        new_uuid: Callable[[], Uuid] | None = None,
    ) -> None:
        self.image = MetadataImage()
        self._store = store
        self._config = config
        self._clock = clock or SystemClock()
        self._new_uuid = new_uuid or SystemRandomness().uuid
        self._subscribers: list[Subscriber] = []
        self._change_lock = asyncio.Lock()
        self._running: set[asyncio.Task[object]] = set()
        self._stopping = False
        self._epoch = 0
        self._epoch_version = 0

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old_image, new_image)` on the loop at every change.

        The first change is the load of the store's contents. Dynamic broker configs are in effect
        before the call. A subscriber with much work is a generator, which is run in time slices
        (`odradek.slicing`).
        """
        self._subscribers.append(subscriber)

    @property
    def epoch(self) -> int:
        """The controller epoch: the number of starts on this store, from 1."""
        return self._epoch

    async def change_count(self) -> int:
        """Return the number of changes of the metadata store, over all runs.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when it cannot be read.
        """
        try:
            return await self._store.change_count()
        except StoreFailure as error:
            logger.error("the metadata store failed: %s", error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "The metadata cannot be read."
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
            await self._begin(find_takeover)
            image = await self._load(broker, cluster_id)
        except BaseException:
            await self._store.close()
            raise
        await self._publish(image)

    async def _begin(self, find_takeover: FindTakeover | None) -> None:
        """Create the parent nodes, and import a takeover into a new store.

        The parents are created in one write, because each write waits for an fsync. The cluster's
        id is written together with the takeover, so a store that has one is not new.
        """
        parents = (*znodes.PERSISTENT_PATHS, USERS, CLIENTS)
        cluster_id, *found = await self._store.get_many([znodes.CLUSTER_ID, *parents])
        missing = [path for path, node in zip(parents, found, strict=True) if node is None]
        if missing:
            await self._store.multi([Create(path) for path in missing])
        if find_takeover is None or cluster_id is not None:
            return
        takeover = await find_takeover()
        if takeover is not None:
            await self._store.multi(takeover.operations())

    async def _load(self, broker: BrokerRegistration, cluster_id: str | None) -> MetadataImage:
        kept = await self._kept_cluster_id(cluster_id)
        self._epoch = await self._next_controller_epoch()
        await self._register(broker)
        topics = await self._load_topics(broker.id)
        return MetadataImage(
            cluster_id=kept,
            controller_id=broker.id,
            controller_epoch=self._epoch,
            brokers=PersistentMap({broker.id: broker}),
            topics_by_name=PersistentMap({topic.name: topic for topic in topics}),
            topics_by_id=PersistentMap({topic.topic_id: topic for topic in topics}),
            topic_configs=PersistentMap(await self._load_topic_configs()),
            broker_configs=PersistentMap(await self._load_broker_configs()),
            features=PersistentMap(await self._load_features()),
            group_configs=PersistentMap(await self._load_configs(znodes.GROUP_CONFIGS)),
            client_metrics=PersistentMap(await self._load_configs(znodes.CLIENT_METRICS)),
            client_quotas=PersistentMap(await load_quotas(self._store)),
            deletions=PersistentMap(await self._load_deletions(broker.id)),
            offset=self.image.offset + 1,
        )

    async def stop(self) -> None:
        """Wait for the changes in progress, unregister the broker, and close the store."""
        self._stopping = True
        if self._running:
            await asyncio.wait(self._running)
        for broker_id in self.image.brokers:
            await self._store.delete(f"{znodes.BROKER_IDS}/{broker_id}")
        await self._store.close()

    async def _ensure(self, path: str, data: bytes) -> None:
        try:
            await self._store.create(path, data)
        except NodeExistsError:
            return

    async def _kept_cluster_id(self, expected: str | None) -> str:
        fresh = znodes.encode({"version": "1", "id": expected or uuid_to_string(self._new_uuid())})
        await self._ensure(znodes.CLUSTER_ID, fresh)
        kept = str(znodes.decode((await self._store.get(znodes.CLUSTER_ID)).data)["id"])
        if expected is not None and kept != expected:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata store belongs to cluster {kept}, the log directories to {expected}",
            )
        return kept

    async def _next_controller_epoch(self) -> int:
        """Raise the epoch at every start, to distinguish this run's writes from earlier ones."""
        await self._ensure(znodes.CONTROLLER_EPOCH, b"0")
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        epoch = int(node.data) + 1
        data = str(epoch).encode()
        stat = await self._store.set(znodes.CONTROLLER_EPOCH, data, node.version)
        self._epoch_version = stat.version
        return epoch

    async def _register(self, broker: BrokerRegistration) -> None:
        """Replace registrations left by runs that did not stop cleanly. This is the only broker."""
        stale = await self._store.children(znodes.BROKER_IDS)
        operations: list[Operation] = [Delete(f"{znodes.BROKER_IDS}/{name}") for name in stale]
        data = znodes.encode_broker(broker, self._clock.time_ms())
        await self._store.multi([*operations, Create(f"{znodes.BROKER_IDS}/{broker.id}", data)])

    async def _load_topics(self, broker_id: BrokerId) -> list[TopicImage]:
        """Return every topic, with this broker as leader in a new epoch, as after any restart.

        The new epoch distinguishes records that an unclean stop has lost from later ones at the
        same offsets (KIP-101).
        """
        names = [TopicName(name) for name in await self._store.children(znodes.TOPICS)]
        nodes = await self._store.get_many([znodes.topic_path(name) for name in names])
        headers = [znodes.decode_topic_header(_found(node).data) for node in nodes]
        paths = [
            znodes.state_path(name, number)
            for name, (_, replicas) in zip(names, headers, strict=True)
            for number in range(len(replicas))
        ]
        states = iter(await self._store.get_many(paths))
        topics = [
            TopicImage(name, topic_id, self._load_partitions(broker_id, replicas, states))
            for name, (topic_id, replicas) in zip(names, headers, strict=True)
        ]
        operations = [
            Set(znodes.state_path(topic.name, p.partition), znodes.encode_state(p, self._epoch))
            for topic in topics
            for p in topic.partitions
        ]
        if operations:
            await self._store.multi(operations)
        return topics

    @staticmethod
    def _load_partitions(
        broker_id: BrokerId,
        replicas: Sequence[znodes.PartitionReplicas],
        states: Iterator[Node | None],
    ) -> tuple[PartitionImage, ...]:
        """Take one topic's partitions from the states of all topics."""
        return tuple(
            _elected(znodes.decode_partition(number, ids, _found(next(states))), broker_id)
            for number, ids in enumerate(replicas)
        )

    async def _load_configs(self, parent: str) -> dict[str, dict[str, str]]:
        """Return the overrides of every resource below a path, by name."""
        names = await self._store.children(parent)
        nodes = await self._store.get_many([f"{parent}/{name}" for name in names])
        return {
            znodes.unsanitized(name): znodes.decode_configs(_found(node).data)
            for name, node in zip(names, nodes, strict=True)
        }

    async def _load_deletions(self, broker_id: BrokerId) -> dict[Uuid, TopicDeletion]:
        ids = await self._store.children(znodes.DELETED_TOPICS)
        nodes = await self._store.get_many([f"{znodes.DELETED_TOPICS}/{each}" for each in ids])
        return dict(
            znodes.decode_deletion(each, _found(node).data, broker_id)
            for each, node in zip(ids, nodes, strict=True)
        )

    async def _load_topic_configs(self) -> dict[TopicName, dict[str, str]]:
        names = await self._store.children(znodes.TOPIC_CONFIGS)
        nodes = await self._store.get_many([znodes.topic_config_path(name) for name in names])
        return {
            TopicName(name): znodes.decode_configs(node.data)
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    async def _load_broker_configs(self) -> dict[str, dict[str, str]]:
        names = await self._store.children(znodes.BROKER_CONFIGS)
        nodes = await self._store.get_many([f"{znodes.BROKER_CONFIGS}/{name}" for name in names])
        return {
            "" if name == znodes.DEFAULT_ENTITY else name: znodes.decode_configs(node.data)
            for name, node in zip(names, nodes, strict=True)
            if node is not None
        }

    async def _load_features(self) -> dict[str, int]:
        """Return the finalized features. A store without them gets those of a new cluster."""
        await self._ensure(znodes.FEATURES, znodes.encode_features(default_levels()))
        return znodes.decode_features((await self._store.get(znodes.FEATURES)).data)

    # --- changes ---

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        """Create the valid topics in one write. The results are in the order of `topics`."""
        return await self._serialized(lambda: self._create_topics(topics, validate_only))

    async def delete_topics(self, ids: Sequence[Uuid]) -> list[KafkaError | None]:
        """Delete topics by id in one write. The results are in the order of `ids`."""
        return await self._serialized(lambda: self._delete_topics(ids))

    def deletions_finished(self, topic_ids: Collection[Uuid]) -> None:
        """Remove the records of these deletions soon, because no log of the topics can reappear.

        A record that cannot be removed does no harm. The next start finishes its deletion again.
        """
        if not self._stopping:
            self._begin_change(lambda: self._forget_deletions(topic_ids))

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions to topics in one write. The results are in the order of `requests`."""
        return await self._serialized(lambda: self._create_partitions(requests, validate_only))

    async def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Alter configs of any resources in one write. The results are in order of `changes`."""
        return await self._serialized(lambda: self._alter_configs(changes, validate_only))

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> dict[Entity, KafkaError | None]:
        """Alter client quotas in one write. Return the error or None for each entity."""
        return await self._serialized(lambda: self._alter_client_quotas(alterations, validate_only))

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
        return await self._serialized(lambda: self._update_features(changes, validate_only))

    async def allocate_producer_ids(self) -> range:
        """Return the next block of producer ids, which this cluster has never allocated before."""
        return await self._serialized(self._allocate_producer_ids)

    async def _serialized(self, change: Callable[[], Awaitable[Result]]) -> Result:
        return await asyncio.shield(self._begin_change(change))

    def _begin_change(self, change: Callable[[], Awaitable[Result]]) -> asyncio.Task[Result]:
        async def run() -> Result:
            async with self._change_lock:
                return await change()

        task = asyncio.get_running_loop().create_task(run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _publish(self, image: MetadataImage) -> None:
        """Replace the image, and call the subscribers.

        The next change waits until all subscribers have processed the image, in any number of time
        slices.
        """
        old, self.image = self.image, image
        if old.broker_configs != image.broker_configs:
            own = image.broker_configs.get(str(self._config.node_id), {})
            self._config.set_dynamic(own, image.broker_configs.get("", {}))
        for subscriber in self._subscribers:
            work = subscriber(old, image)
            if work is not None:
                await in_slices(work)

    async def _create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> list[CreatedTopic | KafkaError]:
        planning = plan_topics(self.image, self._config, topics, self._new_uuid)
        results = await in_slices(planning)
        created = [result for result in results if isinstance(result, CreatedTopic)]
        operations: list[Operation] = []
        slices = SliceCounter()
        for it in created:
            await slices.count()
            slices.charge(len(it.image.partitions))
            operations += znodes.create_topic_operations(it.image, it.configs, self._epoch)
        image = self.image.with_topics(
            {it.image.name: it.image for it in created},
            {it.image.name: it.configs for it in created},
        )
        failure = await self._commit(image, operations, validate_only)
        if failure is None:
            return results
        return [failure if isinstance(result, CreatedTopic) else result for result in results]

    async def _delete_topics(self, ids: Sequence[Uuid]) -> list[KafkaError | None]:
        results: list[KafkaError | None] = []
        operations: list[Operation] = []
        names: set[TopicName] = set()
        slices = SliceCounter()
        for topic_id in ids:
            await slices.count()
            topic = self.image.topics_by_id.get(topic_id)
            if topic is None or topic.name in names:
                results.append(
                    KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
                    )
                )
                continue
            names.add(topic.name)
            slices.charge(len(topic.partitions))
            has_configs = bool(self.image.topic_configs.get(topic.name))
            operations += znodes.delete_topic_operations(topic, has_configs)
            results.append(None)
        failure = await self._commit(self.image.without_topics(names), operations, False)
        return [error or failure for error in results]

    async def _forget_deletions(self, topic_ids: Collection[Uuid]) -> None:
        """Remove records of deletions. Not published, because no subscriber needs it."""
        known = [each for each in topic_ids if each in self.image.deletions]
        if known and not await self._write([Delete(znodes.deleted_topic_path(i)) for i in known]):
            self.image = self.image.without_deletions(known)

    async def _create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool
    ) -> list[KafkaError | None]:
        results: list[KafkaError | None] = []
        operations: list[Operation] = []
        changed: dict[TopicName, TopicImage] = {}
        slices = SliceCounter()
        for request in requests:
            await slices.count()
            try:
                topic = plan_partitions(self.image, request)
            except KafkaError as error:
                results.append(error)
                continue
            added = topic.partitions[len(self.image.topics_by_name[topic.name].partitions) :]
            operations.append(Set(znodes.topic_path(topic.name), znodes.encode_topic(topic)))
            operations += znodes.partition_operations(topic.name, added, self._epoch)
            changed[topic.name] = topic
            slices.charge(len(topic.partitions))
            results.append(None)
        image = self.image.with_topics(changed, {})
        failure = await self._commit(image, operations, validate_only)
        return [error or failure for error in results]

    async def _alter_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool
    ) -> list[KafkaError | None]:
        results: list[KafkaError | None] = []
        operations: list[Operation] = []
        topics: dict[TopicName, dict[str, str]] = {}
        others: dict[ResourceType, dict[str, dict[str, str]]] = defaultdict(dict)
        slices = SliceCounter()
        for change in changes:
            await slices.count()
            slices.charge(len(change.ops))
            try:
                check_change_count(len(changes))
                configs = plan_config_change(self.image, self._config, change)
            except KafkaError as error:
                results.append(error)
                continue
            operations += _config_operations(change, change.configs(self.image), configs)
            if change.type is ResourceType.TOPIC:
                topics[TopicName(change.name)] = configs
            else:
                others[change.type][change.name] = configs
            results.append(None)
        image = self.image.with_configs(
            topics,
            others[ResourceType.BROKER],
            others[ResourceType.GROUP],
            others[ResourceType.CLIENT_METRICS],
        )
        failure = await self._commit(image, operations, validate_only)
        return [error or failure for error in results]

    async def _alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> dict[Entity, KafkaError | None]:
        planning = planning_alterations(self.image.client_quotas, alterations)
        quotas, results = await in_slices(planning)
        operations = quota_operations(self.image.client_quotas, quotas)
        image = self.image.with_quotas(quotas)
        failure = await self._commit(image, operations, validate_only)
        return {entity: error or failure for entity, error in results.items()}

    async def _update_features(
        self, changes: Mapping[str, int] | Sequence[FeatureUpdate], validate_only: bool
    ) -> KafkaError | None:
        before = self.image.features
        try:
            if not isinstance(changes, Mapping):
                for update in changes:
                    check_update(self._config.node_id, before, update)
                changes = {update.name: update.level for update in changes}
            levels = with_levels(before, changes)
        except KafkaError as error:
            return error
        operations = [Set(znodes.FEATURES, znodes.encode_features(levels))]
        return await self._commit(self.image.with_features(levels), operations, validate_only)

    async def _allocate_producer_ids(self) -> range:
        await self._ensure(znodes.PRODUCER_ID_BLOCK, b"")
        node = await self._store.get(znodes.PRODUCER_ID_BLOCK)
        first = int(znodes.decode(node.data)["block_end"]) + 1 if node.data else 0
        last = first + znodes.PRODUCER_ID_BLOCK_SIZE - 1
        data = znodes.encode_producer_id_block(self._config.node_id, first, last)
        await self._store.set(znodes.PRODUCER_ID_BLOCK, data, node.version)
        return range(first, last + 1)

    async def _commit(
        self, image: MetadataImage, operations: Sequence[Operation], validate_only: bool
    ) -> KafkaError | None:
        """Write the operations first, then publish, so a client never sees an unwritten change.

        A controller that was replaced by a later one on the same store can no longer write
        (KAFKA-6082).

        Returns:
            The error if the operations cannot be written. Then nothing has changed.
        """
        if validate_only or not operations:
            return None
        failure = await self._write(operations)
        if failure is None:
            await self._publish(image)
        return failure

    async def _write(self, operations: Sequence[Operation]) -> KafkaError | None:
        fence = Check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        try:
            await self._store.multi([fence, *operations])
        except BadVersionError as error:
            if error.path != znodes.CONTROLLER_EPOCH:
                raise
            logger.error(
                "another controller has taken over the metadata store: this one makes no changes. "
                "Stop one of the two brokers"
            )
            return KafkaError(ErrorCode.NOT_CONTROLLER, "This is no longer the controller.")
        except StoreFailure as error:
            logger.error("the metadata store failed: %s", error)
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata cannot be written.")
        return None


def _found(node: Node | None) -> Node:
    """Return a node that existed a moment ago. It must exist: this is the only writer."""
    assert node is not None, "the metadata store lost a node"
    return node


def _elected(partition: PartitionImage, broker: BrokerId) -> PartitionImage:
    """Return the partition in its next epoch, led by this broker.

    It has no leader if this broker has no replica of it, because the node's id was changed.
    """
    led = broker in partition.replicas
    return replace(
        partition,
        leader=broker if led else NO_LEADER,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        isr=(broker,) if led else partition.isr,
    )


def _config_operations(
    change: ConfigChange, old: Mapping[str, str], new: Mapping[str, str]
) -> list[Operation]:
    """Write a resource's new overrides. A resource without overrides has no node."""
    path = change.path
    if not new:
        return [Delete(path)] if old else []
    data = znodes.encode_configs(new)
    return [Set(path, data)] if old else [Create(path, data)]
