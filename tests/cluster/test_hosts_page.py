"""docs/cluster-hosts.md: an ensemble of ZooKeeper, three hosts, a dead host, a fourth broker."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from odradek.launcher.child import Child, wait_for
from odradek.launcher.plan import TICK_MS, ZOOKEEPER_CLASS, ZooKeeperPlan
from odradek.launcher.programs import find_programs
from odradek.launcher.readiness import live_brokers, zookeeper_serves
from testkit.peer.server import HOST, free_ports
from tests.docs.pages import DOCS, Block, read_blocks

LIMIT_S = 90.0
ENSEMBLE_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
"""The class of a server that is not alone. `ZOOKEEPER_CLASS` ignores the other servers."""
SESSIONS = ("zookeeper.session.timeout.ms=6000", "broker.session.timeout.ms=3000")
PAGE = read_blocks(DOCS / "cluster-hosts.md")
NUMBERS = (1, 2, 3)


def _file(title: str) -> Block:
    (found,) = (each for each in PAGE if each.title == title)
    return found


def _shell_block(text: str) -> str:
    return next(each.text for each in PAGE if each.language == "sh" and text in each.text)


class Hosts:
    """The processes of the page on one machine, at loopback addresses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = iter(free_ports(9 + 2 * 4))
        self.servers = {number: [next(ports) for _ in range(3)] for number in NUMBERS}
        self.ports = {number: (next(ports), next(ports)) for number in (*NUMBERS, 4)}
        self.children: dict[str, Child] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses on the listener between brokers."""
        return ",".join(f"{HOST}:{self.ports[number][1]}" for number in NUMBERS)

    @property
    def clients(self) -> str:
        return ",".join(f"{HOST}:{self.ports[number][0]}" for number in NUMBERS)

    def start_ensemble(self) -> None:
        text = _file("zoo.cfg").text
        for number, (_, peer, election) in self.servers.items():
            text = text.replace(f"zk{number}.example:2888:3888", f"{HOST}:{peer}:{election}")
        programs = find_programs()
        for number, (port, _, _) in self.servers.items():
            plan = ZooKeeperPlan(port, self.directory / f"zookeeper-{number}", syncs=False)
            plan.data.mkdir(parents=True)
            (plan.data / "myid").write_text(f"{number}\n")
            for path, content in plan.files().items():
                path.write_text(content)
            own = text.replace("/var/lib/zookeeper", str(plan.data))
            own = own.replace("clientPort=2181", f"clientPort={port}\nadmin.enableServer=false")
            own = own.replace("tickTime=2000", f"tickTime={TICK_MS}")
            (plan.directory / "zoo.cfg").write_text(own)
            log = self.directory / f"zookeeper-{number}.log"
            command = plan.command(programs.java, programs.jars)
            command[command.index(ZOOKEEPER_CLASS)] = ENSEMBLE_CLASS
            child = Child(f"ZooKeeper {number}", command, log)
            self.children[f"zk{number}"] = child
            child.start()
        wait_for(
            lambda: all(zookeeper_serves(HOST, port) for port, *_ in self.servers.values()),
            list(self.children.values()),
            "an ensemble",
            LIMIT_S,
        )

    def start_broker(self, number: int, data: str = "data") -> None:
        """Start a broker by the unit and the configuration of the page."""
        clients, brokers = self.ports[number]
        text = _file("broker.properties").text
        for server, (port, _, _) in self.servers.items():
            text = text.replace(f"zk{server}.example:2181", f"{HOST}:{port}")
        text = (
            text.replace("node.id=1", f"node.id={number}")
            .replace("0.0.0.0:9092", f"{HOST}:{clients}")
            .replace("kafka1.example:9092", f"{HOST}:{clients}")
            .replace("10.1.0.1:9093", f"{HOST}:{brokers}")
            .replace("/var/lib/odradek/data", str(self.directory / f"{data}-{number}"))
        )
        assert "example" not in text and "10.1" not in text, text
        path = self.directory / f"broker-{number}.properties"
        path.write_text(text)
        (line,) = re.findall(r"^ExecStart=(.*)$", _file("odradek.service").text, re.M)
        program, *arguments = shlex.split(line)
        assert program == "/opt/odradek/bin/odradek"
        arguments[arguments.index("--config") + 1] = str(path)
        command = [sys.executable, "-m", "odradek", *arguments]
        command += [word for each in SESSIONS for word in ("--set", each)]
        child = Child(f"broker {number}", command, self.directory / f"broker-{number}.log")
        self.children[f"kafka{number}"] = child
        child.start()

    def wait_until_live(self, *numbers: int) -> None:
        running = [each for each in self.children.values() if each.is_running]
        port = self.ports[1][1]
        wait_for(lambda: live_brokers((HOST, port)) == set(numbers), running, "brokers", LIMIT_S)

    def shell(self, text: str) -> str:
        function = f'odradek() {{ {shlex.quote(sys.executable)} -m odradek "$@"; }}\n'
        done = subprocess.run(
            ["/bin/sh", "-ec", function + text],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env={**os.environ, "ODRADEK_BOOTSTRAP_SERVER": self.bootstrap},
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def produce(self, values: list[str]) -> None:
        producer = Producer({"bootstrap.servers": self.clients, "acks": "all", "log_level": 0})
        for value in values:
            producer.produce("pages", value, partition=0)
        assert producer.flush(LIMIT_S) == 0

    def log(self, data: str) -> bytes:
        """Return the segment of the first partition. It may end with allocated zeros."""
        (segment,) = (self.directory / data / "pages-0").glob("*.log")
        return segment.read_bytes().rstrip(b"\0")

    def replicas(self) -> list[list[int]]:
        admin = AdminClient({"bootstrap.servers": self.clients, "log_level": 0})
        partitions = admin.list_topics("pages", timeout=LIMIT_S).topics["pages"].partitions
        return [partitions[number].replicas for number in sorted(partitions)]

    def end(self) -> None:
        for child in reversed(self.children.values()):
            child.kill()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    found = Hosts(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_the_hosts_of_the_page_survive_losses_and_grow(hosts: Hosts) -> None:
    hosts.start_ensemble()
    for number in NUMBERS:
        hosts.start_broker(number)
    hosts.wait_until_live(*NUMBERS)
    checked = hosts.shell(_shell_block("odradek cluster status\n"))
    assert "3 of 3 servers respond" in checked and "Nothing is missing." in checked
    hosts.produce(["home"])

    hosts.children["zk1"].kill()  # two of three servers are a majority
    assert "a response" in hosts.shell("odradek cluster status")
    hosts.shell("odradek topic create more --partitions 3")

    hosts.children["kafka2"].kill()
    hosts.produce(["about"])
    hosts.start_broker(2, data="new-host")
    hosts.children["zk1"].start()
    waits = [each.text for each in PAGE if each.text.startswith("until ")]
    assert len(waits) == 2
    hosts.shell(waits[1])
    assert hosts.log("new-host-2") == hosts.log("data-1") == hosts.log("data-3")
    assert all(value in hosts.log("new-host-2") for value in (b"home", b"about"))

    hosts.start_broker(4)
    hosts.wait_until_live(*NUMBERS, 4)
    before = hosts.replicas()
    hosts.shell(_shell_block("odradek topic alter pages"))
    after = hosts.replicas()
    assert after[:3] == before and len(after) == 6
    assert 4 in {each for replicas in after[3:] for each in replicas}
