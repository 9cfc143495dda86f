"""Command lines, configs, ports and files of the processes of a cluster on one host. Pure.

The directory of a cluster has these entries: ``broker-N`` is the log directory of broker N, and
``broker-N.log`` its output. ``zookeeper`` has the configuration and the data of ZooKeeper, and
``zookeeper.log`` its output. ``processes.json`` lists the processes that were started last.

Brokers have the ids 1, 2, ... and the ports P, P+1, ... ZooKeeper has the port after theirs.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"
REPLICAS_MAX = 3
"""Replication factor of a topic if the cluster has so many brokers."""
TICK_MS = 500
"""The shortest session timeout is two ticks. Sessions expire at multiples of a tick."""
SESSION_MS_MAX = 60_000
ZOOKEEPER_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
# For a short start: the server does little work.
ZOOKEEPER_JVM = ("-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
LOG_CONFIGURATION = """\
status = WARN
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""
LOG_OF_SESSIONS = """\
logger.sessions.name = org.apache.zookeeper.server.ZooKeeperServer
logger.sessions.level = INFO
"""


def replication_configs(brokers: int) -> dict[str, str]:
    """Return the broker configs of replication for a cluster of so many brokers.

    Topics, internal ones included, get min(3, brokers) replicas. One in-sync replica less must
    remain, and at least 1.
    """
    replicas = str(min(REPLICAS_MAX, brokers))
    min_isr = str(max(1, min(REPLICAS_MAX, brokers) - 1))
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
    }


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker process.

    Attributes:
        broker_id: The id.
        port: Its port on the loopback interface.
        log_dir: Its log directory.
        zookeeper: ``HOST:PORT[/PATH]``.
        configs: Further broker configs.
        host: The address on which it listens. Default: the loopback interface.
    """

    broker_id: int
    port: int
    log_dir: Path
    zookeeper: str
    configs: Mapping[str, str] = field(default_factory=dict)
    host: str = HOST

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def command(self, python: str) -> list[str]:
        """Return the command line, with the Python interpreter at the path `python`."""
        options = {
            "--listen": self.address,
            "--data": str(self.log_dir),
            "--broker-id": str(self.broker_id),
            "--zookeeper": self.zookeeper,
        }
        command = [python, "-m", "odradek", "serve"]
        command += [word for option in options.items() for word in option]
        for key, value in self.configs.items():
            command += ["--set", f"{key}={value}"]
        return command


@dataclass(frozen=True, slots=True)
class ZooKeeperPlan:
    """A ZooKeeper of one server.

    Attributes:
        port: Its port on the loopback interface.
        directory: The place of its configuration and data.
        syncs: Whether a write is synced to the disk before its response.
        host: The address on which it listens. Default: the loopback interface.
        logs_sessions: Whether its log has a line for each session that expires.
    """

    port: int
    directory: Path
    syncs: bool = True
    host: str = HOST
    logs_sessions: bool = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def files(self) -> dict[Path, str]:
        """Return the contents of the files that must exist before the start."""
        lines = (
            f"tickTime={TICK_MS}",
            f"dataDir={self.data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self.host}",
            f"maxSessionTimeout={SESSION_MS_MAX}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
        )
        configuration = "".join(f"{line}\n" for line in lines)
        logging = LOG_CONFIGURATION + (LOG_OF_SESSIONS if self.logs_sessions else "")
        return {self._configuration: configuration, self._logging: logging}

    def command(self, java: str, jars: Sequence[Path]) -> list[str]:
        """Return the command line, with the path of `java` and the jars of the class path."""
        return [
            java,
            *ZOOKEEPER_JVM,
            f"-Dzookeeper.forceSync={'yes' if self.syncs else 'no'}",
            f"-Dlog4j2.configurationFile={self._logging}",
            "-cp",
            os.pathsep.join(map(str, jars)),
            ZOOKEEPER_CLASS,
            str(self._configuration),
        ]

    @property
    def _configuration(self) -> Path:
        return self.directory / "zoo.cfg"

    @property
    def _logging(self) -> Path:
        return self.directory / "log4j2.properties"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster on one host: its brokers, and its ZooKeeper unless it uses another one."""

    directory: Path
    brokers: tuple[BrokerPlan, ...]
    zookeeper: ZooKeeperPlan | None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(each.address for each in self.brokers)

    @property
    def ports(self) -> list[int]:
        """All ports that must be free."""
        ports = [each.port for each in self.brokers]
        return ports if self.zookeeper is None else [*ports, self.zookeeper.port]


def plan_cluster(
    directory: Path,
    brokers: int,
    base_port: int,
    zookeeper: str | None = None,
    configs: Mapping[str, str] | None = None,
) -> ClusterPlan:
    """Return the processes of a cluster on ports that follow each other.

    Args:
        directory: The directory of the cluster, absolute.
        brokers: The number of brokers, at least 1.
        base_port: The port of the first broker. ZooKeeper has the port after the last broker.
        zookeeper: ``HOST:PORT[/PATH]`` of a ZooKeeper that runs. None: the cluster has its own.
        configs: Broker configs, which replace those of `replication_configs`.
    """
    ports = range(base_port, base_port + brokers)
    return place_cluster(directory, ports, base_port + brokers, zookeeper, configs)


def place_cluster(
    directory: Path,
    ports: Sequence[int],
    zookeeper_port: int,
    zookeeper: str | None = None,
    configs: Mapping[str, str] | None = None,
) -> ClusterPlan:
    """Return the processes of a cluster, with a broker on each of the ports."""
    own = None
    if zookeeper is None:
        own = ZooKeeperPlan(zookeeper_port, directory / "zookeeper")
        zookeeper = own.address
    merged = {**replication_configs(len(ports)), **(configs or {})}
    return ClusterPlan(
        directory,
        tuple(
            BrokerPlan(number, port, directory / f"broker-{number}", zookeeper, merged)
            for number, port in enumerate(ports, 1)
        ),
        own,
    )


def stop_order(broker_ids: Iterable[int], controller: int | None) -> list[int]:
    """Return the order in which brokers stop: the controller last.

    It permits the shutdown of the others. If it stopped first, the next broker would have to wait
    for another controller.
    """
    return sorted(broker_ids, key=lambda each: (each == controller, each))


def shell_line(command: Sequence[str]) -> str:
    """Return a command line that a shell reads as this command."""
    return shlex.join(command)


def last_words(log: str) -> str:
    """Return the reason of a process's end from its log: its refusal, else the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    refusals = [line for line in lines if line.startswith("odradek: ")]
    found = refusals[-1:] or lines[-1:]
    return found[0].removeprefix("odradek: ") if found else "it has printed nothing"


def exit_text(code: int, signal_names: Mapping[int, str]) -> str:
    """Return how a process ended, such as "exit code 1" or "signal SIGKILL".

    Args:
        code: The return code of `subprocess`, negative for a signal.
        signal_names: The names of signals by their number.
    """
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal_names.get(-code, str(-code))}"
