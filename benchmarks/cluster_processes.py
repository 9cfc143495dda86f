"""Clusters of three brokers for measurements: Odradek on ZooKeeper, and Apache Kafka 4.3.0.

`testkit.peer.cluster` has clusters for tests, which return when they serve. Here the caller can see
the time of the start, and ZooKeeper works as in production.

Kafka's brokers are combined nodes: each one is a broker and a controller of the KRaft quorum.
Odradek's cluster has a ZooKeeper of one server, which counts as a process of the cluster. It syncs
each write, as a server in production does.

All processes of a cluster are started at the same time, and stopped by their own pid.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from odradek.launcher.plan import BrokerPlan, ZooKeeperPlan, replication_configs
from odradek.launcher.readiness import controller_of, live_brokers
from testkit.peer.artifacts import ROOT
from testkit.peer.server import (
    HOST,
    BrokerProcess,
    PreparedBroker,
    awaited,
    free_ports,
    prepared_kafka,
    python_path,
)
from testkit.zookeeper import ZooKeeperProcess

BROKERS = 3
LIVE_TIMEOUT_S = 240.0
PROBE_AGAIN_S = 0.02
COMMON = {**replication_configs(BROKERS), "group.initial.rebalance.delay.ms": "0"}


@dataclass(slots=True)
class ClusterProcesses:
    """The running processes of one cluster, owned by its creator.

    Attributes:
        name: "odradek" or "kafka".
        brokers: The broker processes by their id.
        zookeeper: The ZooKeeper of Odradek's cluster.
        began_s: The monotonic time at which the first process was started.
        replication_factor: The replication factor of topics that a program creates for it.
    """

    name: str
    brokers: dict[int, BrokerProcess]
    zookeeper: ZooKeeperProcess | None = None
    began_s: float = 0.0
    replication_factor: int = BROKERS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def pids(self) -> list[int]:
        """The processes whose CPU time and memory count, with ZooKeeper's."""
        pids = [broker.pid for broker in self.brokers.values()]
        return pids if self.zookeeper is None else [*pids, self.zookeeper.child.pid]

    def await_live(self) -> None:
        """Wait until each broker knows all brokers as brokers that may lead.

        Raises:
            RuntimeError: A broker has ended, or the time is over.
        """
        deadline = time.monotonic() + LIVE_TIMEOUT_S
        ids = set(self.brokers)
        for broker in self.brokers.values():
            host, port = broker.bootstrap.rsplit(":", 1)
            while not live_brokers((host, int(port))) >= ids:
                if broker.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} does not run: {broker.log_text()[-2000:]}")
                time.sleep(PROBE_AGAIN_S)

    def restart_all(self) -> None:
        """Start all brokers at the same time after `stop_brokers`. Do not wait for them."""
        self.began_s = time.monotonic()
        for number, broker in self.brokers.items():
            self.brokers[number] = broker.begin_restart()

    def stop_brokers(self) -> dict[int, float]:
        """Stop the brokers cleanly. Return the seconds of each one.

        Odradek's controller is the last one, because it permits the stop of the others. Kafka's
        combined nodes get SIGTERM at the same time: the last two alone have no quorum, without
        which a broker waits for its permission.
        """
        if self.name == "odradek":
            ports = [int(broker.bootstrap.rsplit(":", 1)[1]) for broker in self.brokers.values()]
            controller = controller_of(ports)
            order = sorted(self.brokers, key=lambda number: (number == controller, number))
            return {number: self.brokers[number].stop() for number in order}
        taken: dict[int, float] = {}
        threads = [
            threading.Thread(target=lambda n=number: taken.update({n: self.brokers[n].stop()}))
            for number in self.brokers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return taken

    def stop(self) -> None:
        """End all processes by SIGKILL. Their files are not needed any longer."""
        for broker in self.brokers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(broker.pid, signal.SIGCONT)
            broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.child.kill()


def _begin(name: str, prepared: Mapping[int, PreparedBroker]) -> ClusterProcesses:
    return ClusterProcesses(name, {number: each.begin() for number, each in prepared.items()})


def start_kafka_cluster(
    directory: Path, properties: Mapping[str, str] | None = None, *, wait: bool = True
) -> ClusterProcesses:
    """Start three combined nodes of Apache Kafka 4.3.0, formatted beforehand.

    Args:
        directory: The place of the directories of the nodes.
        properties: Configs for each node.
        wait: Whether to return when all brokers are live. Otherwise they are just started.
    """
    ids = range(1, BROKERS + 1)
    ports, controller_ports = free_ports(BROKERS), free_ports(BROKERS)
    voters = ",".join(
        f"{number}@{HOST}:{port}" for number, port in zip(ids, controller_ports, strict=True)
    )
    settings = {**COMMON, **(properties or {})}
    prepared = {
        number: prepared_kafka(
            directory / f"node-{number}", number, port, controller_port, voters, settings
        )
        for number, port, controller_port in zip(ids, ports, controller_ports, strict=True)
    }
    began = time.monotonic()
    cluster = _begin("kafka", prepared)
    cluster.began_s = began
    return _ready(cluster) if wait else cluster


def start_odradek_cluster(
    directory: Path, properties: Mapping[str, str] | None = None, *, wait: bool = True
) -> ClusterProcesses:
    """Start a ZooKeeper and three `odradek serve`. The arguments are those of Kafka's cluster."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {**COMMON, **(properties or {})}
    zookeeper_port, *ports = free_ports(1 + BROKERS)
    environment = {"PYTHONPATH": python_path(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    zookeeper = ZooKeeperProcess(ZooKeeperPlan(zookeeper_port, directory / "zookeeper", syncs=True))
    prepared = {}
    for number, port in enumerate(ports, 1):
        place = directory / f"broker-{number}"
        place.mkdir(exist_ok=True)
        plan = BrokerPlan(number, port, place / "data", zookeeper.address, settings)
        command = plan.command(sys.executable)
        prepared[number] = PreparedBroker(
            "odradek", plan.address, command, place, plan.log_dir, environment
        )
    began = time.monotonic()
    starting = threading.Thread(target=zookeeper.start)  # the brokers wait for it
    starting.start()
    cluster = _begin("odradek", prepared)
    starting.join()
    cluster.zookeeper, cluster.began_s = zookeeper, began
    return _ready(cluster) if wait else cluster


def _ready(cluster: ClusterProcesses) -> ClusterProcesses:
    """Wait until the cluster serves. End its processes if it does not."""
    try:
        for broker in cluster.brokers.values():
            awaited(broker)
        cluster.await_live()
    except BaseException:
        cluster.stop()
        raise
    return cluster


CLUSTER_STARTERS = {"odradek": start_odradek_cluster, "kafka": start_kafka_cluster}
