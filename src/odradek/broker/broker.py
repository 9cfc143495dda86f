"""`BrokerServer`: the composition root. Every part of a broker is made, joined and ended here.

Start: configs, log directories (locked, loaded in a thread), metadata store and controller, whose
first image creates the partitions, group coordinator, and last the listeners: a client that can
connect is answered. Stop: long polls and rebalances are answered, the listeners drain, what runs
is waited for, and the logs are closed with the marker that lets the next start skip recovery.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.coordinators import Coordinators
from odradek.broker.periodic import PeriodicTasks
from odradek.broker.requests.context import Services
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.fetch_sessions import FetchSessionCache
from odradek.broker.requests.quotas import ClientQuotas
from odradek.broker.stopping import STOP_LIMITS, StopLimits, StopSequence
from odradek.broker.transactions.producer_ids import ProducerIdAllocator
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import advertised_listeners, listeners
from odradek.config.log_config import LONG_MAX
from odradek.controller.controller import Controller, random_uuid
from odradek.environment.environment import Environment
from odradek.environment.thread_pool import ThreadPool
from odradek.errors import KafkaError
from odradek.ids import BrokerId
from odradek.log.directories.log_manager import METADATA_DIRECTORY, LogManager
from odradek.metadata.image import BrokerRegistration, Endpoint
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.topics import NewTopic
from odradek.net.limits import NetLimits
from odradek.net.listener import Endpoint as ListenEndpoint
from odradek.net.server import Server
from odradek.net.session import PLAIN_SOCKET, PLAIN_SOCKET_WITHOUT_SENDFILE
from odradek.offloading import WorkRunner
from odradek.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from odradek.broker.log_cleaner import LogCleaner
    from odradek.environment.timers import Timer
    from odradek.log.directories.log_dir import LogDir
    from odradek.metadata.image import MetadataImage
    from odradek.metadata.kafka_import.takeover import Takeover
    from odradek.metadata.store.interface import MetadataStore
    from odradek.net.connection import Connection, Dispatch, Reply

logger = logging.getLogger(__name__)

# Threads for what would block the loop: fsync, cold reads, lookups by time, loading, deleting.
THREADS_MAX = 8
# Works of a kind that hold an unpacked batch at the same time: batches that are checked or
# recompressed, and searches for timestamps. They have threads of their own, because a batch of a
# few KB may unpack to 10,000 times as much, and no fsync or cold read may wait for that.
OPENED_BATCHES_MAX = 2
TIMESTAMP_LOOKUPS_MAX = 2
LOOKUP_PAUSE_S = 0.001
"""Between two slices of a search, so that searches take at most a third of the event loop."""
# A short history of groups is read before the first client is let in; with a long one clients are
# answered COORDINATOR_LOAD_IN_PROGRESS meanwhile, as in Kafka.
COORDINATORS_WAIT_S = 0.25
# The cleaner is not needed to answer the first client.
CLEANER_DELAY_S = 1.0
STORE_FILE = "odradek-metadata.sqlite"


class BrokerServer:
    """One broker on the running event loop: `await start()`, then `await stop()`.

    `environment` None is the real one. `store` None keeps the metadata in SQLite in the first log
    directory.
    """

    services: Services

    def __init__(
        self,
        config: BrokerConfig,
        *,
        environment: Environment | None = None,
        store: MetadataStore | None = None,
        stop_limits: StopLimits | None = None,
    ) -> None:
        self.config = config
        self._environment = environment or Environment()
        self._clock = self._environment.clock
        self._store = store
        self._executor = ThreadPool(THREADS_MAX, "odradek-io")
        self._unpacker = ThreadPool(OPENED_BATCHES_MAX + TIMESTAMP_LOOKUPS_MAX, "odradek-unpack")
        self._closer = ThreadPool(1, "odradek-close")
        self._stop_sequence = StopSequence(self._clock, stop_limits or STOP_LIMITS)
        self._server: Server | None = None
        self._periodic: PeriodicTasks | None = None
        self._log_cleaner: LogCleaner | None = None
        self._cleaner_timer: Timer | None = None

    # --- life ---

    async def start(self) -> None:
        """Ready when it returns; raises KafkaError, OSError or BindError when it cannot start."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        config = self.config
        self._report_keys()
        sends_files = self._environment.files.sends_files
        kind = PLAIN_SOCKET if sends_files else PLAIN_SOCKET_WITHOUT_SENDFILE
        endpoints = [ListenEndpoint(*address, transport_kind=kind) for address in listeners(config)]
        advertised_listeners(config)
        stopping, limits = self._stop_sequence, self._stop_sequence.limits
        log_manager = await self._load_logs()
        controller = await self._build(log_manager)
        stopping.add("the controller", controller.stop, limits.parts_ms)
        find = partial(self._find_takeover, log_manager) if self._store is None else None
        await controller.start(self._registration(endpoints), log_manager.cluster_id, find)
        stopping.add("the connections", self._drain, limits.parts_ms)
        await self.services.coordinators.start(self.services, COORDINATORS_WAIT_S)
        self._server = Server(
            self._request_handler(),
            clock=self._clock,
            timers=self._environment.timers,
            limits=_net_limits(config),
            executor=self._executor,
        )
        await self._server.start(endpoints)
        self._periodic = PeriodicTasks(self.services)
        self._periodic.start()
        self._cleaner_timer = self._environment.timers.call_later(
            CLEANER_DELAY_S, lambda: self.log_cleaner.start()
        )
        self._report_addresses()

    def _request_handler(self) -> Dispatch:
        """The function that connections call with each request."""
        dispatch = Dispatcher(self.services).dispatch
        interceptor = self._environment.interceptor
        if interceptor is None:
            return dispatch

        def intercept(connection: Connection, frame: memoryview) -> Reply:
            execute = partial(dispatch, connection, frame)
            reply: Reply = interceptor.intercept(connection, frame, execute)
            return reply

        return intercept

    @property
    def log_cleaner(self) -> LogCleaner:
        """What compacts the logs, made when it is first needed."""
        if self._log_cleaner is None:
            from odradek.broker.log_cleaner import LogCleaner

            self._log_cleaner = LogCleaner(
                self.config, self._clock, self._environment.timers, self.services.log_manager
            )
        return self._log_cleaner

    async def _load_logs(self) -> LogManager:
        """Locks and loads the log directories off the loop."""
        config = self.config
        loop = asyncio.get_running_loop()
        log_manager = LogManager(
            config.log_dirs(),
            config.log_config({}),
            self._clock,
            files=self._environment.files,
            producer_expiration_ms=config.get_int("producer.id.expiration.ms"),
            checkpoint_interval_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
        )
        await loop.run_in_executor(
            self._executor, partial(log_manager.load, node_id=config.node_id)
        )
        close = partial(self._close_logs, log_manager)
        self._stop_sequence.add("the logs", close, self._stop_sequence.limits.logs_ms)
        return log_manager

    async def _build(self, log_manager: LogManager) -> Controller:
        """Makes the parts and joins them; nothing runs yet."""
        config = self.config
        loop = asyncio.get_running_loop()
        controller = Controller(self._open_store(), config, clock=self._clock)
        slices = asyncio.Lock()
        replica_manager = ReplicaManager(
            config.node_id,
            log_manager,
            self._clock,
            self._environment.timers,
            self._executor,
            config.log_config,
            loop,
            WorkRunner(self._unpacker, OPENED_BATCHES_MAX, slices),
            controller.deletions_finished,
        )
        limits = self._stop_sequence.limits
        self._stop_sequence.add("the partitions", replica_manager.stop, limits.parts_ms)
        producer_ids = ProducerIdAllocator(controller.allocate_producer_ids)
        coordinators = Coordinators(
            config,
            self._clock,
            self._environment.timers,
            controller,
            replica_manager,
            self._executor,
            producer_ids,
        )
        self.services = Services(
            config=config,
            clock=self._clock,
            timers=self._environment.timers,
            node_id=config.node_id,
            executor=self._executor,
            timestamp_lookups=WorkRunner(
                self._unpacker, TIMESTAMP_LOOKUPS_MAX, slices, LOOKUP_PAUSE_S
            ),
            log_manager=log_manager,
            image=lambda: controller.image,
            controller=controller,
            replica_manager=replica_manager,
            producer_ids=producer_ids,
            fetch_sessions=FetchSessionCache(
                config.get_int("max.incremental.fetch.session.cache.slots"),
                self._clock,
                lambda low, high: low + secrets.randbelow(high - low + 1),
            ),
            quotas=ClientQuotas(
                config.get_int("quota.window.num"),
                config.get_int("quota.window.size.seconds") * 1000,
            ),
            coordinators=coordinators,
        )

        def dir_failed(log_dir: LogDir) -> None:
            loop.call_soon_threadsafe(replica_manager.log_dir_failed, log_dir)

        log_manager.on_dir_failure(dir_failed)
        controller.subscribe(self._apply_broker_configs)
        controller.subscribe(self._apply_quotas)
        controller.subscribe(replica_manager.applying)
        controller.subscribe(coordinators.on_metadata)
        return controller

    def _apply_broker_configs(self, old_image: MetadataImage, new_image: MetadataImage) -> None:
        """Passes dynamic broker configs on to those that have taken a copy of them."""
        if old_image.broker_configs == new_image.broker_configs:
            return
        expiration_ms = self.config.get_int("producer.id.expiration.ms")
        self.services.log_manager.producer_expiration_ms = expiration_ms
        if self._server is not None:
            self._server.limits = _net_limits(self.config)

    def _apply_quotas(self, old_image: MetadataImage, new_image: MetadataImage) -> None:
        if old_image.client_quotas is not new_image.client_quotas:
            self.services.quotas.update(new_image.client_quotas)

    def _open_store(self) -> MetadataStore:
        if self._store is not None:
            return self._store
        from odradek.metadata.store.sqlite import SqliteStore

        return SqliteStore(Path(self.config.log_dirs()[0]) / STORE_FILE)

    async def _find_takeover(self, log_manager: LogManager) -> Takeover | None:
        """What a new store begins with: the log directories may be those of a stopped Kafka."""
        config = self.config
        paths = [each.path for each in log_manager.log_dirs if not each.offline]
        if given := config.given("metadata.log.dir"):
            paths.insert(0, given)
        logs = log_manager.all_logs()
        if not logs and not any((Path(path) / METADATA_DIRECTORY).is_dir() for path in paths):
            return None
        from odradek.metadata.kafka_import.takeover import find_takeover

        work = partial(find_takeover, config, log_manager.cluster_id, logs, paths, random_uuid)
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _registration(self, endpoints: list[ListenEndpoint]) -> BrokerRegistration:
        addresses = tuple(Endpoint(each.name, each.host, each.port) for each in endpoints)
        return BrokerRegistration(
            BrokerId(self.config.node_id),
            addresses[0].host,
            addresses[0].port,
            self.config.get_str("broker.rack") or None,
            addresses,
        )

    async def stop(self) -> None:
        """Answer what is pending, and end everything that `start` began, the last part first.

        Takes no longer than the `StopLimits`, whatever clients and the disk do.
        """
        await self._stop_sequence.run()
        await self._end_threads()

    async def _drain(self) -> None:
        """End all waiting and what runs from time to time, then the connections."""
        services, stopping = self.services, self._stop_sequence
        services.replica_manager.fetches.end_all()
        services.coordinators.stop()
        if self._cleaner_timer is not None:
            self._cleaner_timer.cancel()
        ends: list[Awaitable[None]] = []
        if self._server is not None:
            ends.append(self._server.stop(stopping.left_ms(stopping.limits.answers_ms) / 1000))
        if self._periodic is not None:
            ends.append(self._periodic.stop())
        if self._log_cleaner is not None:
            ends.append(self._log_cleaner.stop())
        await asyncio.gather(*ends)

    async def _close_logs(self, log_manager: LogManager) -> None:
        """Close the logs on a thread of their own: those of the executor may wait for the disk."""
        stopping = self._stop_sequence
        # A store in memory forgets the topics: no start will ask for their logs.
        clean = not isinstance(self._store, MemoryStore)
        within_ms = stopping.left_ms(stopping.limits.syncs_ms)

        def unlock() -> None:
            # A thread that is left behind may work in the directories for a while.
            self._executor.shutdown(wait=True)
            log_manager.unlock()

        close = partial(log_manager.close, clean=clean, within_ms=within_ms, unlock=False)
        closed = asyncio.get_running_loop().run_in_executor(self._closer, close)
        self._closer.submit(unlock)  # by the same thread, when that is done
        await closed

    async def _end_threads(self) -> None:
        """Let all threads end, and wait a moment for those that are busy."""
        self._unpacker.shutdown(wait=False, cancel_futures=True)
        pools = (self._executor, self._unpacker, self._closer)
        for pool in pools:
            pool.shutdown(wait=False)

        def join() -> None:
            for pool in pools:
                pool.shutdown(wait=True)

        joiner = ThreadPool(1, "odradek-join")
        joined = asyncio.get_running_loop().run_in_executor(joiner, join)
        joiner.shutdown(wait=False)
        done, _ = await asyncio.wait([joined], timeout=self._stop_sequence.limits.threads_ms / 1000)
        if done:
            joiner.shutdown(wait=True)
        else:
            logger.warning("threads that wait for the disk are left behind")

    # --- what the outside asks ---

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` of the first listener, as a client on this machine reaches it."""
        assert self._server is not None, "the broker has not started"
        endpoint = self._server.endpoints[0]
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(  # noqa: S104
            endpoint.host, endpoint.host
        )
        return f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"

    @property
    def periodic(self) -> PeriodicTasks:
        """What the broker does from time to time."""
        assert self._periodic is not None, "the broker has not started"
        return self._periodic

    @property
    def connections(self) -> Collection[Connection]:
        """The clients' open connections."""
        return self._server.connections if self._server is not None else ()

    async def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Creates a topic; usable when this returns. Raises KafkaError."""
        topic = NewTopic(name, partitions, 1, configs=tuple((configs or {}).items()))
        (result,) = await self.services.controller.create_topics([topic])
        if isinstance(result, KafkaError):
            raise result

    # --- what the log is told ---

    def _report_keys(self) -> None:
        config = self.config
        if config.inapplicable_keys:
            logger.warning("configs without effect here: %s", ", ".join(config.inapplicable_keys))
        if config.unknown_keys:
            logger.warning("unknown configs: %s", ", ".join(config.unknown_keys))

    def _report_addresses(self) -> None:
        """One line: where clients connect, where data lies, and what clients will be told."""
        assert self._server is not None
        listening = ", ".join(str(endpoint) for endpoint in self._server.endpoints)
        advertised = advertised_listeners(self.config)
        told = (
            ", ".join(f"{each.name}://{each.host}:{each.port}" for each in advertised)
            or "the address at which each of them connected"
        )
        logger.info(
            "broker %d listens on %s; data is in %s; clients are told %s",
            self.config.node_id,
            listening,
            ", ".join(self.config.log_dirs()),
            told,
        )
        exposed = [str(each) for each in self._server.endpoints if not each.is_loopback]
        if exposed:
            logger.warning(
                "clients are not authenticated: everyone who can connect to %s may read and change "
                "all data. Listen on 127.0.0.1, or restrict who can connect",
                ", ".join(exposed),
            )


def _net_limits(config: BrokerConfig) -> NetLimits:
    """The limits of the network layer by Kafka's names; unset ones keep their own defaults."""
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
    # Kafka's default of 100 KiB would cap what a producer far away can send; the system tunes it.
    if config.explicit("socket.receive.buffer.bytes"):
        limits["receive_buffer_bytes"] = config.get_int("socket.receive.buffer.bytes")
    return NetLimits(connections_max_per_ip_overrides=config.connections_per_ip(), **limits)
