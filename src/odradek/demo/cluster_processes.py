"""The demo's cluster: processes as `odradek cluster up` starts them, one of which is killed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient

from odradek.demo.clients import REQUEST_TIMEOUT_S
from odradek.launcher.cluster import ClusterProcesses
from odradek.launcher.plan import place_cluster
from odradek.launcher.ports import ReservedPorts

SESSION_MS = 3_000
"""Time after which another broker leads the partitions of the killed one."""


class DemoCluster:
    """A running cluster, whose owner is `running_cluster`."""

    def __init__(self, processes: ClusterProcesses) -> None:
        self._processes = processes

    @property
    def bootstrap_servers(self) -> str:
        return self._processes.plan.bootstrap_servers

    def kill_leader(self, topic: str) -> tuple[int, int]:
        """Send SIGKILL to the leader of partition 0. Return its id and its pid.

        Raises:
            KafkaException: No broker responds.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
        found = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].partitions[0]
        broker = self._processes.brokers.get(found.leader)
        if broker is None or not broker.is_running:
            broker = next(iter(self._processes.brokers.values()))
        broker.kill()
        return int(broker.name.split()[-1]), broker.pid


@contextlib.contextmanager
def running_cluster(directory: Path, brokers: int) -> Iterator[DemoCluster]:
    """Run a cluster on free ports of the loopback interface, with its own ZooKeeper.

    Raises:
        ZooKeeperUnavailable: Java or the jars are missing.
        LaunchFailed: The cluster did not start.
    """
    session = str(SESSION_MS)
    configs = {"zookeeper.session.timeout.ms": session, "broker.session.timeout.ms": session}
    with ReservedPorts(brokers + 1) as reserved:
        *ports, zookeeper_port = reserved.ports
        plan = place_cluster(directory, ports, zookeeper_port, configs=configs)
        with ClusterProcesses(plan) as processes:
            processes.start()
            yield DemoCluster(processes)
            for _ in processes.stop():
                pass
