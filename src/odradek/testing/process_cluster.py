"""`Cluster(N, processes=True)`: real broker processes on a real ZooKeeper.

The processes are those of `odradek cluster up`. A TCP proxy in front of each broker, and one
between each broker and ZooKeeper, separate them (`odradek.testing.link_proxies`). The cluster asks
brokers at their own ports, behind the proxies, and ZooKeeper for the controller.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

from odradek.broker.page_cache_mark import note_name
from odradek.client.blocking import BlockingClient
from odradek.environment.files import RealFiles
from odradek.errors import ErrorCode, KafkaError, received_code
from odradek.launcher.child import Child, LaunchFailed, wait_for
from odradek.launcher.plan import HOST, BrokerPlan, ZooKeeperPlan
from odradek.launcher.ports import ReservedPorts
from odradek.launcher.readiness import live_brokers
from odradek.launcher.zookeeper import ZooKeeperServer
from odradek.metadata import znodes
from odradek.protocol.codec import Message
from odradek.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.create_topics_response import CreateTopicsResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
)
from odradek.testing.barriers import LOOK_AGAIN_S
from odradek.testing.broker_thread import START_TIMEOUT_S, text_of
from odradek.testing.cluster_methods import (
    WAIT_S,
    ClusterMethods,
    cluster_configs,
    unknown_broker,
)
from odradek.testing.link_proxies import LinkProxies, Separation

PROCESS_SESSION_MS = 3_000
"""Session timeout of the processes, in ZooKeeper and with the controller."""
ASK_S = 5.0
USE_DEFAULT_FACTOR = -1
_AGAIN = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
)
"""Errors of a creation while the cluster has no controller."""

M = TypeVar("M", bound=Message)
Partitions = dict[tuple[str, int], MetadataResponsePartition]


@dataclass(slots=True)
class _Broker:
    """One broker process, and its addresses before and behind its proxy."""

    child: Child
    port: int
    proxy_port: int
    is_paused: bool = False

    @property
    def is_running(self) -> bool:
        return self.child.is_running


class ProcessMethods(ClusterMethods):
    """The methods of `Cluster` for processes, with the same behaviour.

    Args:
        brokers, config: As for `Cluster`.
        processes: True.
        zookeeper: ``HOST:PORT`` of a ZooKeeper that runs. The cluster gets a path of its own there,
            which `close` removes. None: the cluster starts one.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        *,
        processes: bool = True,
        zookeeper: str | None = None,
    ) -> None:
        super().__init__(brokers, config, processes=processes, zookeeper=zookeeper)
        session = str(PROCESS_SESSION_MS)
        defaults = {
            **cluster_configs(brokers),
            "broker.session.timeout.ms": session,
            "zookeeper.session.timeout.ms": session,
        }
        self._properties = {key: text_of(each) for key, each in {**defaults, **self._given}.items()}
        self._own_zookeeper: ZooKeeperServer | None = None
        self._connect = zookeeper or ""
        self._chroot = f"/odradek-test-{uuid.uuid4().hex}" if zookeeper else ""
        self._home: Path | None = None
        self._ports: ReservedPorts | None = None
        self._proxies: LinkProxies | None = None
        self._separation = Separation()
        self._processes: dict[int, _Broker] = {}

    # --- start and end ---

    def start(self) -> Self:
        if self._home is not None:
            raise RuntimeError("the cluster is already running")
        self._home = Path(tempfile.mkdtemp(prefix="odradek-processes-"))
        atexit.register(self.close)  # for a program that ends without `close`
        self._ports = ReservedPorts(self._count + 1)
        self._proxies = LinkProxies()
        try:
            self._start_processes()
        except BaseException:
            self.close()
            raise
        return self

    def _start_processes(self) -> None:
        assert self._ports is not None and self._home is not None, "made by `start`"
        *ports, zookeeper_port = self._ports.ports
        if not self._connect:
            plan = ZooKeeperPlan(zookeeper_port, self._home / "zookeeper", syncs=False)
            self._own_zookeeper = ZooKeeperServer(plan)
            self._own_zookeeper.start()
            self._connect = plan.address
        for number, port in enumerate(ports, 1):
            self._processes[number] = self._new_broker(number, port)
            self._processes[number].child.start()
        ids = set(self._processes)
        wait_for(
            lambda: all(live_brokers((HOST, port)) >= ids for port in ports),
            [each.child for each in self._processes.values()],
            f"{len(ids)} brokers that lead",
            START_TIMEOUT_S,
        )

    def _new_broker(self, number: int, port: int) -> _Broker:
        assert self._proxies is not None and self._home is not None, "made by `start`"
        proxy_port = self._proxies.to_broker(number, port)
        store_port = self._proxies.to_store(number, int(self._connect.rpartition(":")[2]))
        plan = BrokerPlan(
            number,
            port,
            self._log_dir(number),
            f"{HOST}:{store_port}{self._chroot}",
            {
                "connections.max.idle.ms": "-1",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{proxy_port}",
                **self._properties,
            },
        )
        log_file = self._home / f"broker-{number}.log"
        child = Child(f"broker {number}", plan.command(sys.executable), log_file)
        return _Broker(child, port, proxy_port)

    def close(self) -> None:
        if self._home is None:
            return
        for each in self._processes.values():
            each.child.kill()
        if self._own_zookeeper is not None:
            self._own_zookeeper.kill()
        elif self._chroot:
            self._remove_chroot()
        if self._proxies is not None:
            self._proxies.close()
        if self._ports is not None:
            self._ports.close()
        for number in self._processes:
            RealFiles().remove_boot_note(note_name([str(self._log_dir(number))]))
        shutil.rmtree(self._home, ignore_errors=True)
        self._home = None
        atexit.unregister(self.close)

    def _log_dir(self, number: int) -> Path:
        assert self._home is not None, "made by `start`"
        return self._home / f"broker-{number}"

    def _remove_chroot(self) -> None:
        with contextlib.suppress(Exception), self._zookeeper_client("") as client:
            client.delete(self._chroot, recursive=True)

    # --- the cluster ---

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.address_of, self._processes))

    @property
    def broker_ids(self) -> list[int]:
        return list(self._processes)

    @property
    def zookeeper(self) -> str:
        """``HOST:PORT[/PATH]``, not through a proxy."""
        return self._connect + self._chroot

    def broker(self, broker_id: int) -> NoReturn:
        self._process(broker_id)
        raise RuntimeError(
            "faults and barriers inside of a broker need brokers in this process: Cluster(N)"
        )

    def address_of(self, broker_id: int) -> str:
        return f"{HOST}:{self._process(broker_id).proxy_port}"

    def is_running(self, broker_id: int) -> bool:
        return self._process(broker_id).is_running

    def is_paused(self, broker_id: int) -> bool:
        return self._process(broker_id).is_paused

    def pid(self, broker_id: int) -> int:
        """Return the pid of a broker's newest process."""
        return self._process(broker_id).child.pid

    def log_text(self, broker_id: int) -> str:
        """Return the output of all processes that a broker had."""
        return self._process(broker_id).child.log_file.read_text("utf-8", errors="replace")

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replicas: int | None = None,
        timeout_s: float = WAIT_S,
    ) -> None:
        topic = CreatableTopic(
            name,
            partitions,
            USE_DEFAULT_FACTOR if replicas is None else replicas,
            configs=[CreatableTopicConfig(key, text_of(v)) for key, v in (config or {}).items()],
        )
        request = CreateTopicsRequest([topic], timeout_ms=int(ASK_S * 1000))
        deadline = time.monotonic() + timeout_s
        may_exist = False
        while True:
            code, message = self._created(request)
            if code is ErrorCode.NONE or (code is ErrorCode.TOPIC_ALREADY_EXISTS and may_exist):
                break
            may_exist = True  # the response of an earlier attempt may have been lost
            if code not in _AGAIN or time.monotonic() >= deadline:
                raise KafkaError(code, message or "")
            time.sleep(LOOK_AGAIN_S)
        self.wait_until_in_sync(name, timeout_s=max(0.0, deadline - time.monotonic()))

    def _created(self, request: CreateTopicsRequest) -> tuple[ErrorCode, str | None]:
        for broker in self._responding():
            response = _ask(broker, request, CreateTopicsResponse, 7)
            if response is not None:
                (topic,) = response.topics
                return received_code(topic.error_code), topic.error_message
        return ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds"

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        found = [
            each[topic, partition]
            for _, each in self._metadata(topic)
            if (topic, partition) in each
        ]
        if not found:
            raise ValueError(f"there is no partition {topic}-{partition}")
        newest = max(found, key=lambda each: each.leader_epoch)
        return newest.leader_id if newest.leader_id >= 0 else None

    def controller(self) -> int | None:
        """Return the broker that ``/controller`` names, if it runs and is not paused."""
        with contextlib.suppress(Exception), self._zookeeper_client(self._chroot) as client:
            data, _ = client.get(znodes.CONTROLLER)
            found = self._processes.get(json.loads(data)["brokerid"])
            if found is not None and found.is_running and not found.is_paused:
                return int(json.loads(data)["brokerid"])
        return None

    @contextlib.contextmanager
    def _zookeeper_client(self, chroot: str) -> Iterator[Any]:
        from odradek.metadata.store.zookeeper_client import ZooKeeperAddress, blocking_client

        with blocking_client(ZooKeeperAddress(self._connect, chroot), ASK_S) as client:
            yield client

    # --- failures ---

    def kill(self, broker_id: int) -> None:
        broker = self._running_process(broker_id)
        broker.child.kill()
        broker.is_paused = False

    def restart(self, broker_id: int) -> None:
        broker = self._process(broker_id)
        if broker_id in self._separation.brokers | self._separation.without_store:
            raise RuntimeError(f"broker {broker_id} is cut off and cannot start: call heal()")
        broker.child.stop()
        broker.is_paused = False
        broker.child.start()
        try:
            wait_for(
                lambda: broker_id in live_brokers((HOST, broker.port)),
                [broker.child],
                f"broker {broker_id}, which did not start",
                START_TIMEOUT_S,
            )
        except LaunchFailed as error:
            broker.child.kill()
            raise TimeoutError(str(error)) from error

    def pause(self, broker_id: int) -> None:
        broker = self._running_process(broker_id)
        broker.child.send(signal.SIGSTOP)
        broker.is_paused = True

    def resume(self, broker_id: int) -> None:
        broker = self._process(broker_id)
        if broker.is_paused:
            broker.child.send(signal.SIGCONT)
            broker.is_paused = False

    def partition(
        self, *broker_ids: int, keep_store: bool = False, keep_clients: bool = False
    ) -> None:
        for broker_id in broker_ids:
            self._process(broker_id)
        brokers = frozenset(broker_ids)
        self._separated_by(
            Separation(brokers, not keep_clients, frozenset() if keep_store else brokers)
        )

    def heal(self) -> None:
        self._separated_by(Separation())
        for broker_id in self._processes:
            self.resume(broker_id)

    # --- helpers ---

    def _separated_by(self, separation: Separation) -> None:
        assert self._proxies is not None, "made by `start`"
        self._separation = separation
        self._proxies.separate(separation)

    def _process(self, broker_id: int) -> _Broker:
        try:
            return self._processes[broker_id]
        except KeyError:
            raise unknown_broker(broker_id, self._processes) from None

    def _running_process(self, broker_id: int) -> _Broker:
        broker = self._process(broker_id)
        if not broker.is_running:
            raise RuntimeError(f"broker {broker_id} does not run")
        return broker

    def _responding(self) -> list[_Broker]:
        return [each for each in self._processes.values() if each.is_running and not each.is_paused]

    def _metadata(self, topic: str | None) -> list[tuple[int, Partitions]]:
        """Return the partitions that each responding broker knows."""
        topics = None if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        found = []
        for broker_id, broker in self._processes.items():
            if not broker.is_running or broker.is_paused:
                continue
            response = _ask(broker, request, MetadataResponse, 12)
            if response is not None:
                found.append((broker_id, _partitions(response)))
        if not found:
            raise RuntimeError("no broker runs")
        return found

    def _not_in_sync(self, topic: str | None) -> str:
        known = self._metadata(topic)
        running = {number for number, each in self._processes.items() if each.is_running}
        newest: Partitions = {}
        for _, partitions in known:
            for key, each in partitions.items():
                if key not in newest or _recency(newest[key], running) <= _recency(each, running):
                    newest[key] = each
        if topic is not None and not newest:
            return f"there is no topic {topic}"
        for (name, number), state in newest.items():
            missing = _missing(state, running)
            if state.leader_id < 0 or missing:
                return f"{name}-{number} has leader {state.leader_id}, not in sync: {missing}"
            for broker_id, partitions in known:
                own = partitions.get((name, number))
                if own is None or own.leader_id != state.leader_id or _missing(own, running):
                    return f"broker {broker_id} does not know the state of {name}-{number}"
        return ""


def _missing(partition: MetadataResponsePartition, running: Collection[int]) -> list[int]:
    return sorted((set(partition.replica_nodes) & set(running)) - set(partition.isr_nodes))


def _recency(partition: MetadataResponsePartition, running: Collection[int]) -> tuple[int, int]:
    """Return a key by which the newest of several states is the greatest.

    A change of the ISR does not change the leader epoch. A broker that was cut off has the former
    ISR, which a replica that is missing now was a member of.
    """
    return partition.leader_epoch, len(_missing(partition, running))


def _partitions(response: MetadataResponse) -> Partitions:
    return {
        (topic.name or "", each.partition_index): each
        for topic in response.topics
        if not topic.error_code
        for each in topic.partitions
    }


def _ask(broker: _Broker, request: Message, response: type[M], version: int) -> M | None:
    """Return a broker's response, or None if it does not respond in time."""
    try:
        with BlockingClient.connect((HOST, broker.port), ASK_S, "odradek-testing") as client:
            return client.call(request, response, version)
    except (OSError, TypeError):
        return None
