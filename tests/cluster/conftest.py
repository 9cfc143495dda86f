"""Processes of `odradek serve` on a real ZooKeeper, which needs Java."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from testkit.peer import BrokerProcess
from testkit.peer.artifacts import ROOT
from testkit.peer.server import python_path, start_odradek
from testkit.zookeeper import ZooKeeperProcess, start_zookeeper

SESSION_MS = 3_000
READ_S = 60.0
_roots = itertools.count()


class Processes:
    """The brokers of one cluster, by id. Each test has its own path in ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeperProcess, directory: Path) -> None:
        self.zookeeper = zookeeper
        self.directory = directory
        self.path = f"/cluster-{os.getpid()}-{next(_roots)}"
        self.brokers: dict[int, BrokerProcess] = {}

    @property
    def connect(self) -> str:
        return self.zookeeper.address + self.path

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    def start(
        self, *broker_ids: int, source: Path = ROOT, configs: Mapping[str, str] | None = None
    ) -> None:
        """Start brokers from a source tree."""
        for broker_id in broker_ids:
            properties = {
                "zookeeper.session.timeout.ms": str(SESSION_MS),
                "broker.session.timeout.ms": str(SESSION_MS),
                **(configs or {}),
            }
            options = ("--broker-id", str(broker_id), "--zookeeper", self.connect)
            self.brokers[broker_id] = start_odradek(
                self.directory / str(broker_id), properties, source, options=options
            )

    def upgrade(self, broker_id: int) -> None:
        """Stop a broker and start it again from this source tree."""
        former = self.brokers[broker_id]
        former.stop()
        environment = {**former.environment, "PYTHONPATH": python_path(ROOT)}
        self.brokers[broker_id] = replace(former, environment=environment).restart()

    def restart(self, broker_id: int) -> None:
        """Start a broker again that was stopped or killed."""
        self.brokers[broker_id] = self.brokers[broker_id].restart()

    def read(self, topic: str, partition: int = 0) -> list[str]:
        """Return the values of a partition."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "g", "log_level": 0}
        consumer = Consumer({**settings, "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        values = []
        while (message := consumer.poll(READ_S)) is not None and message.error() is None:
            values.append(message.value().decode())
        assert message is not None, "nothing was read within the limit"
        consumer.close()
        return values

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with start_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def processes(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Processes]:
    found = Processes(zookeeper, tmp_path)
    try:
        yield found
    finally:
        found.stop()
