"""Kafka Connect, distributed: a file source, a file sink, and a worker that is killed.

The source runs with exactly-once support: read_committed consumers receive every line of the file
once and in order. The sink is at-least-once: it may repeat lines but must not leave out a line.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from conformance import stacks
from conformance.harness import Case, Context, Skip, main, patient_s
from testkit.peer import PeerUnavailable, java_command
from testkit.peer.artifacts import program_class_path
from testkit.peer.server import HOST, free_ports
from testkit.topics import create_topic

LINES, PIECE, KILLS = 200, 10, 2
AWAY_S = 150.0
CLASS = "org.apache.kafka.connect.file.FileStream{}Connector"
STRING = "org.apache.kafka.connect.storage.StringConverter"


class _Worker:
    """A worker of a Connect cluster of its own, and the two files between which it copies."""

    def __init__(self, context: Context) -> None:
        try:
            path = program_class_path()
        except PeerUnavailable as reason:
            raise Skip(str(reason)) from None
        self.context = context
        self.topic = context.topic("lines")
        create_topic(context.bootstrap, self.topic)
        self.source, self.sink = context.work / "source.txt", context.work / "sink.txt"
        self.source.touch()
        self.log = context.work / "connect.log"
        [port] = free_ports(1)
        self.address = f"http://{HOST}:{port}"
        config = context.work / "connect.properties"
        config.write_text(self._settings(context.topic("connect")), encoding="utf-8")
        self._command = java_command(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(config),
            level="ERROR",
            extra_class_path=path,
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.lines: list[str] = []

    def _settings(self, cluster: str) -> str:
        settings = {
            "bootstrap.servers": self.context.bootstrap,
            "group.id": cluster,
            "listeners": self.address,
            "key.converter": STRING,
            "value.converter": STRING,
            "plugin.discovery": "only_scan",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            **{f"{what}.storage.topic": f"{cluster}-{what}" for what in ("offset", "config")},
            "status.storage.topic": f"{cluster}-status",
            **{
                f"{what}.storage.replication.factor": str(self.context.replicas)
                for what in ("offset", "config", "status")
            },
            **{f"{w}.storage.partitions": "2" for w in ("offset", "status")},
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the response, or None while the worker is not running or rebalances."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except (urllib.error.URLError, OSError):
            return None

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + patient_s(AWAY_S)
        while not (got := condition()):
            assert self.process is not None and self.process.poll() is None, self.output()
            if time.monotonic() > deadline:
                raise stacks.hung(f"never {what}: {self.output()}")
            time.sleep(0.3)
        return got

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-1200:]

    def connect(self, name: str, kind: str, settings: dict[str, str]) -> None:
        config = {"connector.class": CLASS.format(kind), "tasks.max": "1", **settings}
        path = f"/connectors/{name}/config"
        self.until(lambda: self.ask("PUT", path, config), f"{name} made")
        self.until(lambda: self._running(name), f"{name} running")

    def _running(self, name: str) -> bool:
        status = self.ask("GET", f"/connectors/{name}/status") or {}
        tasks = status.get("tasks", [])
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def write(self, count: int) -> None:
        new = [f"line {len(self.lines) + n}" for n in range(count)]
        self.lines += new
        for first in range(0, count, PIECE):
            with self.source.open("a", encoding="utf-8") as out:
                out.write("".join(f"{line}\n" for line in new[first : first + PIECE]))
            time.sleep(0.05)  # Let the source read a file that grows.

    def committed(self, sink: str) -> int:
        """Return the committed offset of the sink's consumer."""
        group = ConsumerGroupTopicPartitions(f"connect-{sink}", [TopicPartition(self.topic, 0)])
        admin = AdminClient({"bootstrap.servers": self.context.bootstrap})
        [future] = admin.list_consumer_group_offsets([group]).values()
        offset: int = future.result(60).topic_partitions[0].offset
        return offset

    def sunk(self) -> list[str]:
        return self.sink.read_text(encoding="utf-8").splitlines() if self.sink.exists() else []

    def until_sunk(self, expected: int) -> None:
        self.until(lambda: set(self.lines[:expected]) <= set(self.sunk()), f"{expected} lines sunk")


def _files(context: Context) -> None:
    worker = _Worker(context)
    try:
        worker.start()
        source = {"file": str(worker.source), "topic": worker.topic}
        worker.connect("in", "Source", {**source, "exactly.once.support": "required"})
        sink, name = {"file": str(worker.sink), "topics": worker.topic}, context.topic("out")
        worker.connect(name, "Sink", sink)
        for _ in range(KILLS):
            worker.write(LINES)
            worker.until_sunk(len(worker.lines))
            worker.until(lambda: worker.committed(name) >= len(worker.lines) // 2, "committed")
            worker.write(LINES)
            worker.kill()
            worker.start()
        worker.write(LINES)
        worker.until_sunk(len(worker.lines))
        assert set(worker.sunk()) == set(worker.lines)
        assert _read(context, worker.topic, len(worker.lines)) == worker.lines
    finally:
        worker.kill()


def _read(context: Context, topic: str, count: int) -> list[str]:
    """Return the committed values up to the end of the partition."""
    settings = {
        "bootstrap.servers": context.bootstrap,
        "group.id": "unused",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
        elif message is not None and len(values) >= count:
            break
    consumer.close()
    return values


CASES = (
    Case("file source exactly once, file sink, worker killed and restarted", _files, timeout_s=600),
)

if __name__ == "__main__":
    main("kafka_connect", CASES)
