"""Clusters as child processes: brokers of Odradek on ZooKeeper, and nodes of Apache Kafka 4.3.0.

Each node of Apache Kafka is a broker and a controller of the KRaft quorum. Odradek's cluster has a
ZooKeeper of one server, which counts as a process of the cluster. The brokers of both have the ids
1, 2, ... and the same configs of replication and of sessions. All processes of a cluster are
started at the same time, and ended by their own pid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from odradek.launcher.plan import replication_configs, stop_order
from odradek.launcher.readiness import controller_of, live_brokers
from testkit.peer.server import (
    HOST,
    BrokerProcess,
    PreparedBroker,
    awaited,
    free_ports,
    prepared_kafka,
    prepared_odradek,
)
from testkit.zookeeper import ZooKeeperProcess, prepared_zookeeper

SESSION_MS = 6_000
LIVE_TIMEOUT_S = 240.0
PROBE_AGAIN_S = 0.02


@dataclass(slots=True)
class ClusterProcesses:
    """The running processes of one cluster. Owned by its creator; `stop` or `with` ends them.

    Attributes:
        name: "odradek" or "kafka".
        brokers: The broker processes by their id.
        zookeeper: The ZooKeeper of Odradek's cluster.
        began_s: The monotonic time at which the first broker was started.
    """

    name: str
    brokers: dict[int, BrokerProcess] = field(default_factory=dict)
    zookeeper: ZooKeeperProcess | None = None
    began_s: float = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    @property
    def log_dirs(self) -> list[Path]:
        """The log directory of each broker, in the order of the addresses."""
        return [each.log_dir for each in self.brokers.values()]

    @property
    def pids(self) -> list[int]:
        """The processes whose CPU time and memory count, with ZooKeeper's."""
        pids = [each.pid for each in self.brokers.values()]
        return pids if self.zookeeper is None else [*pids, self.zookeeper.child.pid]

    @property
    def replication_factor(self) -> int:
        """The replication factor of topics that a program creates for it."""
        return int(replication_configs(len(self.brokers))["default.replication.factor"])

    def kill(self, broker_id: int) -> None:
        self.brokers[broker_id].kill()

    def restart(self, broker_id: int) -> None:
        """Start a broker again that was killed. Return when it responds."""
        self.brokers[broker_id] = self.brokers[broker_id].restart()

    def restart_all(self) -> None:
        """Start all brokers at the same time after `stop_brokers`. Do not wait for them."""
        self.began_s = time.monotonic()
        for number, broker in self.brokers.items():
            self.brokers[number] = broker.begin_restart()

    def ended(self) -> list[tuple[int, str]]:
        """Return the brokers whose processes have ended, and their logs."""
        return [
            (number, each.log_text())
            for number, each in self.brokers.items()
            if each.process.poll() is not None
        ]

    def await_live(self) -> None:
        """Wait until each broker knows all brokers as brokers that may lead.

        Raises:
            RuntimeError: A broker has ended, or the time is over.
        """
        deadline = time.monotonic() + LIVE_TIMEOUT_S
        ids = set(self.brokers)
        for broker in self.brokers.values():
            while not live_brokers((HOST, _port(broker))) >= ids:
                if broker.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} does not run: {broker.log_text()[-2000:]}")
                time.sleep(PROBE_AGAIN_S)

    def stop_brokers(self) -> dict[int, float]:
        """Stop the running brokers cleanly. Return the seconds of each one.

        Brokers of Odradek stop one after the other, the controller last. Nodes of Apache Kafka stop
        together: after the second one their quorum is lost.
        """
        running = {number: each for number, each in self.brokers.items() if _runs(each)}
        if self.zookeeper is None:
            with ThreadPoolExecutor(max(1, len(running))) as threads:
                taken = threads.map(lambda each: each.stop(), running.values())
                return dict(zip(running, taken, strict=True))
        controller = controller_of(_port(each) for each in running.values())
        return {each: running[each].stop() for each in stop_order(running, controller)}

    def stop(self) -> float:
        """Stop all brokers cleanly, then ZooKeeper. Return the seconds to their end."""
        began = time.monotonic()
        self.stop_brokers()
        if self.zookeeper is not None:
            self.zookeeper.stop()
        return time.monotonic() - began

    def kill_all(self) -> None:
        """End all processes by SIGKILL."""
        for broker in self.brokers.values():
            broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()


def start_odradek_cluster(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    brokers: int = 3,
    *,
    measured: bool = False,
    wait: bool = True,
) -> ClusterProcesses:
    """Start brokers of Odradek, and a ZooKeeper.

    Args:
        directory: The place of the directories of the processes.
        properties: Configs of each broker. ``node.id`` is the id of the first one.
        brokers: The number of brokers.
        measured: Whether sessions have Kafka's default timeouts, and ZooKeeper syncs each write as
            in production. Otherwise sessions last `SESSION_MS`, and nothing is synced.
        wait: Whether to return when each broker may lead. Otherwise the brokers are just started.
    """
    configs = _configs(brokers, properties, measured)
    if not measured:
        configs.setdefault("zookeeper.session.timeout.ms", str(SESSION_MS))
    zookeeper = prepared_zookeeper(directory / "zookeeper", syncs=measured)
    prepared = {
        number: prepared_odradek(
            directory / f"broker-{number}",
            configs,
            options=("--broker-id", str(number), "--zookeeper", zookeeper.address),
        )
        for number in _ids(brokers, properties)
    }
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(zookeeper.start)  # the brokers wait for it
        try:
            cluster = _begun("odradek", prepared)
        except BaseException:
            if started.exception() is None:
                zookeeper.kill()
            raise
    if (error := started.exception()) is not None:
        cluster.kill_all()
        raise error
    cluster.zookeeper = zookeeper
    return _when_live(cluster) if wait else cluster


def start_kafka_cluster(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    brokers: int = 3,
    *,
    measured: bool = False,
    wait: bool = True,
) -> ClusterProcesses:
    """Start nodes of Apache Kafka 4.3.0, formatted before. The arguments are those of Odradek's."""
    ids = _ids(brokers, properties)
    ports, controller_ports = free_ports(brokers), free_ports(brokers)
    voters = [f"{each}@{HOST}:{port}" for each, port in zip(ids, controller_ports, strict=True)]
    replication = replication_configs(brokers)
    configs = {
        "share.coordinator.state.topic.replication.factor": replication[
            "offsets.topic.replication.factor"
        ],
        "share.coordinator.state.topic.min.isr": replication["min.insync.replicas"],
        **_configs(brokers, properties, measured),
    }
    with ThreadPoolExecutor(brokers) as threads:
        futures = {
            each: threads.submit(
                prepared_kafka,
                directory / f"broker-{each}",
                each,
                port,
                controller_port,
                ",".join(voters),
                configs,
            )
            for each, port, controller_port in zip(ids, ports, controller_ports, strict=True)
        }
    cluster = _begun("kafka", {each: future.result() for each, future in futures.items()})
    return _when_live(cluster) if wait else cluster


CLUSTER_STARTERS: dict[str, Callable[..., ClusterProcesses]] = {
    "kafka": start_kafka_cluster,
    "odradek": start_odradek_cluster,
}


def _ids(brokers: int, properties: Mapping[str, str] | None) -> list[int]:
    """Return the ids of the brokers. The first is the property ``node.id``, or 1."""
    first = int((properties or {}).get("node.id", "1"))
    return list(range(first, first + brokers))


def _configs(brokers: int, properties: Mapping[str, str] | None, measured: bool) -> dict[str, str]:
    given = {key: value for key, value in (properties or {}).items() if key != "node.id"}
    sessions = {} if measured else {"broker.session.timeout.ms": str(SESSION_MS)}
    return {
        **replication_configs(brokers),
        "group.initial.rebalance.delay.ms": "0",
        **sessions,
        **given,
    }


def _begun(name: str, prepared: Mapping[int, PreparedBroker]) -> ClusterProcesses:
    """Start the brokers at the same time: a node of Kafka responds when the quorum exists."""
    cluster = ClusterProcesses(name, began_s=time.monotonic())
    try:
        for number, each in prepared.items():
            cluster.brokers[number] = each.begin()
    except BaseException:
        cluster.kill_all()
        raise
    return cluster


def _when_live(cluster: ClusterProcesses) -> ClusterProcesses:
    """Return the cluster when it serves. End its processes if it does not."""
    try:
        for broker in cluster.brokers.values():
            awaited(broker)
        cluster.await_live()
    except BaseException:
        cluster.kill_all()
        raise
    return cluster


def _runs(broker: BrokerProcess) -> bool:
    return broker.process.poll() is None


def _port(broker: BrokerProcess) -> int:
    return int(broker.bootstrap.rpartition(":")[2])
