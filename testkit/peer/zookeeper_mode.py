"""Brokers of Apache Kafka 3.9 on ZooKeeper, as child processes.

3.9 is the last release that runs on ZooKeeper. Maven fetches its jars once to `.cache/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testkit.peer.artifacts import CACHE, fetch, java_command
from testkit.peer.server import HOST, BrokerProcess, free_ports, launch

KAFKA_39_VERSION = "3.9.1"
JARS = CACHE / f"kafka-{KAFKA_39_VERSION}"
# For a short start: three of them run on one machine, and have little to do.
HEAP = "-Xmx256M"
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


def start_kafka_39(
    directory: Path,
    broker_id: int,
    zookeeper: str,
    properties: Mapping[str, str] | None = None,
) -> BrokerProcess:
    """Start one broker of a cluster on a free port. Return when it responds.

    Args:
        directory: The place of its log directory ``kafka-logs``, its configuration and its log.
        broker_id: Its id in the cluster.
        zookeeper: ``HOST:PORT/PATH`` of the cluster.
        properties: Further configs.
    """
    (port,) = free_ports(1)
    log_dir = directory / "kafka-logs"
    settings = {
        "broker.id": str(broker_id),
        "zookeeper.connect": zookeeper,
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(log_dir),
        "group.initial.rebalance.delay.ms": "0",
        **(properties or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "server.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()), encoding="utf-8")
    command = java_command(
        "kafka.Kafka", str(config), heap=HEAP, level="INFO", jvm=JVM, class_path=f"{_jars()}/*"
    )
    return launch("kafka", f"{HOST}:{port}", command, directory, log_dir, {})


def _jars() -> Path:
    if not JARS.is_dir():
        fetch(JARS, "zookeeper_mode.xml")
    return JARS
