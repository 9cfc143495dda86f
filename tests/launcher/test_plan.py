"""Command lines, configs and ports of the processes of a cluster."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from odradek.cli.serve import _parser
from odradek.launcher.plan import (
    BrokerPlan,
    ZooKeeperPlan,
    exit_text,
    last_words,
    plan_cluster,
    replication_configs,
    shell_line,
    stop_order,
)

DIRECTORY = Path("/data of tests")


@pytest.mark.parametrize(
    ("brokers", "replicas", "min_isr"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (9, "3", "2")]
)
def test_topics_have_at_most_three_replicas_and_one_may_be_missing(
    brokers: int, replicas: str, min_isr: str
) -> None:
    assert replication_configs(brokers) == {
        "default.replication.factor": replicas,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min_isr,
    }


def test_brokers_have_following_ports_and_zookeeper_the_next_one() -> None:
    plan = plan_cluster(DIRECTORY, 3, 9092)
    assert plan.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert plan.ports == [9092, 9093, 9094, 9095]
    assert plan.zookeeper is not None
    assert {each.zookeeper for each in plan.brokers} == {"127.0.0.1:9095"}


def test_a_zookeeper_that_is_named_is_not_started() -> None:
    plan = plan_cluster(DIRECTORY, 2, 9092, "zk:2181/path")
    assert plan.zookeeper is None
    assert plan.ports == [9092, 9093]
    assert [each.zookeeper for each in plan.brokers] == ["zk:2181/path"] * 2


def test_the_command_line_of_a_broker_is_read_by_serve() -> None:
    (broker,) = plan_cluster(DIRECTORY, 1, 9092, configs={"num.partitions": "4"}).brokers
    command = broker.command("/usr/bin/python")
    assert command[:4] == ["/usr/bin/python", "-m", "odradek", "serve"]
    options = _parser().parse_args(command[4:])
    assert options.listen == "127.0.0.1:9092"
    assert options.data == DIRECTORY / "broker-1"
    assert options.broker_id == 1
    assert options.zookeeper == "127.0.0.1:9093"
    assert "num.partitions=4" in options.set
    assert "default.replication.factor=1" in options.set


def test_a_config_of_the_user_replaces_one_of_replication() -> None:
    (broker,) = plan_cluster(DIRECTORY, 1, 1, configs={"min.insync.replicas": "7"}).brokers
    assert broker.configs["min.insync.replicas"] == "7"


def test_the_shell_reads_the_line_as_the_command() -> None:
    (broker,) = plan_cluster(DIRECTORY, 1, 9092).brokers
    command = broker.command("/usr/bin/python")
    assert shlex.split(shell_line(command)) == command


def test_a_broker_and_zookeeper_listen_on_another_host_on_request() -> None:
    broker = BrokerPlan(1, 9092, DIRECTORY, "10.0.0.4:2181", host="10.0.0.1")
    assert broker.command("python")[4:6] == ["--listen", "10.0.0.1:9092"]
    zookeeper = ZooKeeperPlan(2181, DIRECTORY, host="10.0.0.4")
    assert zookeeper.address == "10.0.0.4:2181"
    assert any("clientPortAddress=10.0.0.4\n" in text for text in zookeeper.files().values())


def test_zookeeper_logs_expired_sessions_on_request() -> None:
    quiet, verbose = (
        "".join(ZooKeeperPlan(2181, DIRECTORY, logs_sessions=each).files().values())
        for each in (False, True)
    )
    assert "logger.sessions.level = INFO" in verbose
    assert "logger.sessions" not in quiet


def test_zookeeper_reads_its_files_from_its_directory() -> None:
    zookeeper = plan_cluster(DIRECTORY, 1, 9092).zookeeper
    assert zookeeper is not None
    command = zookeeper.command("java", [Path("/a.jar"), Path("/b.jar")])
    assert command[command.index("-cp") + 1] == "/a.jar:/b.jar"
    configuration = zookeeper.files()[Path(command[-1])]
    assert f"dataDir={DIRECTORY}/zookeeper/data\n" in configuration
    assert "clientPort=9093\n" in configuration
    (logging,) = [word for word in command if word.startswith("-Dlog4j2")]
    assert Path(logging.partition("=")[2]) in zookeeper.files()


@pytest.mark.parametrize(
    ("ids", "controller", "order"),
    [
        ([1, 2, 3], 2, [1, 3, 2]),
        ([3, 1, 2], None, [1, 2, 3]),
        ([1, 3], 2, [1, 3]),
        ([2], 2, [2]),
        ([], 1, []),
    ],
)
def test_the_controller_stops_last(
    ids: list[int], controller: int | None, order: list[int]
) -> None:
    assert stop_order(ids, controller) == order


def test_the_refusal_of_a_broker_is_found_in_its_log() -> None:
    assert last_words("a\nodradek: the id is in use\nTraceback\n\n") == "the id is in use"
    assert last_words("first\nlast\n") == "last"
    assert last_words("\n") == "it has printed nothing"


def test_the_end_of_a_process_has_a_text() -> None:
    assert exit_text(1, {}) == "exit code 1"
    assert exit_text(-9, {9: "SIGKILL"}) == "signal SIGKILL"
    assert exit_text(-63, {}) == "signal 63"
