"""`odradek cluster up`: processes of a cluster with its own ZooKeeper, as a user starts them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from odradek.launcher.readiness import accepts
from testkit.peer.server import free_ports

LIMIT_S = 120.0
QUIET = {"log_level": 0}


class Up:
    """A running `odradek cluster up --json`."""

    def __init__(self, directory: Path, *options: str, base_port: int) -> None:
        command = [sys.executable, "-m", "odradek", "cluster", "up", "--data", str(directory)]
        self.process = subprocess.Popen(
            [*command, "--base-port", str(base_port), "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=LIMIT_S)[1]
        found: dict[str, Any] = json.loads(line)
        return found

    def until(self, event: str) -> list[dict[str, Any]]:
        """Return the lines up to the first with this event, included."""
        lines = [self.next()]
        while lines[-1]["event"] != event:
            lines.append(self.next())
        return lines

    def end(self, number: int = signal.SIGINT) -> list[str]:
        """Send a signal. Return the texts of the steps."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, errors
        return [json.loads(line)["text"] for line in output.splitlines()]


def base_port(count: int) -> int:
    """Return the first of so many free ports that follow each other."""
    while True:
        ports = free_ports(count)
        if ports == list(range(ports[0], ports[0] + count)):
            return ports[0]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    found = Up(
        tmp_path / "cluster",
        *("--brokers", "3", "--set", "zookeeper.session.timeout.ms=3000"),
        *("--set", "broker.session.timeout.ms=3000"),
        base_port=base_port(4),
    )
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.send_signal(signal.SIGTERM)
            found.process.communicate(timeout=LIMIT_S)


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_broker_can_be_killed_and_started_again_by_hand(up: Up, tmp_path: Path) -> None:
    *started, ready = up.until("ready")
    assert [(each["process"], each["id"]) for each in started] == [
        ("zookeeper", None),
        ("broker", 1),
        ("broker", 2),
        ("broker", 3),
    ]
    ports = [each["port"] for each in started]
    assert ports[1:] == [ports[1], ports[1] + 1, ports[1] + 2]
    admin = AdminClient({"bootstrap.servers": ready["bootstrap_servers"], **QUIET})
    (created,) = admin.create_topics([NewTopic("t", 3)], request_timeout=LIMIT_S).values()
    created.result(LIMIT_S)
    (resource,) = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "t")], request_timeout=LIMIT_S
    ).values()
    assert resource.result(LIMIT_S)["min.insync.replicas"].value == "2"

    killed = started[2]
    os.kill(killed["pid"], signal.SIGKILL)
    ended = up.next()
    assert (ended["event"], ended["id"], ended["how"]) == ("ended", 2, "signal SIGKILL")
    with (tmp_path / "by-hand.log").open("wb") as log:
        by_hand = subprocess.Popen(
            shlex.split(killed["command_line"]), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        # The killed broker is among the replicas in sync until its session ends.
        while not accepts(killed["port"]):
            assert by_hand.poll() is None
        _await_replicas(admin, "t", [1, 2, 3])
        texts = up.end()
        assert (
            f"a process that was started by hand still listens on port {killed['port']} of broker"
            " 2. Stop it, too"
        ) in texts
        assert texts[-1] == "ZooKeeper has stopped"
        assert not any(_runs(each["pid"]) for each in started)
    finally:
        by_hand.kill()
        by_hand.wait()


def _await_replicas(admin: AdminClient, topic: str, expected: list[int]) -> None:
    """Wait until each partition has these in-sync replicas. pytest's time limit ends the wait."""
    while True:
        partitions = admin.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions.values()
        if all(sorted(each.isrs) == expected for each in partitions):
            return


def test_a_cluster_starts_again_on_its_directory_and_not_twice(up: Up, tmp_path: Path) -> None:
    *started, ready = up.until("ready")
    admin = AdminClient({"bootstrap.servers": ready["bootstrap_servers"], **QUIET})
    (created,) = admin.create_topics([NewTopic("t", 1)], request_timeout=LIMIT_S).values()
    created.result(LIMIT_S)
    second = Up(tmp_path / "cluster", base_port=base_port(4))
    _, line = second.process.communicate(timeout=LIMIT_S)
    assert second.process.returncode == 1
    assert f"is in use by ZooKeeper (pid {started[0]['pid']}), broker 1 (pid " in line
    assert line.count("\n") == 1
    third = Up(tmp_path / "other", base_port=started[1]["port"])
    _, line = third.process.communicate(timeout=LIMIT_S)
    assert f"port {started[1]['port']} of 127.0.0.1 is in use. Stop the program" in line
    texts = up.end(signal.SIGTERM)
    assert len(texts) == 4
    again = Up(tmp_path / "cluster", "--brokers", "3", base_port=started[1]["port"])
    again.until("ready")
    assert "t" in admin.list_topics(timeout=LIMIT_S).topics
    again.end()


def test_a_zookeeper_that_is_missing_is_reported_by_its_broker(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    options = ("--brokers", "1", "--zookeeper", f"127.0.0.1:{port}")
    fast = ("--set", "zookeeper.connection.timeout.ms=300")
    up = Up(tmp_path, *options, *fast, base_port=base_port(2))
    _, line = up.process.communicate(timeout=LIMIT_S)
    assert up.process.returncode == 1
    assert line.startswith("odradek: The cluster did not start: broker 1 did not start: ")
    assert f"ZooKeeper at 127.0.0.1:{port}" in line
    assert line.count("\n") == 1


def test_missing_java_is_reported_with_its_installation(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "odradek", "cluster", "up", "--data", str(tmp_path)]
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Java is missing. Install Java 17" in done.stderr
    assert "--zookeeper HOST:PORT" in done.stderr


def test_the_status_says_what_zookeeper_lacks(up: Up) -> None:
    *started, ready = up.until("ready")
    assert _findings(ready["bootstrap_servers"]) == []
    os.kill(started[0]["pid"], signal.SIGSTOP)
    try:
        lacks = [each["lacks"] for each in _findings(ready["bootstrap_servers"])]
        assert "a quorum" in lacks
        done = _status("127.0.0.1:1", "--zookeeper", f"127.0.0.1:{started[0]['port']}")
        assert done.returncode == 1
        assert json.loads(done.stdout)["findings"][0]["lacks"] == "a quorum"
        assert done.stderr.startswith("odradek: No broker responds (127.0.0.1:1: Connection refu")
    finally:
        os.kill(started[0]["pid"], signal.SIGCONT)


def _findings(servers: str) -> list[dict[str, Any]]:
    done = _status(servers)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def _status(servers: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek", "cluster", "status", "--json", *options]
    return subprocess.run(
        [*command, "--bootstrap-server", servers],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
