"""The table of Kafka's first paper: one producer, one consumer, messages of 200 bytes.

librdkafka drives Odradek and Apache Kafka. `benchmarks.amqp` drives RabbitMQ, and
`programs/ActiveMq.java` drives ActiveMQ. The latter two brokers come from the system's packages
(Debian: `apt-get install --no-install-recommends rabbitmq-server activemq`). A batch is a record
batch, a write or a transaction, depending on the client. None of the brokers forces a message to
the disk before it responds. Without one of the packages nothing is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.loads import LOAD_TIMEOUT_S, drop_topic, fresh_topic, rdkafka
from benchmarks.processes import cpu_seconds
from testkit.peer.artifacts import ROOT
from testkit.peer.server import HOST, STARTERS, BrokerProcess, free_ports, spawn

MILLION = 1_000_000
SIZE = 200
MESSAGES = {1: 200_000, 50: 1_000_000}
"""Number of messages by batch size. The slower brokers get half."""
SLOWER = 0.5
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
RABBIT_LIBRARY = Path("/usr/lib/rabbitmq/lib")
JAVA_PACKAGES = Path("/usr/share/java")
ACTIVEMQ_JARS = (
    "activemq-broker",
    "activemq-client",
    "activemq-kahadb-store",
    "activemq-openwire-legacy",
    "activemq-protobuf",
    "geronimo-jms_1.1_spec",
    "geronimo-j2ee-management-1.1-spec",
    "hawtbuf",
    "slf4j-api",
    "slf4j-nop",
)
SOURCE = Path(__file__).parent / "programs" / "ActiveMq.java"


class Missing(Exception):
    """A broker cannot run on this machine. The message is one sentence with the reason."""


class Peer(Protocol):
    """A broker that the table can drive."""

    share: float

    def produce(self, name: str, count: int, batch: int) -> tuple[float, float]: ...

    def consume(self, name: str, count: int) -> tuple[float, float]: ...

    def fresh(self) -> str: ...

    def drop(self, name: str) -> None: ...

    def stop(self) -> None: ...


@dataclass(slots=True)
class KafkaPeer:
    """Odradek or Apache Kafka, driven by librdkafka; seconds and CPU-seconds of the broker."""

    broker: BrokerProcess
    share: float = 1.0

    def fresh(self) -> str:
        return fresh_topic(self.broker)

    def drop(self, name: str) -> None:
        drop_topic(self.broker, name)

    def produce(self, name: str, count: int, batch: int) -> tuple[float, float]:
        result, cpu = rdkafka(self.broker, "produce", name, records=count, size=SIZE, batch=batch)
        return float(str(result["seconds"])), cpu

    def consume(self, name: str, count: int) -> tuple[float, float]:
        result, cpu = rdkafka(self.broker, "fetch", name, records=count)
        return float(str(result["assigned_seconds"])), cpu

    def stop(self) -> None:
        self.broker.stop()


@dataclass(slots=True)
class OtherPeer:
    """A broker that does not speak Kafka's protocol, and the command lines of its clients."""

    process: subprocess.Popen[bytes]
    producer: Callable[[str, int, int], list[str]]
    consumer: Callable[[str, int], list[str]]
    after: Callable[[], None]
    queues: int = 0
    share: float = SLOWER

    def fresh(self) -> str:
        self.queues += 1
        return f"bench-{self.queues}"

    def drop(self, name: str) -> None:
        """Do nothing, because the consumer has emptied the queue."""

    def produce(self, name: str, count: int, batch: int) -> tuple[float, float]:
        return self._measured(self.producer(name, count, batch))

    def consume(self, name: str, count: int) -> tuple[float, float]:
        return self._measured(self.consumer(name, count))

    def _measured(self, command: list[str]) -> tuple[float, float]:
        before = cpu_seconds(self.process.pid)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False, cwd=ROOT
        )
        time.sleep(0.2)
        if done.returncode != 0:
            raise RuntimeError(f"{command[-6:]}: {done.stdout[-400:]}{done.stderr[-800:]}")
        seconds = json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
        return seconds, cpu_seconds(self.process.pid) - before

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.after()


def _launched(
    command: list[str], work: Path, environment: dict[str, str], port: int
) -> subprocess.Popen[bytes]:
    """Start a process. Return it when its port accepts connections."""
    log = work / "broker.log"
    with log.open("wb") as output:
        process = spawn(command, output, work, environment)
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((HOST, port), 5).close()
            return process
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise RuntimeError(log.read_text(errors="replace")[-1000:]) from None
            time.sleep(0.1)


def start_rabbitmq(work: Path) -> Peer:
    """The package's server with its own data, log, node name and port mapper."""
    found = sorted(RABBIT_LIBRARY.glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not found or not (mapper := shutil.which("epmd")):
        raise Missing("the package rabbitmq-server is not installed on this machine")
    work.mkdir(parents=True)
    port, distribution, mapped = free_ports(3)
    own = {
        "HOME": str(work),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(work / "mnesia"),
        "RABBITMQ_LOG_BASE": str(work / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(work / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(work / "rabbitmq"),
        "RABBITMQ_PID_FILE": str(work / "pid"),
        "ERL_EPMD_PORT": str(mapped),
        "ERL_EPMD_ADDRESS": HOST,
    }
    (work / "plugins").write_text("[].\n", encoding="utf-8")

    def end_mapper() -> None:
        subprocess.run([mapper, "-port", str(mapped), "-kill"], check=False, capture_output=True)

    process = _launched([str(found[-1])], work, own, port)
    client = [sys.executable, "-m", "benchmarks.amqp"]
    address = f"{HOST}:{port}"
    return OtherPeer(
        process,
        lambda name, count, batch: [
            *client, "produce", address, name,
            "--records", str(count), "--size", str(SIZE), "--batch", str(batch),
        ],
        lambda name, count: [*client, "consume", address, name, "--records", str(count)],
        end_mapper,
    )  # fmt: skip


def start_activemq(work: Path) -> Peer:
    """The package's broker with its KahaDB store, in a program of its own."""
    jars = [JAVA_PACKAGES / f"{name}.jar" for name in ACTIVEMQ_JARS]
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        raise Missing(f"the package activemq is not installed on this machine: no {missing[0]}")
    compiler = shutil.which("javac")
    if compiler is None:
        raise Missing("ActiveMQ's clients are compiled by javac: it is not on the PATH")
    work.mkdir(parents=True)
    path = os.pathsep.join(str(jar) for jar in jars)
    compiled = subprocess.run(
        [compiler, "-cp", path, "-d", str(work), str(SOURCE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if compiled.returncode != 0:
        raise RuntimeError(compiled.stderr)
    (port,) = free_ports(1)
    url = f"tcp://{HOST}:{port}"
    java = ["java", "-Xmx1G", "-cp", f"{work}{os.pathsep}{path}", "ActiveMq"]
    process = _launched([*java, "broker", url, str(work / "data")], work, {}, port)
    return OtherPeer(
        process,
        lambda name, count, batch: [
            *java, "produce", url, name, str(count), str(SIZE), str(batch),
        ],
        lambda name, count: [*java, "consume", url, name, str(count)],
        lambda: None,
    )  # fmt: skip


def versions() -> dict[str, dict[str, str]]:
    """The installed versions of RabbitMQ and ActiveMQ, for the record of the figures."""
    packages = {"rabbitmq": "rabbitmq-server", "activemq": "activemq"}
    return {name: {"version": _package_version(package)} for name, package in packages.items()}


def _package_version(package: str) -> str:
    query = shutil.which("dpkg-query")
    if query is None:
        return "unknown"
    command = [query, "--show", "--showformat=${Version}", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _start(name: str, work: Path) -> Peer:
    if name in STARTERS:
        return KafkaPeer(STARTERS[name](work))
    return {"rabbitmq": start_rabbitmq, "activemq": start_activemq}[name](work)


def _once(peer: Peer, scale: float) -> dict[str, float]:
    """Return rates and CPU seconds per million messages, for each batch size and the consumer."""
    found = {}
    for batch, messages in MESSAGES.items():
        count = int(messages * scale * peer.share)
        name = peer.fresh()
        os.sync()
        seconds, cpu = peer.produce(name, count, batch)
        found[f"produce_{batch}"] = count / seconds
        found[f"produce_{batch}_cpu_s"] = cpu * MILLION / count
        seconds, cpu = peer.consume(name, count)
        found[f"consume_{batch}"] = count / seconds
        found[f"consume_{batch}_cpu_s"] = cpu * MILLION / count
        peer.drop(name)
    return found


@contextmanager
def running(names: tuple[str, ...], work: Path) -> Iterator[Callable[[int, float], dict[str, Any]]]:
    """Start all brokers. Yield a function that drives each once.

    In odd rounds the brokers run in the reverse order.

    Raises:
        Missing: The package of a broker is not installed.
    """
    peers: dict[str, Peer] = {}

    def one_round(number: int, scale: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in list(peers) if number % 2 == 0 else list(peers)[::-1]:
            found[name] = _once(peers[name], scale)
        return found

    try:
        # The packages are looked for first, because the start of the other brokers takes long.
        for name in ("rabbitmq", "activemq", *names):
            peers[name] = _start(name, work / name)
        yield one_round
    finally:
        for peer in peers.values():
            peer.stop()
