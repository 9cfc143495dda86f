"""The part of a broker that belongs to a cluster: session, controller, and feed of metadata.

A start takes these steps. Each one needs those before it:

1. `join` begins the session, and checks that log directories and store belong together
   (`cluster_identity`) and that no other process has the id of this broker. It prepares an empty
   store, and claims the id. Of two processes that start together, one is refused here. The log
   directories are locked by now, and nothing in them has changed. Then they get the mark of the
   cluster. If the metadata of a single broker moves, the first one has a mark before the move. The
   store of a stopped Kafka is taken over (`kafka_takeover`).
2. The broker loads its logs, and binds its listeners. Its address is known now.
3. `register` creates the node of this broker. The broker accepts connections, and executes the
   requests of other brokers (`requests.start_gate`). It has to do so before it knows any metadata:
   the first broker of a cluster becomes the controller, and follows its own feed over the network.
4. `follow` contends for the role of the controller, and follows the feed. The first image that it
   applies has the registration of this process. In an older one this broker could lead in an epoch
   whose last records it has lost in a power cut. `follow` returns when the broker has caught up.
5. The broker loads its coordinators, and executes all requests.

After a lost session the broker registers again (`broker_lifecycle`), and contends again.

Imported only by a broker of a cluster, because it would delay the start of a single one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from odradek.broker.broker_lifecycle import BrokerLifecycle
from odradek.broker.cluster_identity import (
    Admission,
    ClusterMark,
    DirectoryIdentity,
    admission,
)
from odradek.broker.controller_locator import ControllerLocator
from odradek.broker.ensemble_check import check_is_one_ensemble
from odradek.broker.finished_deletions import FinishedDeletions
from odradek.broker.heartbeats import BrokerHeartbeats
from odradek.broker.leadership_lease import Heard, LeadershipLease
from odradek.broker.own_address import AddressCheck, check_own_address
from odradek.broker.requests.cluster import ClusterMembership
from odradek.broker.requests.cluster_parts import SOFTWARE, channel_settings
from odradek.config.broker import BrokerConfig
from odradek.config.consents import TAKE_OVER_WITHOUT_FILE
from odradek.config.listeners import inter_broker_listener
from odradek.controller.broker_requests import BrokerRequests
from odradek.controller.cluster_controller import ClusterController
from odradek.controller.kafka_takeover import (
    JoiningBroker,
    ReadLogs,
    check_join,
    is_store_of_kafka,
    take_over,
)
from odradek.controller.loading import MetadataChanged, check_prepared, load, prepare
from odradek.controller.store_move import move, moving_id
from odradek.environment.environment import Environment
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicPartition, Uuid
from odradek.metadata import znodes
from odradek.metadata.controller_channel import (
    ControllerChannel,
    ControllerChannelSettings,
    ControllerNode,
)
from odradek.metadata.feed_client import FeedClient, FeedClientSettings
from odradek.metadata.image import (
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    MetadataImage,
)
from odradek.metadata.kafka_import.zookeeper_store import DirectoryUse
from odradek.metadata.publisher import Subscriber
from odradek.metadata.store.interface import (
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    StoreError,
    StoreFailure,
    UnknownOutcomeError,
)
from odradek.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


JOIN_ATTEMPTS_MAX = 5
"""Attempts of a start to join. Each further one follows the loss of the connection."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of a broker of a cluster.

    Attributes:
        chroot: The path of the store's root in ZooKeeper.
        id_timeout_ms: How long a start waits for the end of another process with the id of this
            broker. ZooKeeper keeps the node of a process that was killed for the timeout of its
            session.
        shutdown_timeout_ms: How long a stop waits until the controller has moved the leaderships of
            this broker. Brokers that were killed delay it by their session timeout.
        checks_own_address: Whether the broker connects to its own advertised address and reports a
            failure.
        zookeeper_servers: ``HOST:PORT`` of each server. Several must be one ensemble.
    """

    chroot: str = ""
    id_timeout_ms: float = 20_000
    shutdown_timeout_ms: float = 30_000
    checks_own_address: bool = False
    zookeeper_servers: tuple[str, ...] = ()


class ClusterMember(ClusterMembership):
    """Owned by `BrokerServer`. All of it runs on the event loop.

    Args:
        config: The configs of the broker.
        environment: The environment.
        store: The store, which is not open.
        settings: Settings of the cluster.
        failed: Called with the error after which this broker must stop.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        store: MetadataStore,
        settings: ClusterSettings,
        failed: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._environment = environment
        self._store = store
        self._settings = settings
        self._failed = failed
        self._node_id = BrokerId(config.node_id)
        self._channels: list[ControllerChannel] = []
        self._subscribers: list[Subscriber] = []
        self._feed: FeedClient | None = None
        self._lease: LeadershipLease | None = None
        self._address_check: asyncio.Task[None] | None = None
        self._clean_shutdown_epoch = UNKNOWN_BROKER_EPOCH
        self._is_stopped = False
        self._failure: Exception | None = None
        self._has_failed = asyncio.Event()
        self.cluster_id = ""
        self.lifecycle = BrokerLifecycle(
            store,
            self._node_id,
            clock=environment.clock,
            timers=environment.timers,
            check_store=self._check_store,
            registered=self._registered,
            failed=self._fail,
        )
        self._locator = ControllerLocator(
            store, inter_broker_listener(config), environment.timers, self._located
        )
        self.cluster_controller = ClusterController(
            store,
            config,
            clock=environment.clock,
            timers=environment.timers,
            randomness=environment.randomness,
            cluster_id=lambda: self.cluster_id,
            is_registered=lambda: self.broker_epoch != UNKNOWN_BROKER_EPOCH,
            standby_image=lambda: self.image,
        )
        self.cluster_controller.subscribe(self._role_changed)
        self._controller_requests = BrokerRequests(self.cluster_controller)
        self.heartbeats = BrokerHeartbeats(
            self.new_channel("heartbeat"),
            broker_id=self._node_id,
            broker_epoch=lambda: self.broker_epoch,
            metadata_offset=lambda: self.image.offset,
            timers=environment.timers,
        )

        self._finished_deletions = FinishedDeletions(
            self.new_channel("deletions"),
            broker_id=self._node_id,
            broker_epoch=lambda: self.broker_epoch,
            image=lambda: self.image,
            timers=environment.timers,
        )

    # --- ClusterMembership ---

    @property
    def is_controller(self) -> bool:
        return self.cluster_controller.is_active

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    @property
    def controller_requests(self) -> BrokerRequests:
        return self._controller_requests

    def controller(self) -> ControllerNode | None:
        return self._locator.node

    # --- parts for others ---

    @property
    def image(self) -> MetadataImage:
        """The image of this broker. Empty before the broker has followed the feed."""
        if self._feed is None:
            return MetadataImage(cluster_id=self.cluster_id)
        return self._feed.image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber to the metadata of this broker, before `follow`."""
        self._subscribers.append(subscriber)

    def new_channel(self, purpose: str) -> ControllerChannel:
        """Return a channel to the active controller. Each purpose has its own.

        Responses of a channel arrive in the order of its requests.
        """
        channel = ControllerChannel(
            self.controller,
            self._environment,
            settings=ControllerChannelSettings(channel=channel_settings(self._config)),
            client_id=f"broker-{self._node_id}-{purpose}",
            software=SOFTWARE,
        )
        self._channels.append(channel)
        return channel

    def add_channel(self, channel: ControllerChannel) -> None:
        """Report a new controller to this channel, too. Its owner closes it."""
        self._channels.append(channel)

    # --- start ---

    async def join(
        self,
        directories: DirectoryIdentity,
        single_store: Callable[[], MetadataStore],
        mark_move: Callable[[ClusterMark], Awaitable[None]],
        read_logs: ReadLogs,
    ) -> ClusterMark:
        """Begin the session, and join the cluster of the store, or begin one in an empty store.

        Args:
            directories: The contents of the log directories.
            single_store: Returns the store of a single broker in the log directories, which is not
                open. Its metadata moves into an empty store.
            mark_move: Writes the mark of a move that has begun, durably.
            read_logs: Returns the topic ids of the logs in the log directories.

        Returns:
            The mark for the log directories.

        Raises:
            KafkaError: The broker may not join, or the store cannot be used. Nothing in the log
                directories has changed, except for the mark of a move.
            OSError: The mark of a move cannot be written.
        """
        self._clean_shutdown_epoch = directories.clean_shutdown_epoch
        await check_is_one_ensemble(self._environment.network, self._settings.zookeeper_servers)
        await self.lifecycle.open()
        for attempt in range(1, JOIN_ATTEMPTS_MAX + 1):
            try:
                self.cluster_id = await self._join(directories, single_store, mark_move, read_logs)
            except znodes.InvalidNode as error:
                raise error.below(self._settings.chroot) from error
            except (StoreFailure, StoreError, UnknownOutcomeError) as error:
                if attempt == JOIN_ATTEMPTS_MAX or isinstance(error, StoreError):
                    reason = f"the metadata store cannot be used: {error!r}"
                    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, reason) from error
                await self.lifecycle.connect_again()
            else:
                break
        return ClusterMark(self.cluster_id, self._settings.chroot)

    async def _join(
        self,
        directories: DirectoryIdentity,
        single_store: Callable[[], MetadataStore],
        mark_move: Callable[[ClusterMark], Awaitable[None]],
        read_logs: ReadLogs,
    ) -> str:
        """Join the cluster of the store. Return its id. A second call continues a broken one."""
        await self._store.sync()
        found = await self._store_cluster_id()
        moving = await moving_id(self._store)
        admitted = admission(directories, found, self._settings.chroot, moving)
        if found is not None:
            broker = self._joining_broker(directories, read_logs)
            is_taken_over = await self._take_over_from_kafka(found, broker)
            await check_prepared(self._store, found)
            if not is_taken_over:
                await check_join(self._store, found, broker)
            await self._check_contents()
        await self.lifecycle.await_id(self._settings.id_timeout_ms)
        await self._store.create_root()  # nothing was written before
        if admitted is Admission.MOVE:
            mark = ClusterMark(directories.cluster_id or "", self._settings.chroot, is_moving=True)
            await self._move(single_store(), mark, mark_move)
        new_uuid = self._environment.randomness.uuid
        known = found or directories.cluster_id
        cluster_id = await prepare(self._store, known, new_uuid, completes=False)
        await self.lifecycle.claim_id(self._settings.id_timeout_ms)
        return cluster_id

    def _joining_broker(self, directories: DirectoryIdentity, read_logs: ReadLogs) -> JoiningBroker:
        use = DirectoryUse(
            is_new=directories.cluster_id is None,
            has_mark=directories.mark is not None,
            has_single_store=directories.has_metadata,
            has_kraft_metadata=directories.has_kafka_metadata,
        )
        config = self._config
        permits = config.permits(TAKE_OVER_WITHOUT_FILE)
        return JoiningBroker(self._node_id, config.initial, use, read_logs, config.file, permits)

    async def _take_over_from_kafka(self, cluster_id: str, broker: JoiningBroker) -> bool:
        """Take the store over if it is one of Kafka. Return whether this broker did.

        Raises:
            KafkaError: The cluster may not be taken over.
        """
        for _ in range(JOIN_ATTEMPTS_MAX):
            if not await is_store_of_kafka(self._store):
                return False
            try:
                await take_over(self._store, cluster_id, broker)
            except (NodeExistsError, NoNodeError, BadVersionError):
                await self._store.sync()  # another broker was first
            else:
                return True
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"cluster {cluster_id} of Apache Kafka is not taken over: its nodes in ZooKeeper "
            f"changed during each of {JOIN_ATTEMPTS_MAX} attempts. Stop all brokers of Kafka and "
            "all tools that write to ZooKeeper, and start again",
        )

    async def _store_cluster_id(self) -> str | None:
        try:
            node = await self._store.get(znodes.CLUSTER_ID)
        except NoNodeError:
            return None
        return znodes.valid(znodes.CLUSTER_ID, znodes.decode_cluster_id, node.data)

    async def _check_contents(self) -> None:
        """Read all metadata if there is no controller that has read it already.

        Raises:
            InvalidNode: The contents of a node are not valid.
        """
        if await self._store.exists(znodes.CONTROLLER) is None:
            epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
            znodes.valid(znodes.CONTROLLER_EPOCH, int, epoch.data)
            with contextlib.suppress(MetadataChanged):
                await load(self._store, "", self._node_id)

    async def _move(
        self,
        source: MetadataStore,
        mark: ClusterMark,
        mark_move: Callable[[ClusterMark], Awaitable[None]],
    ) -> None:
        await source.open()
        try:
            await move(source, self._store, mark.cluster_id, lambda: mark_move(mark), self._node_id)
        finally:
            await source.close()

    async def _check_store(self) -> None:
        """Check that the store still belongs to the cluster, and has the metadata of this broker.

        Raises:
            KafkaError: It was emptied or restored from a backup, or is another one.
        """
        await self._store.sync()  # a server of the store may lag behind the feed
        found = await self._store_cluster_id()
        if found != self.cluster_id:
            content = "is empty" if found is None else f"belongs to another cluster ({found})"
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata store of cluster {self.cluster_id} {content}. The broker stops",
            )
        try:
            epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
        except NoNodeError as error:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata store of cluster {self.cluster_id} has no node {error.path}. "
                "Restore it with its contents. The broker stops",
            ) from error
        number = znodes.valid(znodes.CONTROLLER_EPOCH, int, epoch.data)
        if number < self.image.controller_epoch:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata store has the controller epoch {number}, and this broker has "
                f"metadata of epoch {self.image.controller_epoch}: the store was restored from a "
                "backup. The broker stops. Its next start takes over the metadata of the store",
            )

    async def register(self, registration: BrokerRegistration) -> None:
        """Create the node of this broker, which then can receive requests of other brokers.

        Raises:
            KafkaError: The id of this broker is in use.
        """
        await self.lifecycle.register(registration, self._clean_shutdown_epoch)
        if self._settings.checks_own_address:
            name = inter_broker_listener(self._config)
            (endpoint,) = (each for each in registration.listeners if each.listener == name)
            check = check_own_address(self._environment.network, endpoint)
            self._address_check = asyncio.get_running_loop().create_task(check)

    async def follow(self) -> None:
        """Contend for the role of the controller, and follow the feed.

        Return when the broker has caught up with the metadata and all subscribers have processed
        it.

        Raises:
            Exception: The error after which this broker must stop.
        """
        session_timeout_ms = self._config.get_int("broker.session.timeout.ms")
        self._feed = FeedClient(
            self.new_channel("feed"),
            config=self._config,
            cluster_id=self.cluster_id,
            broker_id=self._node_id,
            broker_epoch=lambda: self.broker_epoch,
            timers=self._environment.timers,
            clock=self._environment.clock,
            on_failure=self._fail,
            settings=FeedClientSettings.for_session(session_timeout_ms),
            may_begin=self._has_own_registration,
        )
        for subscriber in self._subscribers:
            self._feed.subscribe(subscriber)
        check = AddressCheck(self._node_id, inter_broker_listener(self._config))
        self._feed.subscribe(check.image_changed)
        self.cluster_controller.start()
        self._feed.start()
        waits = [
            asyncio.ensure_future(self._feed.caught_up()),
            asyncio.ensure_future(self._has_failed.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            # Both may have ended. This also reads the exception of a feed that has failed.
            await asyncio.gather(*waits, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        await self._feed.caught_up()

    def hold_lease(
        self, replica_manager: ReplicaManager, changed: Callable[[TopicPartition], object]
    ) -> None:
        """Stop leading partitions from now on while this broker may have been deposed.

        Args:
            replica_manager: The partitions.
            changed: Called with each partition after it was suspended or resumed.
        """
        environment = self._environment
        self._lease = LeadershipLease(
            self._store,
            lambda: self.broker_epoch,
            self._heard,
            lambda: self.image,
            replica_manager,
            changed,
            environment.clock,
            environment.timers,
            self._config.get_int("broker.session.timeout.ms"),
        )
        assert self._feed is not None, "followed before"
        self._feed.subscribe(self._lease.image_changed)
        self._lease.start()

    def _has_own_registration(self, image: MetadataImage) -> bool:
        """Return whether an image has the registration of this process."""
        own = image.brokers.get(self._node_id)
        return own is not None and own.epoch == self.broker_epoch

    def _heard(self) -> Heard:
        assert self._feed is not None, "followed before"
        polled_ms = self.cluster_controller.others_polled_ms
        own = self.image.brokers.get(self._node_id)
        image_epoch = UNKNOWN_BROKER_EPOCH if own is None else own.epoch
        return Heard(image_epoch, max(self._feed.others_heard_ms, polled_ms))

    # --- events ---

    def _fail(self, error: Exception) -> None:
        """Report an error after which this broker must stop. Also end a start that waits."""
        if self._failure is None:
            self._failure = error
            self._has_failed.set()
            self._failed(error)

    def _registered(self) -> None:
        self.cluster_controller.registered()

    def _role_changed(self) -> None:
        self._locator.controller_changed(self.cluster_controller.controller_id)

    def _located(self) -> None:
        for channel in self._channels:
            channel.controller_changed()

    def deletions_finished(self, topic_ids: Collection[Uuid]) -> None:
        """Report soon that this broker has no logs of these deleted topics."""
        self._finished_deletions.add(topic_ids)

    # --- stop ---

    async def shut_down(self) -> None:
        """Hand over the leaderships of this broker (controlled shutdown), as far as possible."""
        if not self._config.get_bool("controlled.shutdown.enable"):
            return
        began_ms = self._environment.clock.monotonic_ms()
        if await self.heartbeats.shut_down(self._settings.shutdown_timeout_ms):
            took_ms = self._environment.clock.monotonic_ms() - began_ms
            logger.info("broker %d has handed over its leaderships: %d ms", self._node_id, took_ms)
        else:
            logger.warning(
                "broker %d stops without a controlled shutdown: the controller did not permit it "
                "within %d ms. Its partitions have no leader until the controller elects one",
                self._node_id,
                self._settings.shutdown_timeout_ms,
            )

    async def stop(self) -> None:
        """Stop to follow and to control, and end the session. A second call does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._address_check is not None:
            self._address_check.cancel()
            await asyncio.wait([self._address_check])
        self._locator.stop()
        if self._lease is not None:
            await self._lease.stop()
        await self.heartbeats.stop()
        if self._feed is not None:
            await self._feed.stop()
        await self._finished_deletions.stop()
        for channel in self._channels:
            channel.close()
        await asyncio.gather(self.lifecycle.close(), self.cluster_controller.stop())
