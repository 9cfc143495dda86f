"""`BrokerServer`, the composition root: it creates, connects and stops every part of a broker.

Parts start from the bottom up:

1. The log directories are locked, and loaded on a thread.
2. The controller loads the metadata store. Its first image creates the partitions.
3. The coordinators load their logs.
4. The listeners open last, so that a client that can connect is served.

A broker of a cluster has a `ClusterMember` in place of the controller, which describes its start.

Each part adds its stop step to the stop sequence when it has started. The steps run in the reverse
order. The broker responds to pending requests, and stops the listeners and the other parts. It
closes the logs with the mark that lets the next start skip recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.coordinators import Coordinators
from odradek.broker.periodic import PeriodicTasks
from odradek.broker.requests.advertised import registered_endpoints
from odradek.broker.requests.context import Services
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.fetch_sessions import FetchSessionCache
from odradek.broker.requests.quotas import ClientQuotas
from odradek.broker.single_start import check_single_start
from odradek.broker.start_reports import report_addresses, report_configs
from odradek.broker.stopping import STOP_LIMITS, StopLimits, StopSequence
from odradek.broker.threads import BrokerThreads
from odradek.broker.transactions.producer_ids import (
    BLOCK_WAIT_MS,
    LOCAL_BLOCK_WAIT_MS,
    ProducerIdAllocator,
)
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import (
    advertised_listeners,
    inter_broker_listener,
    listeners,
    sets_inter_broker_listener,
)
from odradek.config.log_config import LONG_MAX
from odradek.controller.controller import Controller
from odradek.environment.environment import Environment
from odradek.errors import KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.log.directories.directory_names import METADATA_DIRECTORY, topic_ids_of_logs
from odradek.log.directories.log_manager import LogManager
from odradek.log.state.checkpoints import read_clean_shutdown_epoch
from odradek.metadata.features import FEATURES
from odradek.metadata.image import BrokerRegistration
from odradek.metadata.store.memory import MemoryStore
from odradek.net.connection import without_size
from odradek.net.limits import NetLimits
from odradek.net.listener import Endpoint as ListenEndpoint
from odradek.net.server import Server
from odradek.net.session import PLAIN_SOCKET, PLAIN_SOCKET_WITHOUT_SENDFILE
from odradek.replication.replica_manager import ReplicaManager
from odradek.slicing import begin, in_slices

if TYPE_CHECKING:
    from odradek.broker.cluster_identity import ClusterMark
    from odradek.broker.cluster_member import ClusterMember, ClusterSettings
    from odradek.broker.log_cleaner import LogCleaner
    from odradek.broker.page_cache_mark import PageCacheMark
    from odradek.broker.replica_directories import ReplicaDirectories
    from odradek.broker.requests.cluster import ClusterMembership
    from odradek.broker.requests.first_use import FirstUse
    from odradek.collector import Collector
    from odradek.controller.cluster_controller import ClusterController
    from odradek.environment.timers import Timer
    from odradek.log.cleaner.worker_protocol import CleanerWorker
    from odradek.log.log_dir import LogDir
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.kafka_import.takeover import Takeover
    from odradek.metadata.store.interface import MetadataStore, SingleNodeStore
    from odradek.metadata.store.sqlite import SqliteStore
    from odradek.net.connection import Chunks, Connection, Dispatch, Reply
    from odradek.replication.replication_parts import ReplicationParts
    from odradek.results import Result

logger = logging.getLogger(__name__)

# How long the start waits for the coordinators to load their logs. A short log is loaded before the
# first client connects. While a longer one loads, clients get COORDINATOR_LOAD_IN_PROGRESS, as in
# Kafka.
COORDINATORS_WAIT_S = 0.25
# The cleaner is not needed for the first requests, so it starts later.
CLEANER_DELAY_S = 1.0
STORE_FILE = "odradek-metadata.sqlite"


class BrokerServer:
    """One broker on the running event loop: `await start()`, then `await stop()`.

    Args:
        config: The configuration of the broker.
        environment: Clock, files, network and so on. Default: the real environment.
        store: The metadata store. Default: SQLite in the first log directory.
        start_cleaner_worker: Starts a worker that compacts logs. Default: in a process.
        stop_limits: The time limits of `stop`. Default: the broker stops within two seconds.
        membership: The state of the cluster that the broker belongs to. Default: the broker is the
            whole cluster, and serves no requests of other brokers.
        cluster_store: Returns a session, which is not open, with the metadata store of a cluster
            of several brokers. In place of `store` and `membership`.
        cluster_settings: The settings of that cluster.
        collector: The garbage collector of a process that has no other broker. Default: None, the
            broker leaves the collector unchanged.
        imports_on_threads: Whether threads import the modules of the first request of each kind, so
            that other requests do not wait. Default: the event loop does, in a fixed order.
    """

    services: Services

    def __init__(
        self,
        config: BrokerConfig,
        *,
        environment: Environment | None = None,
        store: SingleNodeStore | None = None,
        start_cleaner_worker: Callable[[], CleanerWorker] | None = None,
        stop_limits: StopLimits | None = None,
        membership: ClusterMembership | None = None,
        cluster_store: Callable[[], MetadataStore] | None = None,
        cluster_settings: ClusterSettings | None = None,
        collector: Collector | None = None,
        imports_on_threads: bool = False,
    ) -> None:
        self.config = config
        self._environment = environment or Environment()
        self._clock = self._environment.clock
        self._timers = self._environment.timers
        self._store = store
        self._start_cleaner_worker = start_cleaner_worker
        self._threads = BrokerThreads(self._environment.executors, self._timers)
        self._stopping = StopSequence(self._clock, stop_limits or STOP_LIMITS)
        self._membership = membership
        self._cluster_store = cluster_store
        self._cluster_settings = cluster_settings
        self._collector = collector
        self._first_use: FirstUse | None = None
        if imports_on_threads:
            from odradek.broker.requests.first_use import FirstUse

            self._first_use = FirstUse(self._threads.executor)
        self._failure: Exception | None = None
        self._failed = asyncio.Event()
        self._directories: ReplicaDirectories | None = None
        self._leave: Callable[[], Awaitable[None]] | None = None
        self._server: Server | None = None
        self._periodic: PeriodicTasks | None = None
        self._log_cleaner: LogCleaner | None = None
        self._cleaner_timer: Timer | None = None

    # --- start ---

    async def start(self) -> None:
        """Start all parts. Return when the broker serves clients.

        Raises:
            KafkaError, OSError, BindError: The broker cannot start. All started parts have been
                stopped again.
        """
        if self._collector is not None:
            self._collector.start(asyncio.get_running_loop().call_soon_threadsafe)
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        report_configs(self.config)
        endpoints = self._endpoints()
        if self._cluster_store is None:
            await self._start_single(endpoints)
        else:
            await self._start_in_cluster(endpoints, self._cluster_store())
        self._start_periodic_work()
        report_addresses(self.config, self._running_server.endpoints)

    async def _start_single(self, endpoints: list[ListenEndpoint]) -> None:
        """Start a broker with a controller of its own."""
        check_single_start(self.config, self._environment.files, STORE_FILE)
        log_manager = self._make_log_manager()
        await self._load_logs(log_manager)
        controller = Controller(
            self._metadata_store(),
            self.config,
            clock=self._clock,
            new_uuid=self._environment.randomness.uuid,
        )
        self._make_services(log_manager, controller, controller, self._membership)
        self._subscribe(controller)
        await self._start_controller(controller, endpoints)
        server = self._make_server(self._request_handler())
        await self._load_coordinators()
        await server.start(endpoints)

    async def _start_in_cluster(
        self, endpoints: list[ListenEndpoint], store: MetadataStore
    ) -> None:
        """Start a broker that belongs to a cluster, in the order of `cluster_member`."""
        from odradek.broker.cluster_member import ClusterMember, ClusterSettings
        from odradek.broker.replica_directories import ReplicaDirectories
        from odradek.broker.replication_wiring import Replication
        from odradek.broker.requests.start_gate import StartGate

        settings = self._cluster_settings or ClusterSettings()
        member = ClusterMember(self.config, self._environment, store, settings, self._fail)
        log_manager = self._make_log_manager()
        await self._join(member, log_manager)
        mark = self._page_cache_mark(log_manager)
        page_cache = mark.identity()
        for log_dir in log_manager.log_dirs:
            log_dir.on_lost_pages(mark.pages_lost)
        lifecycle = member.lifecycle
        await self._load_logs(log_manager, member.cluster_id, lambda: lifecycle.registered_epoch)
        controller = member.cluster_controller
        executor = self._threads.executor
        replication = Replication(self.config, self._environment, member, executor)
        self._make_services(log_manager, controller, member, member, replication.parts)
        assert self.services.cluster is not None, "made for a member"
        parts_ms = self._stopping.limits.parts_ms
        self._stopping.add("the replication", replication.stop, parts_ms)
        for channel in self.services.cluster.channels:
            member.add_channel(channel)
        self._directories = directories = ReplicaDirectories(
            BrokerId(self.config.node_id),
            log_manager,
            self.services.replica_manager,
            member,
            self._threads.executor,
            self._timers,
            self._fail,
        )
        loop = asyncio.get_running_loop()
        log_manager.on_dir_full(
            lambda log_dir: loop.call_soon_threadsafe(directories.directory_full, log_dir)
        )
        self._stopping.add("the log directories", directories.stop, parts_ms)
        self._subscribe(member)
        member.subscribe(directories.apply)
        dispatch = self._request_handler()
        gate = StartGate(dispatch)
        server = self._make_server(gate.dispatch)
        # Before the connections, whose pending responses include polls of the feed.
        self._stopping.add("the cluster", member.stop, parts_ms)
        await server.bind(endpoints)
        await member.register(self._registration(server.endpoints, page_cache))
        server.accept()
        await member.follow()
        member.hold_lease(
            self.services.replica_manager, self.services.coordinators.leadership_changed
        )
        await in_slices(self._directories.reporting())
        await self._load_coordinators()
        gate.open()
        server.serve(dispatch)
        self._leave = member.shut_down
        if self._first_use is not None:
            begin(self._first_use.preparing(), "the import of the modules of requests")

    def _endpoints(self) -> list[ListenEndpoint]:
        """Return the endpoints to listen on.

        Raises:
            KafkaError: The configs of the addresses are invalid.
        """
        advertised_listeners(self.config)
        if self._membership is not None or sets_inter_broker_listener(self.config):
            inter_broker_listener(self.config)
        sends_files = self._environment.files.sends_files
        kind = PLAIN_SOCKET if sends_files else PLAIN_SOCKET_WITHOUT_SENDFILE
        return [ListenEndpoint(*each, transport_kind=kind) for each in listeners(self.config)]

    def _make_log_manager(self) -> LogManager:
        config = self.config
        return LogManager(
            config.log_dirs(),
            config.log_config({}),
            self._clock,
            files=self._environment.files,
            executors=self._environment.executors,
            randomness=self._environment.randomness,
            producer_expiration_ms=config.get_int("producer.id.expiration.ms"),
            checkpoint_interval_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
            high_watermark_interval_ms=config.get_int(
                "replica.high.watermark.checkpoint.interval.ms"
            ),
        )

    async def _join(self, member: ClusterMember, log_manager: LogManager) -> None:
        """Join the cluster with log directories that are locked. Then mark them.

        Nothing else in them changes, and nothing at all if this broker may not join.
        """
        from odradek.broker.cluster_identity import DirectoryIdentity, read_mark, write_mark

        files, paths = self._environment.files, [each.path for each in log_manager.log_dirs]

        def identify() -> DirectoryIdentity:
            cluster_id = log_manager.lock(self.config.node_id)
            has_metadata = STORE_FILE in files.listdir(paths[0])
            epoch = read_clean_shutdown_epoch(files, paths)
            is_kafkas = any(files.is_dir(f"{path}/{METADATA_DIRECTORY}") for path in paths)
            mark = read_mark(files, paths)
            return DirectoryIdentity(cluster_id, mark, has_metadata, epoch, is_kafkas)

        async def mark_move(mark: ClusterMark) -> None:
            await run(write_mark, files, paths[:1], mark)  # the directory of the metadata

        run = partial(asyncio.get_running_loop().run_in_executor, self._threads.executor)
        self._stopping.add("the cluster", member.stop, self._stopping.limits.parts_ms)
        try:
            read_logs = partial(run, topic_ids_of_logs, files, paths)
            identity = await run(identify)
            mark = await member.join(identity, self._single_store, mark_move, read_logs)
            await run(write_mark, files, paths, mark)
        except BaseException:
            log_manager.unlock()
            raise

    async def _load_logs(
        self,
        log_manager: LogManager,
        cluster_id: str | None = None,
        registered: Callable[[], int] = lambda: -1,
    ) -> None:
        """Lock and load the log directories, on a thread.

        Args:
            log_manager: The logs.
            cluster_id: The id of the cluster, if it is known.
            registered: Returns the epoch of the broker's last registration.
        """
        in_cluster = cluster_id is not None
        node_id = self.config.node_id
        load = partial(log_manager.load, cluster_id, node_id, adds_directory_ids=in_cluster)
        await asyncio.get_running_loop().run_in_executor(self._threads.executor, load)
        close = partial(self._close_logs, log_manager, registered)
        self._stopping.add("the logs", close, self._stopping.limits.logs_ms)
        if self._collector is not None:
            self._collector.freeze_loaded()

    def _metadata_store(self) -> SingleNodeStore:
        if self._store is not None:
            return self._store
        return self._single_store()

    def _single_store(self) -> SqliteStore:
        from odradek.metadata.store.sqlite import SqliteStore

        path = f"{self.config.log_dirs()[0]}/{STORE_FILE}"
        return SqliteStore(path, self._environment.executors)

    def _make_replica_manager(
        self,
        log_manager: LogManager,
        deletions_finished: Callable[[Collection[Uuid]], None],
        replication: ReplicationParts | None,
    ) -> ReplicaManager:
        loop = asyncio.get_running_loop()
        replica_manager = ReplicaManager(
            self.config.node_id,
            log_manager,
            self._clock,
            self._timers,
            self._threads.executor,
            self.config.log_config,
            loop,
            self._threads.decompression,
            deletions_finished,
            replication,
        )
        self._stopping.add("the partitions", replica_manager.stop, self._stopping.limits.parts_ms)

        def stopping_partitions(log_dir: LogDir) -> Generator[None, None, None]:
            yield from replica_manager.failing_log_dir(log_dir)
            if self._directories is not None:
                yield from self._directories.failing(log_dir)

        def stop_partitions(log_dir: LogDir) -> None:
            begin(stopping_partitions(log_dir), f"the end of the partitions of {log_dir}")

        def dir_failed(log_dir: LogDir) -> None:
            loop.call_soon_threadsafe(stop_partitions, log_dir)

        log_manager.on_dir_failure(dir_failed)
        return replica_manager

    def _make_services(
        self,
        log_manager: LogManager,
        controller: Controller | ClusterController,
        metadata: Controller | ClusterMember,
        membership: ClusterMembership | None,
        replication: ReplicationParts | None = None,
    ) -> None:
        """Make the services that request handlers use.

        Args:
            log_manager: The logs, which are loaded.
            controller: Executes the requests that change metadata.
            metadata: Publishes the image of this broker.
            membership: The state of the cluster. None in a single broker.
            replication: The parts for partitions with other replicas.
        """
        config, clock = self.config, self._clock
        replica_manager = self._make_replica_manager(
            log_manager, metadata.deletions_finished, replication
        )
        cluster = None
        if membership is not None:
            from odradek.broker.requests.cluster_parts import cluster_requests

            cluster = cluster_requests(config, self._environment, membership, metadata)

        async def block_of_producer_ids() -> range:
            if cluster is None or (controller is metadata and cluster.membership.is_controller):
                return await controller.allocate_producer_ids()
            from odradek.broker.transactions.producer_id_blocks import block_of_controller

            return await block_of_controller(cluster, config.node_id)

        wait_ms = LOCAL_BLOCK_WAIT_MS if cluster is None else BLOCK_WAIT_MS
        producer_ids = ProducerIdAllocator(block_of_producer_ids, self._timers, wait_ms)
        self.services = Services(
            config=config,
            clock=clock,
            timers=self._timers,
            node_id=config.node_id,
            executor=self._threads.executor,
            timestamp_lookups=self._threads.timestamp_lookups,
            log_manager=log_manager,
            image=lambda: metadata.image,
            controller=controller,
            replica_manager=replica_manager,
            producer_ids=producer_ids,
            fetch_sessions=FetchSessionCache(
                config.get_int("max.incremental.fetch.session.cache.slots"),
                clock,
                self._environment.randomness.between,
            ),
            quotas=ClientQuotas(
                config.get_int("quota.window.num"),
                config.get_int("quota.window.size.seconds") * 1000,
            ),
            coordinators=Coordinators(
                config,
                clock,
                self._timers,
                lambda: metadata.image,
                replica_manager,
                self._threads.executor,
                producer_ids,
                self._environment.randomness,
                None if cluster is None else cluster.transaction_peers,
            ),
            cluster=cluster,
        )

    def _subscribe(self, metadata: Controller | ClusterMember) -> None:
        """Subscribe the parts to the metadata.

        The replica manager comes before the coordinators, because they need the partitions.
        """
        services = self.services
        for subscriber in (
            self._apply_broker_configs,
            self._apply_quotas,
            self._apply_brokers,
            services.replica_manager.apply,
            services.coordinators.on_metadata,
        ):
            metadata.subscribe(subscriber)

    def _apply_broker_configs(
        self, delta: MetadataDelta, _old: MetadataImage, _new: MetadataImage
    ) -> None:
        """Pass dynamic broker configs on to the parts that keep a copy of them."""
        if not delta.broker_configs.changed:
            return
        expiration_ms = self.config.get_int("producer.id.expiration.ms")
        self.services.log_manager.set_producer_expiration(expiration_ms)
        if self._server is not None:
            self._server.set_limits(_net_limits(self.config))

    def _apply_quotas(self, delta: MetadataDelta, _old: MetadataImage, _new: MetadataImage) -> None:
        if delta.client_quotas.changed:
            self.services.quotas.update(delta.client_quotas.changed)

    def _apply_brokers(
        self, delta: MetadataDelta, old_image: MetadataImage, new_image: MetadataImage
    ) -> None:
        cluster = self.services.cluster
        if cluster is None:
            return
        cluster.transaction_peers.on_metadata(delta, old_image, new_image)
        if old_image.controller_id != new_image.controller_id:
            for channel in cluster.channels:
                channel.controller_changed()

    async def _start_controller(
        self, controller: Controller, endpoints: list[ListenEndpoint]
    ) -> None:
        """Load the metadata, create the partitions, and register this broker."""
        log_manager = self.services.log_manager
        self._stopping.add("the controller", controller.stop, self._stopping.limits.parts_ms)
        find = partial(self._find_takeover, log_manager) if self._store is None else None
        registration = self._registration(endpoints, self._environment.files.boot_id)
        await controller.start(registration, log_manager.cluster_id, find)

    def _page_cache_mark(self, log_manager: LogManager) -> PageCacheMark:
        from odradek.broker.page_cache_mark import PageCacheMark

        paths = [each.path for each in log_manager.log_dirs]
        return PageCacheMark(self._environment.files, paths, self._environment.randomness.uuid)

    def _registration(
        self, endpoints: Sequence[ListenEndpoint], page_cache: str
    ) -> BrokerRegistration:
        """Return this broker without its epoch. `page_cache` becomes its boot id."""
        host_name = self._environment.network.host_name
        addresses = registered_endpoints(self.config, endpoints, host_name)
        environment = self._environment
        log_manager = self.services.log_manager
        online = [each.path for each in log_manager.log_dirs if not each.offline]
        ids = [log_manager.directory_ids.get(path) for path in online]
        # A failure of a directory without an id cannot be reported.
        proves_clean_stop = len(online) == len(log_manager.log_dirs) and None not in ids
        return BrokerRegistration(
            BrokerId(self.config.node_id),
            addresses[0].host,
            addresses[0].port,
            self.config.get_str("broker.rack") or None,
            addresses,
            incarnation_id=environment.randomness.uuid(),
            features={name: (each.min_level, each.max_level) for name, each in FEATURES.items()},
            directories=tuple(each for each in ids if each is not None),
            boot_id=page_cache if proves_clean_stop else "",
        )

    async def _find_takeover(self, log_manager: LogManager) -> Takeover | None:
        """Return the initial metadata of a new store, or None.

        A new store begins with the metadata of a stopped Kafka broker if the log directories belong
        to one.
        """
        config = self.config
        paths = [each.path for each in log_manager.log_dirs if not each.offline]
        if metadata_log_dir := config.initial_text("metadata.log.dir"):
            paths.insert(0, metadata_log_dir)
        logs = log_manager.all_logs()
        files = self._environment.files
        if not logs and not any(files.is_dir(f"{path}/{METADATA_DIRECTORY}") for path in paths):
            return None
        from odradek.metadata.kafka_import.takeover import find_takeover

        new_uuid = self._environment.randomness.uuid
        find = partial(find_takeover, config, log_manager.cluster_id, logs, paths, files, new_uuid)
        return await asyncio.get_running_loop().run_in_executor(self._threads.executor, find)

    async def _load_coordinators(self) -> None:
        await self.services.replica_manager.flushes_ended()
        await self.services.coordinators.start(COORDINATORS_WAIT_S)

    def _make_server(self, dispatch: Dispatch) -> Server:
        """Make the server, which does not listen yet."""
        self._stopping.add("the connections", self._end_serving, self._stopping.limits.parts_ms)
        cluster = self.services.cluster
        has_others = len({name for name, *_ in listeners(self.config)}) > 1
        self._server = Server(
            dispatch,
            clock=self._clock,
            timers=self._timers,
            network=self._environment.network,
            limits=_net_limits(self.config),
            executor=self._threads.executor,
            protected_listener=cluster.listener if cluster is not None and has_others else None,
        )
        return self._server

    def _request_handler(self) -> Dispatch:
        """Return the function that connections call with each request."""
        dispatch = Dispatcher(self.services, first_use=self._first_use).dispatch
        interceptor = self._environment.interceptor
        if interceptor is None:
            return dispatch

        def execute(connection: Connection, frame: memoryview) -> Chunks | Result[Chunks]:
            return without_size(dispatch(connection, frame))

        def intercept(connection: Connection, frame: memoryview) -> Reply:
            return interceptor.intercept(connection, frame, partial(execute, connection, frame))

        return intercept

    def _start_periodic_work(self) -> None:
        self._periodic = PeriodicTasks(self.services)
        self._periodic.start()
        self._cleaner_timer = self._timers.call_later(
            CLEANER_DELAY_S, lambda: begin(self._start_cleaner(), "the start of the log cleaner")
        )

    def _start_cleaner(self) -> Generator[asyncio.Future[None], None, None]:
        """Start the log cleaner, after a thread has imported its modules."""
        if self._first_use is not None:
            yield self._first_use.import_later_modules()
            if self._first_use.is_stopped:
                return
        self.log_cleaner.start()

    # --- stop ---

    async def stop(self) -> None:
        """Respond to pending requests, and stop all parts in the reverse order of their start.

        This takes no longer than the `StopLimits` allow, even if clients or the disk are slow.
        A broker of a cluster hands over its leaderships before.
        """
        leave, self._leave = self._leave, None
        if leave is not None and self._failure is None:
            await leave()
        if self._first_use is not None:
            self._first_use.stop()
        await self._stopping.run()
        await self._threads.end(self._stopping.limits.threads_ms)
        if self._collector is not None:
            self._collector.stop()

    async def _end_serving(self) -> None:
        """Complete the delayed operations, stop the periodic work, and close the connections."""
        if self.services.cluster is not None:
            self.services.cluster.close()
        self.services.producer_ids.close()
        self.services.replica_manager.end_delayed_fetches()
        self.services.coordinators.stop()
        if self._cleaner_timer is not None:
            self._cleaner_timer.cancel()
        ends: list[Awaitable[None]] = []
        if self._server is not None:
            grace_ms = self._stopping.left_ms(self._stopping.limits.responses_ms)
            ends.append(self._server.stop(grace_ms / 1000))
        if self._periodic is not None:
            ends.append(self._periodic.stop())
        if self._log_cleaner is not None:
            ends.append(self._log_cleaner.stop())
        await asyncio.gather(*ends)

    async def _close_logs(self, log_manager: LogManager, registered: Callable[[], int]) -> None:
        broker_epoch = registered()
        # A store in memory forgets the topics, so a later start must not use these logs as clean.
        clean = not isinstance(self._store, MemoryStore)
        within_ms = self._stopping.left_ms(self._stopping.limits.syncs_ms)
        await self._threads.close_logs(
            log_manager, clean=clean, within_ms=within_ms, broker_epoch=broker_epoch
        )

    def _fail(self, error: Exception) -> None:
        """Report that the broker cannot continue. Its owner stops it."""
        if self._failure is None:
            logger.error("broker %d cannot continue and stops: %s", self.config.node_id, error)
            self._failure = error
            self._failed.set()

    # --- interface for programs that embed a broker ---

    async def failed(self) -> Exception:
        """Return the error after which this broker has to be stopped, when there is one."""
        await self._failed.wait()
        assert self._failure is not None, "set before the event"
        return self._failure

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` of the first listener, as a client on this machine reaches it."""
        endpoint = self._running_server.endpoints[0]
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(  # noqa: S104
            endpoint.host, endpoint.host
        )
        return f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"

    @property
    def _running_server(self) -> Server:
        assert self._server is not None, "the broker has not started"
        return self._server

    @property
    def log_cleaner(self) -> LogCleaner:
        """The component that compacts logs, created on first use."""
        if self._log_cleaner is None:
            from odradek.broker.log_cleaner import LogCleaner, start_process

            self._log_cleaner = LogCleaner(
                self.config,
                self._clock,
                self._timers,
                self._environment.executors,
                self.services.log_manager,
                self._start_cleaner_worker or start_process,
            )
        return self._log_cleaner

    @property
    def periodic(self) -> PeriodicTasks:
        """The periodic tasks of the broker."""
        assert self._periodic is not None, "the broker has not started"
        return self._periodic

    @property
    def connections(self) -> Collection[Connection]:
        """The open connections of clients."""
        return self._server.connections if self._server is not None else ()

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with one replica. Clients can use it when this returns.

        Args:
            name: The name of the topic.
            partitions: The number of its partitions.
            configs: Configs of the topic that differ from the broker's defaults.

        Raises:
            KafkaError: The topic was not created.
        """
        from odradek.metadata.topic_changes import NewTopic

        topic = NewTopic(name, partitions, 1, configs=tuple((configs or {}).items()))
        (result,) = await self.services.controller.create_topics([topic])
        if isinstance(result, KafkaError):
            raise result


def _net_limits(config: BrokerConfig) -> NetLimits:
    """Return the limits of the network layer from Kafka's configs.

    Limits without a config keep the defaults of the network layer.
    """
    queued = config.get_int("queued.max.request.bytes")
    idle_ms = config.get_int("connections.max.idle.ms")
    limits = {
        "request_bytes_max": config.get_int("socket.request.max.bytes"),
        "connections_max": config.get_int("max.connections"),
        "connections_max_per_ip": config.get_int("max.connections.per.ip"),
        "connections_max_idle_ms": idle_ms if idle_ms >= 0 else LONG_MAX,
        "backlog": config.get_int("socket.listen.backlog.size"),
    }
    if config.explicit("socket.send.buffer.bytes"):
        limits["send_buffer_bytes"] = config.get_int("socket.send.buffer.bytes")
    if queued > 0:
        limits["request_bytes_queued_max"] = queued
    # Kafka's default of 100 KiB would limit the rate of a distant producer. Without the config, the
    # operating system tunes the buffer.
    if config.explicit("socket.receive.buffer.bytes"):
        limits["receive_buffer_bytes"] = config.get_int("socket.receive.buffer.bytes")
    return NetLimits(connections_max_per_ip_overrides=config.connections_per_ip(), **limits)
