"""ZooKeeper as a child process, from the jars in PySpark's wheel. It needs Java 17 or later.

One standalone server listens on a free loopback port. `ZooKeeperProcess.stop` or the end of `with`
ends it. Its data are in the caller's directory, and are not synced unless the caller asks for it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from testkit.peer.server import HOST, free_ports, spawn

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
TICK_MS = 500
"""The shortest session timeout is two ticks. Sessions expire at multiples of a tick."""
JARS = (
    "zookeeper-*",
    "slf4j-api-*",
    "log4j-api-*",
    "log4j-core-*",
    "log4j-slf4j2-impl-*",
    "netty-*",
    "commons-io-*",
    "snappy-java-*",
    "metrics-core-*",
)
# For a short start: the server does little work.
JVM = ("-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
LOG_CONFIGURATION = Path(__file__).resolve().parent / "peer" / "log4j2.properties"


class ZooKeeperUnavailable(RuntimeError):
    """ZooKeeper cannot run on this machine. The message is one sentence with the reason."""


@dataclass(slots=True)
class ZooKeeperProcess:
    """One running server, owned by its creator."""

    port: int
    process: subprocess.Popen[bytes]
    directory: Path
    command: list[str]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> ZooKeeperProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the server does not end."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        """Start the server again on the same port and directory, after `stop` or `kill`."""
        self.process = _launch(self.command, self.directory)
        _await_start(self)


def start_zookeeper(directory: Path, *, syncs: bool = False) -> ZooKeeperProcess:
    """Start a server and wait until it serves.

    Args:
        directory: The place of its data, its configuration and its log. Created if missing.
        syncs: Whether a write is synced to the disk before its response.
    """
    (port,) = free_ports(1)
    data = directory / "data"
    data.mkdir(parents=True, exist_ok=True)
    configuration = directory / "zoo.cfg"
    lines = (
        f"tickTime={TICK_MS}",
        f"dataDir={data}",
        f"clientPort={port}",
        f"clientPortAddress={HOST}",
        "maxSessionTimeout=60000",
        "maxClientCnxns=0",
        "admin.enableServer=false",
    )
    configuration.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [
        _java(),
        *JVM,
        f"-Dzookeeper.forceSync={'yes' if syncs else 'no'}",
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
        "-cp",
        _class_path(),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(configuration),
    ]
    server = ZooKeeperProcess(port, _launch(command, directory), directory, command)
    _await_start(server)
    return server


def _launch(command: list[str], directory: Path) -> subprocess.Popen[bytes]:
    with (directory / "zookeeper.log").open("ab") as output:
        return spawn(command, output, directory, {})


def _await_start(server: ZooKeeperProcess) -> None:
    began = time.monotonic()
    while not serves(server.port):
        log = (server.directory / "zookeeper.log").read_text("utf-8", errors="replace")[-2000:]
        if server.process.poll() is not None:
            raise RuntimeError(f"ZooKeeper ended while starting: {log}")
        if time.monotonic() - began > START_TIMEOUT_S:
            server.kill()
            raise RuntimeError(f"ZooKeeper does not respond: {log}")
        time.sleep(0.02)


def serves(port: int) -> bool:
    """Return whether the server at the port of this host responds to the command ``srvr``."""
    try:
        with socket.create_connection((HOST, port), timeout=5) as peer:
            peer.sendall(b"srvr")
            return peer.recv(9) == b"Zookeeper"
    except OSError:
        return False


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise ZooKeeperUnavailable("ZooKeeper needs Java 17 or later: there is no `java`.")
    return found


def _class_path() -> str:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ZooKeeperUnavailable("ZooKeeper's jars are in PySpark, which is not installed.")
    directory = Path(pyspark.origin).parent / "jars"
    jars = [str(jar) for pattern in JARS for jar in sorted(directory.glob(f"{pattern}.jar"))]
    return os.pathsep.join(jars)
