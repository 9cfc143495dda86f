"""Clusters as child processes: brokers of Odradek on ZooKeeper, and nodes of Apache Kafka.

Each node of Apache Kafka is a broker and a controller. The brokers of both clusters have the ids 1,
2, ... and the same configs of replication and of sessions.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from odradek.launcher.plan import replication_configs, stop_order
from odradek.launcher.readiness import controller_of, live_brokers
from testkit.peer.server import (
    HOST,
    START_TIMEOUT_S,
    BrokerProcess,
    free_ports,
    start_kafka,
    start_odradek,
)
from testkit.zookeeper import ZooKeeperProcess, start_zookeeper

SESSION_MS = 6_000
PROBE_AGAIN_S = 0.05


@dataclass(slots=True)
class ClusterProcesses:
    """The brokers of one cluster by their ids, and its ZooKeeper. Owned by its creator."""

    name: str
    brokers: dict[int, BrokerProcess]
    zookeeper: ZooKeeperProcess | None = None

    def __enter__(self) -> ClusterProcesses:
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

    def kill(self, broker_id: int) -> None:
        self.brokers[broker_id].kill()

    def restart(self, broker_id: int) -> None:
        """Start a broker again that was killed. Return when it responds."""
        self.brokers[broker_id] = self.brokers[broker_id].restart()

    def ended(self) -> list[tuple[int, str]]:
        """Return the brokers whose processes have ended, and their logs."""
        return [
            (number, each.log_text())
            for number, each in self.brokers.items()
            if each.process.poll() is not None
        ]

    def stop(self) -> float:
        """Stop all brokers, then ZooKeeper. Return the seconds to their end.

        Brokers of Odradek stop one after the other, the controller last. Nodes of Apache Kafka stop
        together: after the second one their quorum is lost.
        """
        began = time.monotonic()
        running = [number for number, each in self.brokers.items() if each.process.poll() is None]
        if self.zookeeper is None:
            with ThreadPoolExecutor(max(1, len(running))) as threads:
                list(threads.map(lambda number: self.brokers[number].stop(), running))
        else:
            controller = controller_of(_port(self.brokers[each]) for each in running)
            for number in stop_order(running, controller):
                self.brokers[number].stop()
            self.zookeeper.stop()
        return time.monotonic() - began


def start_odradek_cluster(
    directory: Path, properties: Mapping[str, str] | None = None, brokers: int = 3
) -> ClusterProcesses:
    """Start brokers of Odradek, and a ZooKeeper. Return when each broker may lead."""
    configs = {"zookeeper.session.timeout.ms": str(SESSION_MS), **_configs(brokers, properties)}
    zookeeper = start_zookeeper(directory / "zookeeper")

    def start(number: int) -> BrokerProcess:
        options = ("--broker-id", str(number), "--zookeeper", zookeeper.address)
        return start_odradek(directory / f"broker-{number}", configs, options=options)

    try:
        started = _start_all(start, _ids(brokers, properties))
    except BaseException:
        zookeeper.kill()
        raise
    return _when_live(ClusterProcesses("odradek", started, zookeeper))


def start_kafka_cluster(
    directory: Path, properties: Mapping[str, str] | None = None, brokers: int = 3
) -> ClusterProcesses:
    """Start nodes of Apache Kafka 4.3.0. Return when each broker may lead."""
    ids = _ids(brokers, properties)
    ports = free_ports(2 * brokers)
    of = {each: (ports[2 * at], ports[2 * at + 1]) for at, each in enumerate(ids)}
    replicas, min_isr = str(min(3, brokers)), str(max(1, min(3, brokers) - 1))
    configs = {
        **_configs(brokers, properties),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": min_isr,
        "controller.quorum.voters": ",".join(f"{each}@{HOST}:{of[each][1]}" for each in ids),
    }

    def start(number: int) -> BrokerProcess:
        own = {**configs, "node.id": str(number)}
        return start_kafka(directory / f"broker-{number}", own, of[number])

    return _when_live(ClusterProcesses("kafka", _start_all(start, ids)))


CLUSTER_STARTERS: dict[str, Callable[..., ClusterProcesses]] = {
    "kafka": start_kafka_cluster,
    "odradek": start_odradek_cluster,
}


def _ids(brokers: int, properties: Mapping[str, str] | None) -> list[int]:
    """Return the ids of the brokers. The first is the property ``node.id``, or 1."""
    first = int((properties or {}).get("node.id", "1"))
    return list(range(first, first + brokers))


def _configs(brokers: int, properties: Mapping[str, str] | None) -> dict[str, str]:
    given = {key: value for key, value in (properties or {}).items() if key != "node.id"}
    return {
        **replication_configs(brokers),
        "broker.session.timeout.ms": str(SESSION_MS),
        "group.initial.rebalance.delay.ms": "0",
        **given,
    }


def _start_all(
    start: Callable[[int], BrokerProcess], broker_ids: list[int]
) -> dict[int, BrokerProcess]:
    """Start the brokers at the same time: a node of Kafka responds when the quorum exists."""
    started: dict[int, BrokerProcess] = {}
    with ThreadPoolExecutor(len(broker_ids)) as threads:
        futures = {each: threads.submit(start, each) for each in broker_ids}
    try:
        for number, future in futures.items():
            started[number] = future.result()
    except BaseException:
        for future in futures.values():
            if future.exception() is None:
                future.result().kill()
        raise
    return started


def _when_live(cluster: ClusterProcesses) -> ClusterProcesses:
    """Return the cluster when each broker knows that all may lead."""
    deadline = time.monotonic() + START_TIMEOUT_S
    ids = set(cluster.brokers)
    for broker in cluster.brokers.values():
        while not live_brokers((HOST, _port(broker))) >= ids:
            if time.monotonic() > deadline:
                with contextlib.suppress(Exception):
                    cluster.stop()
                raise RuntimeError(f"{cluster.name}: not all brokers are live: {broker.log_file}")
            time.sleep(PROBE_AGAIN_S)
    return cluster


def _port(broker: BrokerProcess) -> int:
    return int(broker.bootstrap.rpartition(":")[2])
