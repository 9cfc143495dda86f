"""`Cluster`: several brokers in this process that replicate, for tests of failures.

Each broker has a thread, an event loop, a log directory and a port of its own. They share a
metadata store in memory, on a further thread. The cluster is ready when `with` or `start` returns.
After `close` nothing is left.

Topics, internal ones included, have min(3, brokers) replicas. One in-sync replica less must remain
(at least 1).
``Cluster(3, processes=True)`` runs the brokers as processes, with the same methods
(`odradek.testing.process_cluster`).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from odradek.environment.environment import Environment
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName
from odradek.metadata.store.ensemble import EnsembleConditions
from odradek.metadata.store.interface import SessionLostError
from odradek.testing.barriers import LOOK_AGAIN_S, WaitTimeoutError
from odradek.testing.broker import STOP_LIMITS
from odradek.testing.broker_thread import BrokerThread, text_of
from odradek.testing.cluster_methods import (
    SESSION_MS,
    WAIT_S,
    ClusterMethods,
    cluster_configs,
    unknown_broker,
)
from odradek.testing.process_cluster import ProcessMethods
from odradek.testing.process_end import EndableFiles, EndableNetwork, Links
from odradek.testing.store_thread import StoreThread, ThreadedStore

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer
    from odradek.metadata.image import MetadataImage


class ClusterBroker(BrokerThread):
    """One broker of a `Cluster`, with the faults and barriers of `odradek.testing.Broker`.

    `Cluster` creates it. `advance` moves the time of this broker only.
    """

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        config: Mapping[str, object],
        store_thread: StoreThread,
        links: Links,
    ) -> None:
        super().__init__(config)
        self.broker_id = broker_id
        self.is_paused = False
        self._directory = directory
        self._store_thread = store_thread
        self._links = links
        self._port = 0
        self._continued = threading.Event()
        self._store: ThreadedStore | None = None
        self._cut_session: int | None = None
        self._boot_notes: dict[str, str] = {}
        self._files: EndableFiles | None = None
        self._network: EndableNetwork | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``127.0.0.1:PORT``. A broker that was killed keeps its address."""
        return f"127.0.0.1:{self._port}"

    @property
    def is_running(self) -> bool:
        """Whether the broker was started and neither killed nor closed. It may be paused."""
        return self._server is not None

    @property
    def image(self) -> MetadataImage:
        """The metadata that this broker knows. An image never changes."""
        return self.server.services.image()

    @property
    def is_controller(self) -> bool:
        cluster = self.server.services.cluster
        return cluster is not None and cluster.membership.is_controller

    def await_start(self) -> None:
        super().await_start()
        self._port = int(self.server.bootstrap_servers.rpartition(":")[2])

    def kill(self) -> None:
        """End the broker as SIGKILL ends a process. Its session lasts until its timeout.

        A paused broker executes nothing that arrived during its pause.
        """
        loop, store, network, files = self._loop, self._store, self._network, self._files
        assert loop is not None and store is not None, "the broker runs"
        assert network is not None and files is not None, "made at the start"
        ended = threading.Event()

        def end() -> None:
            network.end()
            files.end()
            # The stop that follows must not wait for the controller.
            self.server.config.set_dynamic({"controlled.shutdown.enable": "false"}, {})
            ended.set()

        was_paused = self.is_paused
        if was_paused:  # the event loop may execute requests before it calls `end`
            network.cut_off()
            files.end()
        loop.call_soon_threadsafe(end)
        if was_paused:
            store.abandon()
            self._continue()
        ended.wait(WAIT_S)
        if not was_paused:
            store.abandon()
        self.close()

    def pause(self) -> None:
        """Block the event loop of the broker, as SIGSTOP suspends a process."""
        if self.is_paused:
            return
        loop, store = self._loop, self._store
        assert loop is not None and store is not None, "the broker runs"
        paused = threading.Event()
        self._continued.clear()

        def block() -> None:
            paused.set()
            self._continued.wait()

        self.is_paused = True
        session_id = store.session_id
        loop.call_soon_threadsafe(block)
        paused.wait(WAIT_S)
        with contextlib.suppress(SessionLostError):
            self._store_thread.call(lambda ensemble: ensemble.pause(session_id))

    def resume(self) -> None:
        """Let a paused broker go on. It finds its session lost if the pause was long."""
        if not self.is_paused:
            return
        assert self._store is not None, "the broker runs"
        session_id = self._store.session_id
        self._store_thread.call(lambda ensemble: ensemble.resume(session_id))
        self._continue()

    def _continue(self) -> None:
        self.is_paused = False
        self._continued.set()

    def close(self) -> None:
        self.resume()
        super().close()

    def cut_from_store(self, *, cut: bool) -> None:
        """Break the connection to the metadata store, or allow it again."""
        if cut:
            self._cut_session = self._blocked_session()
        elif (session_id := self._cut_session) is not None:
            self._cut_session = None
            self._store_thread.call(lambda ensemble: ensemble.unblock(session_id))

    def _blocked_session(self) -> int:
        """Block the session of the broker, or its next one if it has just been lost."""
        assert self._store is not None, "the broker runs"
        deadline = time.monotonic() + WAIT_S
        while True:
            session_id = self._store.session_id
            try:
                self._store_thread.call(methodcaller("block", session_id))
            except SessionLostError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(LOOK_AGAIN_S)
            else:
                return session_id

    def links_changed(self) -> None:
        """Break the connections that a partition does not allow. A paused broker does it later."""
        if self._loop is not None and self._network is not None:
            self._loop.call_soon_threadsafe(self._network.break_separated)

    def _make_server(self, environment: Environment) -> BrokerServer:
        from odradek.broker.broker import BrokerServer
        from odradek.broker.cluster_member import ClusterSettings
        from odradek.broker.main import fallbacks_forced
        from odradek.config.broker import BrokerConfig

        self._store = ThreadedStore(self._store_thread)
        self._cut_session = None
        self._files = EndableFiles(portable=fallbacks_forced(), boot_notes=self._boot_notes)
        self._network = EndableNetwork(self.broker_id, self._links)
        properties = {
            "connections.max.idle.ms": "-1",
            "node.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": str(self._directory),
            **self._config,
        }
        store = self._store
        return BrokerServer(
            BrokerConfig.from_properties(properties),
            environment=replace(environment, files=self._files, network=self._network),
            cluster_store=lambda: store,
            cluster_settings=ClusterSettings(id_timeout_ms=3 * SESSION_MS),
            stop_limits=STOP_LIMITS,
        )


class Cluster(ClusterMethods):
    """A cluster of brokers for tests: ``with Cluster(3) as cluster:``.

    Broker ids begin at 1. Methods may be called from each thread except the brokers' own.

    Args:
        brokers: The number of brokers.
        config: Kafka's broker configs for all brokers.
        processes: Whether the brokers are processes on a real ZooKeeper, which needs Java. Faults
            and barriers inside of brokers (`broker`) do not exist then.
        zookeeper: With processes, ``HOST:PORT`` of a ZooKeeper that runs. None: start one.
    """

    def __new__(
        cls,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        *,
        processes: bool = False,
        zookeeper: str | None = None,
    ) -> Self:
        if processes and cls is Cluster:
            return cast("Self", super().__new__(ProcessCluster))
        return super().__new__(cls)

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        *,
        processes: bool = False,
        zookeeper: str | None = None,
    ) -> None:
        super().__init__(brokers, config, processes=processes, zookeeper=zookeeper)
        self._config: Mapping[str, object] = {**cluster_configs(brokers), **self._given}
        self._directory: Path | None = None
        self._store: StoreThread | None = None
        self._links = Links()
        self._brokers: dict[int, ClusterBroker] = {}
        self._cut_from_store: set[int] = set()
        self._separated: frozenset[int] = frozenset()

    # --- start and end ---

    def start(self) -> Self:
        """Start all brokers. Return when each of them serves clients."""
        if self._store is not None:
            raise RuntimeError("the cluster is already running")
        self._directory = Path(tempfile.mkdtemp(prefix="odradek-cluster-"))
        self._store = StoreThread(EnsembleConditions(session_timeout_ms=SESSION_MS))
        self._store.start()
        self._brokers = {
            each: ClusterBroker(
                each, self._directory / str(each), self._config, self._store, self._links
            )
            for each in range(1, self._count + 1)
        }
        try:
            for broker in self._brokers.values():
                broker.begin_start()
            for broker in self._brokers.values():
                broker.await_start()
            self._await_brokers()
        except BaseException:
            for broker in self._brokers.values():
                with contextlib.suppress(Exception):  # the first failure is raised below
                    broker.await_start()
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all brokers and remove their data. A second call does nothing."""
        if self._store is None or self._directory is None:
            return
        running = [each for each in self._brokers.values() if each.is_running]
        try:
            if running:
                with ThreadPoolExecutor(len(running)) as threads:
                    for _ in threads.map(ClusterBroker.kill, running):
                        pass
        finally:  # also if a broker does not stop
            self._store.close()
            self._store = None
            shutil.rmtree(self._directory, ignore_errors=True)

    # --- the cluster ---

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, the value of a client's `bootstrap.servers`."""
        return ",".join(each.bootstrap_servers for each in self._brokers.values())

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return list(self._brokers)

    def broker(self, broker_id: int) -> ClusterBroker:
        """Return a broker, for its faults, barriers and clock."""
        try:
            return self._brokers[broker_id]
        except KeyError:
            raise unknown_broker(broker_id, self._brokers) from None

    def address_of(self, broker_id: int) -> str:
        """Return ``127.0.0.1:PORT`` of a broker. It keeps its address when it is killed."""
        return self.broker(broker_id).bootstrap_servers

    def is_running(self, broker_id: int) -> bool:
        """Return whether a broker runs. It may be paused."""
        return self.broker(broker_id).is_running

    def is_paused(self, broker_id: int) -> bool:
        """Return whether a broker is paused."""
        return self.broker(broker_id).is_paused

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replicas: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> None:
        """Create a topic. When this returns, all its replicas are in sync.

        Args:
            name: The name.
            partitions: The number of partitions.
            config: Configs of the topic.
            replicas: The number of replicas. None: the default of the cluster.
            timeout_s: Time limit in seconds.

        Raises:
            KafkaError: The cluster refused the topic.
        """
        from odradek.metadata.topic_changes import USE_DEFAULT, NewTopic

        configs = tuple((key, text_of(value)) for key, value in (config or {}).items())
        factor = USE_DEFAULT if replicas is None else replicas
        topic = NewTopic(name, partitions, factor, configs=configs)

        async def create(server: BrokerServer) -> object:
            (result,) = await server.services.controller.create_topics([topic])
            return result

        deadline = time.monotonic() + timeout_s
        while True:
            controller = self._wait_for(self._controller, "a controller", deadline)
            result = controller.call(create)
            if not isinstance(result, KafkaError):
                break
            if result.code is not ErrorCode.NOT_CONTROLLER:
                raise result
        self.wait_until_in_sync(name, timeout_s=max(0.0, deadline - time.monotonic()))

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """Return the leader in the newest metadata that any broker knows. None: there is none.

        Raises:
            ValueError: The partition does not exist.
        """
        found = self._image().partition(TopicName(topic), partition)
        if found is None:
            raise ValueError(f"there is no partition {topic}-{partition}")
        return found.leader if found.leader >= 0 else None

    def controller(self) -> int | None:
        """Return the id of the broker that is the controller. None: there is none at the moment."""
        found = self._controller()
        return None if found is None else found.broker_id

    # --- failures ---

    def kill(self, broker_id: int) -> None:
        """Kill a broker, as SIGKILL does: no response, no flush, no handover.

        The cluster notices it when the session of the broker has expired, after two seconds.
        """
        self._running_broker(broker_id).kill()

    def restart(self, broker_id: int) -> None:
        """Start a killed broker, or stop and start a running one.

        The broker keeps its address and its data. A broker that runs hands its leaderships over
        before it stops.

        Raises:
            RuntimeError: The broker is cut off from the metadata store or from other brokers. It
                could not start.
            TimeoutError: The broker did not start, for example because the controller is cut off.
        """
        broker = self.broker(broker_id)
        if broker_id in self._cut_from_store or broker_id in self._separated:
            raise RuntimeError(f"broker {broker_id} is cut off and cannot start: call heal()")
        broker.close()
        broker.start()

    def pause(self, broker_id: int) -> None:
        """Suspend a broker, as SIGSTOP does, until `resume`, `heal` or `restart`.

        Its connections stay open, and nothing is sent or executed.
        """
        self._running_broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on."""
        self.broker(broker_id).resume()

    def partition(
        self, *broker_ids: int, keep_store: bool = False, keep_clients: bool = False
    ) -> None:
        """Cut brokers off from all others, from clients and from the metadata store, until `heal`.

        The brokers that are named reach each other. An earlier partition ends.

        Args:
            broker_ids: The brokers.
            keep_store: Whether they keep the connection to the metadata store, and so their
                sessions.
            keep_clients: Whether clients reach them. A client that gets its metadata from such a
                broker may not find the other brokers.
        """
        for broker_id in broker_ids:
            self.broker(broker_id)
        self._separate(broker_ids, from_clients=not keep_clients)
        self._cut(set() if keep_store else set(broker_ids))

    def heal(self) -> None:
        """End the partition, and let all paused brokers go on."""
        self._separate((), from_clients=False)
        self._cut(set())
        for broker in self._brokers.values():
            broker.resume()

    # --- helpers ---

    def _await_brokers(self) -> None:
        """Wait until each broker knows that all brokers may lead."""
        deadline = time.monotonic() + WAIT_S
        while not all(_may_all_lead(each.image, self._count) for each in self._running()):
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"waited {WAIT_S:g} s for {self._count} brokers that lead")
            time.sleep(LOOK_AGAIN_S)

    def _running_broker(self, broker_id: int) -> ClusterBroker:
        broker = self.broker(broker_id)
        if not broker.is_running:
            raise RuntimeError(f"broker {broker_id} does not run")
        return broker

    def _separate(self, broker_ids: Iterable[int], *, from_clients: bool) -> None:
        self._separated = frozenset(broker_ids)
        self._links.separate(self._separated, from_clients=from_clients)
        for broker in self._brokers.values():
            broker.links_changed()

    def _cut(self, broker_ids: set[int]) -> None:
        for broker_id in broker_ids ^ self._cut_from_store:
            broker = self._brokers[broker_id]
            if broker.is_running:
                broker.cut_from_store(cut=broker_id in broker_ids)
        self._cut_from_store = broker_ids

    def _running(self) -> list[ClusterBroker]:
        return [each for each in self._brokers.values() if each.is_running]

    def _image(self) -> MetadataImage:
        """Return the newest image of any running broker."""
        running = self._running()
        if not running:
            raise RuntimeError("no broker runs")
        return max((each.image for each in running), key=lambda image: image.offset)

    def _controller(self) -> ClusterBroker | None:
        found = [each for each in self._running() if each.is_controller and not each.is_paused]
        return found[0] if found else None

    def _wait_for(
        self, find: Callable[[], ClusterBroker | None], what: str, deadline: float
    ) -> ClusterBroker:
        while (found := find()) is None:
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(f"waited for {what}")
            time.sleep(LOOK_AGAIN_S)
        return found

    def _not_in_sync(self, topic: str | None) -> str:
        """Return what is missing, or nothing."""
        running = {BrokerId(each.broker_id) for each in self._running()}
        newest = self._image()
        topics = newest.topics_by_name
        if topic is not None and TopicName(topic) not in topics:
            return f"there is no topic {topic}"
        for name in topics if topic is None else [TopicName(topic)]:
            for number, state in enumerate(topics[name].partitions):
                missing = sorted((set(state.replicas) & running) - set(state.isr))
                if state.leader < 0 or missing:
                    return f"{name}-{number} has leader {state.leader}, not in sync: {missing}"
                for each in self._running():
                    known = each.image.partition(name, number)
                    if known is None or known.leader != state.leader:
                        return (
                            f"broker {each.broker_id} does not know the leader of {name}-{number}"
                        )
        return ""


def _may_all_lead(image: MetadataImage, brokers: int) -> bool:
    return sum(not each.fenced for each in image.brokers.values()) == brokers


class ProcessCluster(ProcessMethods, Cluster):
    """A cluster of processes: ``Cluster(N, processes=True)``."""
