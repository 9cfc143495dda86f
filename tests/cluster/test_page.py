"""The commands of docs/cluster.md start three brokers that replicate, on a real ZooKeeper."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import inter_broker_listener, listeners
from testkit.peer.server import free_ports
from testkit.zookeeper import ZooKeeperProcess
from tests.docs.pages import DOCS, Block, read_blocks

LIMIT_S = 60.0
FAST_START = [
    "--set",
    "zookeeper.session.timeout.ms=6000",
    "--set",
    "broker.session.timeout.ms=3000",
]
PAGE = read_blocks(DOCS / "cluster.md")
TEXT = (DOCS / "cluster.md").read_text("utf-8")


def _block(text: str) -> Block:
    (found,) = (each for each in PAGE if text in each.text)
    return found


class Page:
    """The commands of the page, with the addresses of a test."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        self.zookeeper = f"{zookeeper}/page-{os.getpid()}"
        self.ports = free_ports(3)
        self.processes: list[subprocess.Popen[str]] = []

    def local(self, text: str) -> str:
        for number, port in enumerate(self.ports, 1):
            text = text.replace(f"10.0.0.{number}:9092", f"127.0.0.1:{port}")
        return text.replace("zk.example:2181/odradek", self.zookeeper)

    @property
    def servers(self) -> str:
        (addresses,) = re.findall(r"ODRADEK_BOOTSTRAP_SERVER=([\w.:,]+)", TEXT)
        return self.local(addresses)

    def start(self, command: str) -> None:
        """Run a line of the page that starts a broker."""
        program, *arguments = shlex.split(self.local(command))
        assert program == "odradek"
        number = arguments[arguments.index("--broker-id") + 1]
        data = arguments.index("--data") + 1
        arguments[data] = str(self.directory / number)
        arguments[arguments.index("--config") + 1] = str(self.directory / "cluster.properties")
        self.processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "odradek", *arguments, *FAST_START],
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def wait_until_started(self) -> None:
        for process in self.processes:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "listens on" in line:
                    break
            else:
                raise AssertionError("".join(lines))

    def shell(self, text: str) -> str:
        """Run the lines of a block in a shell in which `odradek` is the one of this interpreter."""
        function = f'odradek() {{ {shlex.quote(sys.executable)} -m odradek "$@"; }}\n'
        done = subprocess.run(
            ["/bin/sh", "-ec", function + self.local(text)],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env={**os.environ, "ODRADEK_BOOTSTRAP_SERVER": self.servers},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def page(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Page]:
    found = Page(tmp_path, zookeeper.address)
    try:
        yield found
    finally:
        for process in found.processes:
            process.terminate()
        for process in found.processes:
            with contextlib.suppress(ValueError):
                process.communicate(timeout=LIMIT_S)


def _in_sync(output: str) -> list[str]:
    """Return the column ISR of `odradek topic describe`."""
    return [
        each[3]
        for each in (line.split() for line in output.splitlines())
        if each[0:1] and each[0].isdigit()
    ]


def test_listeners_of_the_page_separate_brokers_from_clients() -> None:
    lines = _block("inter.broker.listener.name").text.splitlines()
    config = BrokerConfig.from_properties(dict(each.split("=", 1) for each in lines))
    served = {each.name: each.port for each in listeners(config)}
    assert served == {"CLIENTS": 9092, "BROKERS": 9093}
    assert inter_broker_listener(config) == "BROKERS"


def test_commands_of_the_page_start_a_cluster_that_survives_a_sigkill(page: Page) -> None:
    (properties,) = (each for each in PAGE if each.title == "cluster.properties")
    (page.directory / properties.title).write_text(properties.text)
    commands = _block("--broker-id 1").text.splitlines()
    assert len(commands) == 3
    for command in commands:
        page.start(command)
    page.wait_until_started()
    use = _block("odradek topic create").text
    assert _in_sync(page.shell(use))
    describe = re.sub(r"^odradek topic create.*\n", "", use, flags=re.M)
    deadline = time.monotonic() + LIMIT_S
    while sorted(map(len, _in_sync(page.shell(describe)))) != [5, 5, 5]:
        assert time.monotonic() < deadline
    producer = Producer({"bootstrap.servers": page.servers, "acks": "all", "log_level": 0})
    failed: list[object] = []
    for killed in (None, page.processes[0]):
        if killed is not None:
            killed.kill()
        for partition in range(3):
            producer.produce(
                "pages",
                "viewed",
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(LIMIT_S) == 0
    assert not failed
