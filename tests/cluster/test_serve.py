"""`odradek serve --broker-id --zookeeper`: processes of one cluster, and refused starts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from odradek import errors
from odradek.broker.zookeeper_cluster import ZooKeeperNames, cluster_on_zookeeper, parse_connect
from odradek.config.broker import BrokerConfig
from odradek.environment.environment import Environment
from odradek.errors import ErrorCode
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress, blocking_client
from testkit.peer.server import free_ports, start_odradek
from testkit.zookeeper import start_zookeeper
from tests.cluster.conftest import Processes

LIMIT_S = 60.0
ATTEMPT_S = 3.0
QUIET = {"log_level": 0}
RETRIABLE = (KafkaError._TIMED_OUT, -137)
"""Errors of a request to a broker that was killed. -137 is librdkafka's _DESTROY_BROKER, for which
its Python binding has no name: the broker left the metadata before it responded."""


def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, **QUIET})


def _create(servers: str, name: str, *, partitions: int = 3) -> None:
    """Create a topic, as soon as the controller in the client's metadata responds."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        admin = _admin(servers)
        topic = NewTopic(name, partitions, 1)
        (created,) = admin.create_topics([topic], request_timeout=ATTEMPT_S).values()
        try:
            created.result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if time.monotonic() > deadline or error.args[0].code() not in RETRIABLE:
                raise
        else:
            return


def _produce(servers: str, topic: str, values: dict[int, str]) -> None:
    """Produce a value to each partition with acks=all."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", **QUIET})
    failed: list[object] = []
    for partition, value in values.items():
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(LIMIT_S) == 0
    assert not failed


def _read(processes: Processes, topic: str, partitions: int = 3) -> dict[int, list[str]]:
    """Return the values of each partition."""
    return {each: processes.read(topic, each) for each in range(partitions)}


def test_three_processes_serve_the_topics_of_one_cluster(processes: Processes) -> None:
    processes.start(1, 2, 3)
    for broker in processes.brokers.values():
        name = f"at-{broker.directory.name}"
        _create(broker.bootstrap, name)
        metadata = _admin(broker.bootstrap).list_topics(timeout=LIMIT_S)
        assert set(metadata.brokers) <= {1, 2, 3}
        leaders = {each.leader for each in metadata.topics[name].partitions.values()}
        assert leaders <= {1, 2, 3}
        _produce(broker.bootstrap, name, {0: "a", 1: "b", 2: "c"})
        assert _read(processes, name) == {0: ["a"], 1: ["b"], 2: ["c"]}


def test_a_killed_process_serves_its_records_again_after_its_restart(processes: Processes) -> None:
    processes.start(1, 2, 3)
    _create(processes.bootstrap, "t")
    _produce(processes.bootstrap, "t", {0: "a", 1: "b", 2: "c"})
    for broker_id in (1, 2, 3):
        processes.brokers[broker_id].kill()
        others = [each.bootstrap for n, each in processes.brokers.items() if n != broker_id]
        _create(others[0], f"without-{broker_id}", partitions=1)
        processes.restart(broker_id)
    _produce(processes.bootstrap, "t", {0: "d", 1: "e", 2: "f"})
    assert _read(processes, "t") == {0: ["a", "d"], 1: ["b", "e"], 2: ["c", "f"]}
    topics = _admin(processes.bootstrap).list_topics(timeout=LIMIT_S).topics
    assert {"without-1", "without-2", "without-3"} <= set(topics)


def test_all_processes_may_be_killed_at_the_same_time(processes: Processes) -> None:
    processes.start(1, 2, 3)
    _create(processes.bootstrap, "t")
    _produce(processes.bootstrap, "t", {0: "a", 1: "b", 2: "c"})
    for broker in processes.brokers.values():
        broker.kill()
    for broker_id in (3, 2, 1):
        processes.restart(broker_id)
    _produce(processes.bootstrap, "t", {0: "d", 1: "e", 2: "f"})
    assert _read(processes, "t") == {0: ["a", "d"], 1: ["b", "e"], 2: ["c", "f"]}


# --- refusals ---


def _refused(*arguments: str) -> str:
    """Return the only line that a broker prints before it ends with 1."""
    command = [sys.executable, "-m", "odradek", "serve", "--log-level", "error", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def _contents(directory: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(directory)): each.read_bytes()
        for each in sorted(directory.rglob("*"))
        if each.is_file() and each.name != ".lock"
    }


def test_a_zookeeper_that_does_not_run_is_refused(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    line = _refused(
        *("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")),
        *("--zookeeper", f"127.0.0.1:{port}"),
        *("--set", "zookeeper.connection.timeout.ms=300"),
    )
    assert f"no connection to ZooKeeper at 127.0.0.1:{port} within 300 ms" in line
    assert _contents(tmp_path) == {}


def test_several_standalone_zookeepers_are_refused(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path / "one") as one, start_zookeeper(tmp_path / "two") as two:
        connect = f"{one.address},{two.address}/root"
        line = _refused(
            *("--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")),
            *("--zookeeper", connect),
        )
        nodes = [_children(each.address) for each in (one, two)]
    assert f"the ZooKeeper servers {one.address}, {two.address} are standalone" in line
    assert "Configure them as one ensemble, or name one server only" in line
    assert nodes == [["zookeeper"], ["zookeeper"]]
    assert _contents(tmp_path / "data") == {}


def _children(address: str) -> list[str]:
    """Return the nodes below the root of a ZooKeeper."""
    with blocking_client(ZooKeeperAddress(address), LIMIT_S) as client:
        return list(client.get_children("/"))


def test_a_second_process_with_a_broker_id_is_refused(processes: Processes) -> None:
    processes.start(1)
    (first,) = processes.brokers.values()
    data = processes.directory / "second"
    line = _refused(
        *("--listen", "127.0.0.1:0", "--data", str(data), "--broker-id", "1"),
        *("--zookeeper", processes.connect, "--set", "zookeeper.session.timeout.ms=1000"),
    )
    assert f"broker id 1 is in use by the broker at {first.bootstrap}" in line
    assert "Give another cluster a path of its own in zookeeper.connect" in line
    assert _contents(data) == {}
    _create(first.bootstrap, "the-first-still-serves", partitions=1)


def test_an_advertised_address_that_does_not_work_is_reported(processes: Processes) -> None:
    processes.start(1)
    (port,) = free_ports(1)
    wrong = f"PLAINTEXT://127.0.0.1:{port}"
    options = ("--broker-id", "2", "--zookeeper", processes.connect)
    with start_odradek(
        processes.directory / "2", {"advertised.listeners": wrong}, options=options
    ) as broker:
        deadline = time.monotonic() + LIMIT_S
        words = f"cannot connect to its own advertised address 127.0.0.1:{port}"
        while words not in broker.log_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "Correct advertised.listeners" in broker.log_text()
    assert "own advertised address" not in processes.brokers[1].log_text()


def test_a_clock_that_is_minutes_off_is_reported(processes: Processes) -> None:
    """The node of another broker has the time of its clock and, from ZooKeeper, the right one."""
    processes.start(1)
    client = KazooClient(processes.zookeeper.address)
    client.start(LIMIT_S)
    data, _ = client.get(f"{processes.path}/brokers/ids/1")
    node = json.loads(data)
    node["timestamp"] = str(int(node["timestamp"]) + 630_000)
    (node["port"],) = free_ports(1)
    node["endpoints"] = [f"PLAINTEXT://127.0.0.1:{node['port']}"]
    client.create(f"{processes.path}/brokers/ids/2", json.dumps(node).encode(), ephemeral=True)
    deadline = time.monotonic() + LIMIT_S
    while "the clock of broker 2 is 10 min" not in processes.brokers[1].log_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "Synchronize the clocks of both machines (NTP)" in processes.brokers[1].log_text()
    command = [sys.executable, "-m", "odradek", "cluster", "status", "--json"]
    status = subprocess.run(
        [*command, "--bootstrap-server", processes.bootstrap, "--zookeeper", processes.connect],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    found = [each for each in json.loads(status.stdout)["findings"] if each["name"] == "broker 2"]
    assert any("ahead of ZooKeeper's when it registered" in each["why"] for each in found)
    client.stop()
    client.close()


def test_one_of_two_processes_that_start_together_with_an_id_is_refused(
    processes: Processes,
) -> None:
    processes.start(2)
    datas = [processes.directory / name for name in ("one", "two")]
    options = ("serve", "--log-level", "error", "--broker-id", "1", "--listen", "127.0.0.1:0")
    where = ("--zookeeper", processes.connect, "--set", "zookeeper.session.timeout.ms=1000")
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "odradek", *options, *where, "--data", str(data)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for data in datas
    ]
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (ended := [each for each in started if each.poll() is not None]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (refused,) = ended
        second = started.index(refused)
        assert refused.returncode == 1
        assert refused.stderr is not None
        line = refused.stderr.read()
        assert line.count("\n") == 1 and "broker id 1 is in use by" in line
        assert _contents(datas[second]) == {}
        assert started[1 - second].poll() is None
        metadata = _admin(processes.bootstrap).list_topics(timeout=LIMIT_S)
        assert set(metadata.brokers) == {1, 2}
    finally:
        for each in started:
            each.terminate()
            each.communicate(timeout=LIMIT_S)


def test_the_directory_of_another_cluster_is_refused(processes: Processes) -> None:
    processes.start(1)
    broker = processes.brokers[1]
    _create(broker.bootstrap, "t", partitions=1)
    _produce(broker.bootstrap, "t", {0: "kept"})
    broker.stop()
    before = _contents(broker.log_dir)
    processes.path += "-other"
    processes.start(2)
    line = _refused(
        *("--listen", "127.0.0.1:0", "--data", str(broker.log_dir), "--broker-id", "1"),
        *("--zookeeper", processes.connect),
    )
    assert "cluster" in line
    assert _contents(broker.log_dir) == before


def test_a_node_that_is_not_json_is_refused(processes: Processes) -> None:
    client = KazooClient(processes.zookeeper.address)
    client.start(LIMIT_S)
    client.ensure_path(f"{processes.path}/cluster")
    client.create(f"{processes.path}/cluster/id", b"\xff not json")
    data = processes.directory / "data"
    line = _refused(
        *("--listen", "127.0.0.1:0", "--data", str(data), "--zookeeper", processes.connect)
    )
    assert f"the node {processes.path}/cluster/id of the metadata store is not valid" in line
    assert "(" in line and "Error" not in line.split("(")[1]
    client.stop()
    client.close()
    assert _contents(data) == {}


def test_a_directory_of_a_cluster_is_refused_under_an_empty_zookeeper(
    processes: Processes,
) -> None:
    processes.start(1)
    broker = processes.brokers[1]
    _create(broker.bootstrap, "t", partitions=1)
    _produce(broker.bootstrap, "t", {0: "kept"})
    broker.stop()
    before = _contents(broker.log_dir)
    line = _refused(
        *("--listen", "127.0.0.1:0", "--data", str(broker.log_dir), "--broker-id", "1"),
        *("--zookeeper", f"{processes.connect}-empty"),
    )
    assert processes.path in line
    assert _contents(broker.log_dir) == before
    client = KazooClient(processes.zookeeper.address)
    client.start(LIMIT_S)
    assert client.exists(f"{processes.path}-empty") is None
    client.delete(processes.path, recursive=True)
    line = _refused(
        *("--listen", "127.0.0.1:0", "--data", str(broker.log_dir), "--broker-id", "1"),
        *("--zookeeper", processes.connect),
    )
    assert "the metadata store is empty" in line
    assert _contents(broker.log_dir) == before
    assert client.exists(processes.path) is None
    client.stop()
    client.close()


def test_the_topics_of_a_single_broker_move_into_an_empty_zookeeper(processes: Processes) -> None:
    directory = processes.directory / "1"
    with start_odradek(directory) as single:
        _create(single.bootstrap, "t", partitions=2)
        _produce(single.bootstrap, "t", {0: "a", 1: "b"})
    processes.start(1, 2)
    _produce(processes.bootstrap, "t", {0: "c"})
    assert _read(processes, "t", partitions=2) == {0: ["a", "c"], 1: ["b"]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a:1", ZooKeeperNames("a:1", "")),
        ("a", ZooKeeperNames("a:2181", "")),
        ("a:1, b:2/x/y/", ZooKeeperNames("a:1,b:2", "/x/y")),
        ("[::1]:1/", ZooKeeperNames("[::1]:1", "")),
    ],
)
def test_the_value_of_zookeeper_connect_has_servers_and_a_path(
    text: str, names: ZooKeeperNames
) -> None:
    assert parse_connect(text) == names


@pytest.mark.parametrize(
    "text", ["", "/a", "a:x", "a:0", "a:65536", ":1", "a,,b", "a//b", "a/b//c"]
)
def test_a_wrong_value_of_zookeeper_connect_is_an_invalid_config(text: str) -> None:
    with pytest.raises(errors.KafkaError, match=r"zookeeper\.connect") as found:
        parse_connect(text)
    assert found.value.code is ErrorCode.INVALID_CONFIG


def test_a_path_that_is_too_long_is_an_invalid_config() -> None:
    with pytest.raises(errors.KafkaError, match="at most 100 bytes"):
        parse_connect("a:1/" + "b" * 100)


@pytest.mark.parametrize("name", ["session", "connection"])
@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_timeout_that_is_not_positive_is_an_invalid_config(name: str, timeout_ms: int) -> None:
    config = f"zookeeper.{name}.timeout.ms"
    properties = {"zookeeper.connect": "127.0.0.1:1", config: str(timeout_ms)}
    with pytest.raises(errors.KafkaError, match=rf"{timeout_ms} for configuration {config}"):
        cluster_on_zookeeper(BrokerConfig(properties), Environment())


def test_a_wrong_value_is_reported_in_one_line(tmp_path: Path) -> None:
    line = _refused("--data", str(tmp_path / "data"), "--zookeeper", "nowhere:port")
    assert "Invalid value nowhere:port for configuration zookeeper.connect" in line
