"""`odradek serve` as a process: its log lines, its errors and its end."""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from odradek.cli.output import CommandError
from odradek.cli.serve import _parser, build_config
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from testkit.wire import WireClient
from tests.helpers.kafka_directory import KINDS, NODE_ID, unpack

TIMEOUT_S = 120
LISTENS = re.compile(r"listens on PLAINTEXT://([^ ;,]+)")


class Served:
    """A running `odradek serve`, with its address and the log up to now."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log = ""
        self.address = self._wait_for(LISTENS)[1]

    def _wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        assert self.process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while selector.select(TIMEOUT_S):
                line = os.read(self.process.stderr.fileno(), 65536).decode()
                self.log += line
                found = pattern.search(self.log)
                if found:
                    return found
                if not line:
                    break
        raise AssertionError(f"the broker did not start: {self.log}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "odradek", "serve", *arguments]


@contextmanager
def _serve(*arguments: str) -> Iterator[Served]:
    process = subprocess.Popen(_command(*arguments), stderr=subprocess.PIPE, text=True)
    try:
        yield Served(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def _refused(*arguments: str) -> str:
    done = subprocess.run(
        _command("--log-level", "error", *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def test_topics_exist_after_a_restart(data: str) -> None:
    with _serve("--listen", "127.0.0.1:0", "--data", data) as broker:
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("kept", b"1")
        assert producer.flush(TIMEOUT_S) == 0
        assert broker.stop() == 0
    with _serve("--listen", "127.0.0.1:0", "--data", data) as broker:
        topics = (
            AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=TIMEOUT_S).topics
        )
        assert list(topics) == ["kept"]


def test_one_line_shows_the_advertised_address(data: str) -> None:
    with _serve("--listen", "127.0.0.1:0", "--data", data) as broker:
        assert "it advertises to each client the address that the client connected to" in broker.log
    advertised = "advertised.listeners=PLAINTEXT://broker.example:9092"
    with _serve("--listen", "127.0.0.1:0", "--data", data, "--set", advertised) as broker:
        assert "it advertises PLAINTEXT://broker.example:9092" in broker.log
        metadata = AdminClient({"bootstrap.servers": broker.address, "log_level": 0}).list_topics(
            timeout=TIMEOUT_S
        )
        assert [str(b) for b in metadata.brokers.values()] == ["broker.example:9092/1"]


def test_server_properties_are_applied_and_keys_without_effect_listed(
    data: str, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=7\nnum.partitions=5\nno.such.key=1\n"
        f"controller.quorum.voters=7@localhost:9093\nlog.dirs={data}\n"
    )
    with _serve("--config", str(file), "--listen", "127.0.0.1:0") as broker:
        assert "controller.quorum.voters" in broker.log
        assert "no.such.key" in broker.log
        assert "num.partitions" not in broker.log
        Producer({"bootstrap.servers": broker.address}).list_topics("t", timeout=TIMEOUT_S)
        metadata = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=TIMEOUT_S)
        assert list(metadata.brokers) == [7]
        assert len(metadata.topics["t"].partitions) == 5


def test_port_in_use_is_one_line(data: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = _refused("--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--data", data)
    assert "in use" in line


def test_second_process_on_the_same_directory_is_one_line(data: str) -> None:
    with _serve("--listen", "127.0.0.1:0", "--data", data):
        line = _refused("--listen", "127.0.0.1:0", "--data", data)
    assert data in line
    assert "in use" in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--listen", "9092"], "HOST:PORT"),
        (["--config", "missing.properties"], "missing.properties"),
    ],
)
def test_wrong_configs_are_one_line(data: str, arguments: list[str], expected: str) -> None:
    assert expected in _refused("--data", data, *arguments)


def test_sigterm_completes_pending_requests_and_ends(data: str) -> None:
    """A fetch with a very long wait gets its response when the broker stops."""
    with _serve("--listen", "127.0.0.1:0", "--data", data) as broker:
        AdminClient({"bootstrap.servers": broker.address}).list_topics("t", timeout=TIMEOUT_S)
        Producer({"bootstrap.servers": broker.address}).list_topics("t", timeout=TIMEOUT_S)
        with WireClient(broker.address) as client, WireClient(broker.address) as other:
            fetch = FetchRequest(
                max_wait_ms=10 * TIMEOUT_S * 1000,
                min_bytes=1,
                topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])],
            )
            client.send(fetch, 11)
            for _ in range(2):  # the broker has then read the fetch, which was sent before them
                other.call(ApiVersionsRequest(), 0)
            assert broker.stop() == 0
            assert client.receive().error_code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_directory_of_a_stopped_kafka_is_served_as_it_is(kind: str, data: str) -> None:
    unpack(kind, Path(data))
    with _serve("--listen", "127.0.0.1:0", "--data", data) as broker:
        assert (
            "imported 7 topics with 15 partitions, 19 configs, quotas of 3 entities" in broker.log
        )
        metadata = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=TIMEOUT_S)
        assert list(metadata.brokers) == [NODE_ID]
        assert len(metadata.topics["plain"].partitions) == 3
        assert broker.stop() == 0


def test_kafkas_directory_under_another_node_id_is_one_line(data: str) -> None:
    unpack("stopped", Path(data))
    line = _refused("--listen", "127.0.0.1:0", "--data", data, "--set", "node.id=8")
    assert "belongs to node 7, not to 8" in line


def test_kafkas_metadata_that_cannot_be_read_is_one_line(data: str) -> None:
    unpack("stopped", Path(data))
    for path in Path(data, "__cluster_metadata-0").glob("*.checkpoint"):
        path.unlink()
    log = Path(data, "__cluster_metadata-0", f"{0:020d}.log")
    log.rename(log.with_name(f"{9:020d}.log"))
    line = _refused("--listen", "127.0.0.1:0", "--data", data)
    assert "lacks the records from 0 to 8" in line


@pytest.mark.parametrize(("data_home", "at"), [("/srv/data", 0), ("", 1), (None, 1)])
def test_help_names_the_directory_that_a_start_without_data_uses(
    monkeypatch: pytest.MonkeyPatch, data_home: str | None, at: int
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if data_home is not None:
        monkeypatch.setenv("XDG_DATA_HOME", data_home)
    help_text = " ".join(_parser().format_help().split())
    described = re.search(r"log directory, default (\S+), or (\S+)", help_text)
    assert described, help_text
    expanded = str(Path(os.path.expandvars(described.groups()[at])).expanduser())
    assert build_config(None, None, None, []).log_dirs() == [expanded]
    assert "/srv/data" not in help_text and "/home/someone" not in help_text


@pytest.mark.parametrize("zookeeper", ["", " "])
def test_an_empty_address_of_zookeeper_does_not_start_a_single_broker(
    data: str, zookeeper: str
) -> None:
    with pytest.raises(CommandError, match="--zookeeper is empty"):
        build_config(None, Path(data), None, [], broker_id=4, zookeeper=zookeeper)


def test_the_contents_of_the_file_are_kept_beside_the_options_that_replace_them(
    data: str, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=SASL_SSL://:9093\nzookeeper.connect=zk:2181/kafka\n", "utf-8")
    Path(data).mkdir(exist_ok=True)
    Path(data, "meta.properties").write_text("version=0\nbroker.id=7\n", "utf-8")
    config = build_config("127.0.0.1:9092", Path(data), file, ["num.partitions=2"])
    assert (config.node_id, config.initial_text("listeners")) == (7, "PLAINTEXT://127.0.0.1:9092")
    expected = {"listeners": "SASL_SSL://:9093", "zookeeper.connect": "zk:2181/kafka"}
    assert config.file == expected
    assert config.with_dynamic({}, {}).file == expected
    assert build_config(None, Path(data), None, []).file is None
