"""Brokers as child processes: started on free loopback ports, stopped by their own pid.

Each broker gets its own directory under the caller's directory, so that their data are on the same
disk. `BrokerProcess.started_s` is the time from the start of the process to the first response
(ApiVersions v0 over a plain socket). It does not include the formatting of the storage.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from testkit.peer.artifacts import ROOT, java_command

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
PORTS = range(20_000, 32_000)  # Linux gives outgoing connections those from 32768 on
# From bin/kafka-run-class.sh and bin/kafka-server-start.sh of Apache Kafka 4.3.
KAFKA_HEAP = "-Xmx1G -Xms1G"
KAFKA_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# Settings that Kafka needs on a single node. A single Odradek behaves the same without them.
SINGLE_NODE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(slots=True)
class BrokerProcess:
    """One running broker, owned by its creator. `stop()` or the end of `with` ends it.

    Attributes:
        started_s: Time from the start of the process to its first response in seconds.
        began_s: The monotonic time of the start of the process.
        replication_factor: The replication factor of topics that a program creates for it.
    """

    name: str
    bootstrap: str
    process: subprocess.Popen[bytes]
    directory: Path
    log_dir: Path
    log_file: Path
    started_s: float
    command: list[str]
    environment: dict[str, str] = field(repr=False, default_factory=dict)
    began_s: float = 0.0
    replication_factor: int = 1

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def pids(self) -> list[int]:
        """The processes whose CPU time and memory count."""
        return [self.process.pid]

    def stop(self) -> float:
        """Send SIGTERM, then SIGKILL if the broker does not end. Return the seconds to its end."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return time.monotonic() - began

    def kill(self) -> None:
        """Send SIGKILL to the whole process group: no handler runs, and no file is flushed."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> BrokerProcess:
        """Start the same command on the same port and directory, after `stop()` or `kill()`."""
        return awaited(self.begin_restart())

    def begin_restart(self) -> BrokerProcess:
        """Do the same without the wait for the first response."""
        return begin_launch(
            self.name, self.bootstrap, self.command, self.directory, self.log_dir, self.environment
        )

    def log_text(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")


def start_kafka(directory: Path, properties: Mapping[str, str] | None = None) -> BrokerProcess:
    """Start Apache Kafka 4.3.0 as one KRaft node. Format its storage before."""
    port, controller_port = free_ports(2)
    requested = {**SINGLE_NODE, **(properties or {})}
    voters = f"{requested.get('node.id', '1')}@{HOST}:{controller_port}"
    node = prepared_kafka(directory, 1, port, controller_port, voters, requested)
    return awaited(node.begin())


@dataclass(frozen=True, slots=True)
class PreparedBroker:
    """A broker that can be started: its files exist. `begin` does not wait for a response."""

    name: str
    bootstrap: str
    command: list[str]
    directory: Path
    log_dir: Path
    environment: dict[str, str] = field(repr=False, default_factory=dict)

    def begin(self) -> BrokerProcess:
        return begin_launch(
            self.name, self.bootstrap, self.command, self.directory, self.log_dir, self.environment
        )


def prepared_kafka(
    directory: Path,
    node_id: int,
    port: int,
    controller_port: int,
    voters: str,
    properties: Mapping[str, str],
) -> PreparedBroker:
    """A combined KRaft node of Apache Kafka 4.3.0 with formatted storage.

    Args:
        directory: The place of its log directory ``kafka-logs``, its configuration and its log.
        node_id: Its id in the cluster.
        port: Its port for clients and other brokers.
        controller_port: Its port as a controller.
        voters: The value of ``controller.quorum.voters``.
        properties: Further configs, which replace the ones of this function.
    """
    log_dir = directory / "kafka-logs"
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(log_dir),
        **_placed(properties, port),
    }
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "server.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()), encoding="utf-8")
    _format_storage(config)
    command = java_command("kafka.Kafka", str(config), heap=KAFKA_HEAP, level="INFO", jvm=KAFKA_JVM)
    return PreparedBroker("kafka", f"{HOST}:{port}", command, directory, log_dir)


def start_odradek(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    source: Path = ROOT,
    *,
    bytecode: bool = True,
    options: Sequence[str] = (),
) -> BrokerProcess:
    """Start `odradek serve`. The arguments are those of `prepared_odradek`."""
    prepared = prepared_odradek(directory, properties, source, bytecode=bytecode, options=options)
    return awaited(prepared.begin())


def prepared_odradek(
    directory: Path,
    properties: Mapping[str, str] | None = None,
    source: Path = ROOT,
    *,
    bytecode: bool = True,
    options: Sequence[str] = (),
) -> PreparedBroker:
    """Return `odradek serve` from the source tree `source`; `--set` passes Kafka's settings.

    With `bytecode` Python keeps the compiled source, as after an installation by pip, even if
    PYTHONDONTWRITEBYTECODE is set here. Without it each start compiles the source again, unless
    `source` has compiled modules. `options` are further options of `odradek serve`.
    """
    (port,) = free_ports(1)
    log_dir = directory / "odradek-logs"
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "odradek",
        "serve",
        "--listen",
        f"{HOST}:{port}",
        "--data",
        str(log_dir),
    ]
    for key, value in _placed(properties, port).items():
        command += ["--set", f"{key}={value}"]
    command += options
    environment = {
        "PYTHONPATH": python_path(source),
        "PYTHONDONTWRITEBYTECODE": "" if bytecode else "1",
    }
    return PreparedBroker("odradek", f"{HOST}:{port}", command, directory, log_dir, environment)


def start_command(
    command: list[str], directory: Path, properties: Mapping[str, str] | None = None
) -> BrokerProcess:
    """Start a broker by its command, with `{address}`, `{data}` and `{advertised}` filled in."""
    (port,) = free_ports(1)
    log_dir = directory / "data"
    directory.mkdir(parents=True, exist_ok=True)
    advertised = (properties or {}).get("advertised.listeners", f"PLAINTEXT://{HOST}:{port}")
    values = {"address": f"{HOST}:{port}", "data": str(log_dir), "advertised": advertised}
    filled = [word.format(**values) for word in command]
    path = os.pathsep.join((str(ROOT), python_path(ROOT)))
    return launch("broker", f"{HOST}:{port}", filled, directory, log_dir, {"PYTHONPATH": path})


def python_path(source: Path) -> str:
    """PYTHONPATH of a process that imports Odradek from the source tree `source`."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join(path for path in (str(source / "src"), inherited) if path)


def _placed(properties: Mapping[str, str] | None, port: int) -> dict[str, str]:
    """The properties with the address that was chosen in place of `{address}`."""
    return {k: v.replace("{address}", f"{HOST}:{port}") for k, v in (properties or {}).items()}


STARTERS: dict[str, Callable[..., BrokerProcess]] = {"kafka": start_kafka, "odradek": start_odradek}


def free_ports(count: int) -> list[int]:
    """Return ports without a listener that no other process of this user gets for a long time.

    The ports are below the range of outgoing connections, so that they are still free when a broker
    is started and restarted. A file counts them for all processes of this user.
    """
    path = cache_directory() / "ports"
    ports: list[int] = []
    with path.open("a+", encoding="ascii") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        number = int(counter.read() or os.getpid())
        while len(ports) < count:
            number += 1
            port = PORTS[number % len(PORTS)]
            if _is_free(port):
                ports.append(port)
        counter.truncate(0)
        counter.write(str(number % len(PORTS)))
    return ports


def cache_directory() -> Path:
    """The user's own directory: another user could create or replace a file in a shared one."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "odradek"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _format_storage(config: Path) -> None:
    command = java_command(
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        "-t",
        "4L6g3nShT-eMCtK--X86sw",
        "-c",
        str(config),
        heap="-Xmx256M",
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"StorageTool failed: {done.stdout}{done.stderr}")


def launch(
    name: str,
    bootstrap: str,
    command: list[str],
    directory: Path,
    log_dir: Path,
    environment: dict[str, str],
) -> BrokerProcess:
    """Start a broker, and return when it responds. Its output goes to a new file."""
    return awaited(begin_launch(name, bootstrap, command, directory, log_dir, environment))


def begin_launch(
    name: str,
    bootstrap: str,
    command: list[str],
    directory: Path,
    log_dir: Path,
    environment: dict[str, str],
) -> BrokerProcess:
    """Start a broker. `awaited` waits until it responds."""
    handle, log_name = tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=directory)
    with os.fdopen(handle, "wb") as output:
        began = time.monotonic()
        process = spawn(command, output, directory, environment)
    return BrokerProcess(
        name,
        bootstrap,
        process,
        directory,
        log_dir,
        Path(log_name),
        0.0,
        command,
        environment,
        began,
    )


def awaited(broker: BrokerProcess) -> BrokerProcess:
    """Wait for the first response of a broker of `begin_launch`, and note how long it took."""
    _await_first_response(broker, broker.began_s)
    broker.started_s = time.monotonic() - broker.began_s
    return broker


def spawn(
    command: list[str], output: BinaryIO, directory: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process in a new session. Its output goes to `output`."""
    return subprocess.Popen(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def _await_first_response(broker: BrokerProcess, began: float) -> None:
    host, port = broker.bootstrap.rsplit(":", 1)
    while not responds(host, int(port)):
        if broker.process.poll() is not None:
            raise RuntimeError(f"{broker.name} ended while starting: {broker.log_text()[-2000:]}")
        if time.monotonic() - began > START_TIMEOUT_S:
            broker.kill()
            raise RuntimeError(f"{broker.name} does not respond: {broker.log_text()[-2000:]}")
        time.sleep(0.002)


def responds(host: str, port: int) -> bool:
    """Return whether the broker responds to ApiVersions (key 18, version 0, header v1)."""
    body = struct.pack(">hhih", 18, 0, 1, 4) + b"ping"
    try:
        with socket.create_connection((host, port), timeout=5) as peer:
            peer.sendall(struct.pack(">i", len(body)) + body)
            return len(peer.recv(8)) > 0
    except OSError:
        return False
