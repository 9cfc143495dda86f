"""The brokers of a cluster, each a process, on a ZooKeeper of their own.

A leader is killed by SIGKILL at a random moment, whether or not the other replicas are in sync. In
the end, all replicas must be in sync and have the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from conformance.histories.clients import HistoryFile
from conformance.histories.managed_broker import Actions, BrokerEnded, KillableBroker
from testkit.peer.server import start_odradek
from testkit.zookeeper import ZooKeeperProcess, start_zookeeper

LEADER_KILL = "leader-kill"
CLUSTER_FAULTS = (LEADER_KILL, "leader-pause", "zookeeper-kill")
SESSION_MS = 3_000
LAG_MS = 3_000
NO_LEADER_S = 60.0
"""A partition must have a leader within this time, although brokers are killed."""
IN_SYNC_S = 120.0
METADATA_S = 10.0
CHECK_S = 0.2
_BATCH_PREFIX = struct.Struct(">qi")  # base offset, and the length of the rest


def replication(brokers: int) -> tuple[int, int]:
    """Return replication factor and min.insync.replicas for that many brokers."""
    factor = min(3, brokers)
    return factor, max(1, factor - 1)


class ManagedCluster:
    """Brokers by their ids. The thread of the nemesis kills and starts them."""

    scheduled = LEADER_KILL

    def __init__(
        self, brokers: dict[int, KillableBroker], zookeeper: ZooKeeperProcess | None
    ) -> None:
        self.brokers = brokers
        self.zookeeper = zookeeper
        self._failure = ""
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.process.bootstrap for broker in self.brokers.values())

    def check(self) -> None:
        if self._failure:
            raise BrokerEnded(self._failure)
        for broker in self.brokers.values():
            broker.check()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()
        if self.zookeeper is not None:
            self.zookeeper.stop()

    # --- faults ---

    def actions(self, random: Random) -> Actions:
        return {
            LEADER_KILL: lambda: self._kill_leader(random),
            "leader-pause": lambda: self._pause_leader(random),
            "zookeeper-kill": lambda: self._kill_zookeeper(random),
        }

    def _kill_leader(self, random: Random) -> str:
        down_s = random.choice([0.0, random.random(), 3 + 4 * random.random()])
        where, leader = self._some_leader(random)
        if leader is not None:
            leader.kill(down_s)
        return f"{where}, down for {down_s:.2f} s and its start"

    def _pause_leader(self, random: Random) -> str:
        """Suspend a leader, sometimes for longer than its session."""
        for_s = random.choice([1.0, 3.0]) * SESSION_MS / 1000 * random.random()
        where, leader = self._some_leader(random)
        if leader is not None:
            leader.pause(for_s)
        return f"{where}, {for_s:.2f} s"

    def _kill_zookeeper(self, random: Random) -> str:
        down_s = 2 * random.random()
        if self.zookeeper is not None:
            self.zookeeper.kill()
            threading.Event().wait(down_s)
            self.zookeeper.restart()
        return f"down for {down_s:.2f} s and its start"

    def _some_leader(self, random: Random) -> tuple[str, KillableBroker | None]:
        """Return the leader of a random partition. None: no partition has a leader for too long."""
        deadline = time.monotonic() + NO_LEADER_S
        while time.monotonic() < deadline:
            led = [
                (partition, state.leader)
                for partition, state in self._partitions().items()
                if state.leader in self.brokers
            ]
            if led:
                (topic, number), leader = random.choice(led)
                return f"broker {leader}, leader of {topic}-{number}", self.brokers[leader]
            time.sleep(CHECK_S)
        self._failure = f"no partition has a leader for {NO_LEADER_S:.0f} s"
        return "none", None

    def _partitions(self) -> dict[tuple[str, int], Any]:
        """Return librdkafka's metadata of each partition; none while no broker responds."""
        try:
            topics = self._admin.list_topics(timeout=METADATA_S).topics
        except KafkaException:
            return {}
        return {
            (name, number): partition
            for name, topic in topics.items()
            if not name.startswith("__")
            for number, partition in topic.partitions.items()
        }

    # --- the end of a run ---

    def finish(self, partitions: dict[int, TopicPartition], history: HistoryFile) -> None:
        """Wait until all replicas are in sync, stop the brokers, and write `replicas` events."""
        in_sync = self._await_in_sync(list(partitions.values()))
        for broker in self.brokers.values():
            broker.close()
        log_dirs = {number: each.process.log_dir for number, each in self.brokers.items()}
        record_replicas(history, partitions, in_sync, log_dirs)

    def _await_in_sync(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[tuple[str, int], list[int]]:
        factor, _ = replication(len(self.brokers))
        deadline = time.monotonic() + IN_SYNC_S
        while True:
            self.check()
            found = self._partitions()
            in_sync = {
                name: sorted(found[name].isrs)
                for each in partitions
                if (name := (each.topic, each.partition)) in found
            }
            whole = len(in_sync) == len(partitions)
            if whole and all(len(isr) == factor for isr in in_sync.values()):
                return in_sync
            if time.monotonic() > deadline:
                return in_sync
            time.sleep(CHECK_S)


def record_replicas(
    history: HistoryFile,
    partitions: Mapping[int, TopicPartition],
    in_sync: Mapping[tuple[str, int], Sequence[int]],
    log_dirs: Mapping[int, Path],
) -> None:
    """Write a `replicas` event for each partition, by its key. The brokers have stopped.

    Args:
        history: The history.
        partitions: The partitions by key.
        in_sync: The brokers that were in sync at the end.
        log_dirs: The log directory of each broker.
    """
    for key, partition in partitions.items():
        name = f"{partition.topic}-{partition.partition}"
        logs = {
            str(number): digest(log_dir / name)
            for number, log_dir in log_dirs.items()
            if (log_dir / name).is_dir()
        }
        isr = in_sync.get((partition.topic, partition.partition), [])
        history.event("replicas", key=key, in_sync=list(isr), logs=logs)


def digest(directory: Path) -> list[Any]:
    """Return number of batches, bytes, and hash of the log in the directory of a partition.

    A segment may end with allocated zeros.
    """
    hashed, batches, size = hashlib.sha256(), 0, 0
    for segment in sorted(directory.glob("*.log")):
        data, position = segment.read_bytes(), 0
        while position + _BATCH_PREFIX.size <= len(data):
            _, length = _BATCH_PREFIX.unpack_from(data, position)
            end = position + _BATCH_PREFIX.size + length
            if length <= 0 or end > len(data):
                break
            hashed.update(data[position:end])
            batches, size, position = batches + 1, size + end - position, end
    return [batches, size, hashed.hexdigest()]


@contextlib.contextmanager
def running_cluster(
    directory: Path,
    brokers: int,
    *,
    on_zookeeper: bool,
) -> Iterator[ManagedCluster]:
    """Start the brokers. One broker runs without ZooKeeper, too, as a trial of the program."""
    zookeeper = start_zookeeper(directory / "zookeeper") if on_zookeeper else None
    started: dict[int, KillableBroker] = {}
    cluster = None
    try:
        for number in range(1, brokers + 1):
            options = ["--broker-id", str(number)] if zookeeper else []
            options += ["--zookeeper", f"{zookeeper.address}/histories"] if zookeeper else []
            process = start_odradek(
                directory / f"broker-{number}", _properties(brokers, zookeeper), options=options
            )
            started[number] = KillableBroker(process)
        if zookeeper is None:
            (only,) = started.values()
            started = {int(_node_id(only.process.log_dir)): only}
        cluster = ManagedCluster(started, zookeeper)
        yield cluster
    finally:
        if cluster is not None:
            cluster.close()
        else:
            for broker in started.values():
                broker.close()
            if zookeeper is not None:
                zookeeper.stop()


def _properties(brokers: int, zookeeper: ZooKeeperProcess | None) -> dict[str, str]:
    factor, min_isr = replication(brokers)
    properties = {
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(min_isr),
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        "replica.lag.time.max.ms": str(LAG_MS),
    }
    if zookeeper is not None:
        properties["zookeeper.session.timeout.ms"] = str(SESSION_MS)
        properties["broker.session.timeout.ms"] = str(SESSION_MS)
    return properties


def _node_id(log_dir: Path) -> str:
    lines = (log_dir / "meta.properties").read_text(encoding="utf-8").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return found.get("node.id") or found["broker.id"]
