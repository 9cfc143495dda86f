"""`odradek cluster status` and `elect` against the brokers of a cluster in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from odradek.cli.app import app
from odradek.ids import BrokerId, TopicName
from odradek.testing import Broker, Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    # The test elects; the controller must not.
    with Cluster(3, {"auto.leader.rebalance.enable": "false"}) as running:
        yield running


def run(cluster: Cluster, *arguments: str) -> Result:
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    return CliRunner().invoke(app, ["cluster", *arguments, *servers])


def rows(cluster: Cluster, *arguments: str) -> Any:
    return json.loads(run(cluster, *arguments, "--json").stdout)


def kill_and_wait(cluster: Cluster, broker_id: int, topic: str) -> None:
    """Kill a broker, and wait until another one leads partition 0 of the topic."""
    cluster.kill(broker_id)
    other = next(each for each in cluster.broker_ids if cluster.broker(each).is_running)
    cluster.broker(other).wait_until(
        lambda: (
            cluster.leader_of(topic) != broker_id
            and cluster.broker(other).image.brokers[BrokerId(broker_id)].fenced
        )
    )


def test_a_complete_cluster_lacks_nothing(cluster: Cluster) -> None:
    cluster.create_topic("pages", 3)
    done = run(cluster, "status")
    assert done.exit_code == 0, done.output
    assert "3 of 3 brokers are live" in done.stdout
    assert "Partitions: 3, without a leader 0" in done.stdout
    assert done.stdout.endswith("Nothing is missing.\n")
    found = rows(cluster, "status")
    assert found["controller"] == cluster.controller()
    assert [each["broker_id"] for each in found["brokers"]] == [1, 2, 3]
    assert found["findings"] == []


def test_the_loss_of_a_broker_and_its_effects_are_shown(cluster: Cluster) -> None:
    cluster.create_topic("pages")
    cluster.create_topic("single", replicas=1)
    lost = cluster.leader_of("single")
    assert lost is not None
    kill_and_wait(cluster, lost, "single")
    cluster.broker(next(each for each in cluster.broker_ids if each != lost)).wait_until(
        lambda: cluster.leader_of("pages") not in (None, lost)
    )
    found = rows(cluster, "status")
    assert found["partitions_without_leader"] == 1
    texts = {each["name"]: f"{each['lacks']}: {each['why']}" for each in found["findings"]}
    assert texts[f"broker {lost}"].startswith("leadership: it does not run")
    assert texts["single-0"] == (
        "a leader: all replicas with its newest records are on brokers that are not live"
        f" (broker {lost})"
    )
    assert f"broker {lost} is not live" in texts["pages-0"]
    assert "single-0 lacks a leader: all replicas" in run(cluster, "status").stdout


def test_the_first_replica_is_elected_again(cluster: Cluster) -> None:
    cluster.create_topic("pages")
    first = cluster.leader_of("pages")
    assert first is not None
    cluster.restart(first)
    cluster.wait_until_in_sync()
    assert cluster.leader_of("pages") != first
    (elected,) = rows(cluster, "elect")
    assert elected == {"topic": "pages", "partition": 0, "result": "elected", "error": None}
    cluster.wait_until_in_sync()
    assert cluster.leader_of("pages") == first
    assert rows(cluster, "elect") == []
    assert run(cluster, "elect").stdout == "No partition needs an election.\n"
    (again,) = rows(cluster, "elect", "pages", "-p", "0")
    assert again["result"] == "not needed"


def test_a_drained_broker_leads_nothing_until_the_drain_is_undone(cluster: Cluster) -> None:
    cluster.create_topic("pages", 6)
    led = {cluster.leader_of("pages", number) for number in range(6)}
    assert 1 in led
    assert rows(cluster, "drain", "1") == {"broker": 1, "drained": True, "still_leads": []}
    assert 1 not in {cluster.leader_of("pages", number) for number in range(6)}
    cluster.wait_until_in_sync()  # the drained broker stays in the ISRs
    cluster.restart(1)
    cluster.wait_until_in_sync()
    assert 1 not in {cluster.leader_of("pages", number) for number in range(6)}
    done = run(cluster, "drain", "1", "--undo")
    assert done.stdout == "broker 1 may lead again\n"
    assert 1 in {cluster.leader_of("pages", number) for number in range(6)}


def test_a_partition_that_cannot_move_is_named(cluster: Cluster) -> None:
    cluster.create_topic("single", replicas=1)
    leader = cluster.leader_of("single")
    done = run(cluster, "drain", str(leader))
    assert done.exit_code == 1
    assert str(done.exception).startswith(f"Broker {leader} still leads single-0, because no other")


def test_an_unknown_broker_is_one_line(cluster: Cluster) -> None:
    done = run(cluster, "drain", "9")
    assert "Broker ID 9 is not currently registered" in str(done.exception)


def test_an_election_without_a_live_candidate_fails_in_one_line(cluster: Cluster) -> None:
    cluster.create_topic("single", replicas=1)
    lost = cluster.leader_of("single")
    assert lost is not None
    kill_and_wait(cluster, lost, "single")
    for options in ((), ("--unclean",)):
        done = run(cluster, "elect", "single", *options)
        assert done.exit_code == 1
        assert str(done.exception) == (
            "No leader was elected for single-0. `odradek cluster status` says what they lack."
        )


def test_an_unclean_election_takes_a_replica_that_is_not_in_sync(cluster: Cluster) -> None:
    cluster.create_topic("pages", replicas=2, config={"min.insync.replicas": 1})
    first = cluster.leader_of("pages")
    assert first is not None
    (second,) = {*cluster.broker(first).image.partition(TopicName("pages"), 0).replicas} - {first}  # type: ignore[union-attr]
    cluster.kill(second)
    cluster.broker(first).wait_until(
        lambda: cluster.broker(first).image.partition(TopicName("pages"), 0).isr == (first,)  # type: ignore[union-attr]
    )
    kill_and_wait(cluster, first, "pages")
    cluster.restart(second)
    assert cluster.leader_of("pages") is None
    (elected,) = rows(cluster, "elect", "pages", "--unclean")
    assert elected["result"] == "elected"
    assert cluster.leader_of("pages") == second


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("elect", "--unclean"), "--unclean loses records. Name each TOPIC"),
        (("elect", "-p", "0"), "--partition needs exactly one TOPIC."),
        (("elect", "nothing"), "Topic 'nothing' does not exist."),
    ],
)
def test_wrong_arguments_get_one_line(kafka: Broker, arguments: tuple[str, ...], line: str) -> None:
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    done = CliRunner().invoke(app, ["cluster", *arguments, *servers])
    assert done.exit_code == 1
    assert str(done.exception).startswith(line)


def test_a_single_broker_has_a_status(kafka: Broker) -> None:
    kafka.create_topic("pages")
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    done = CliRunner().invoke(app, ["cluster", "status", *servers])
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("Nothing is missing.\n")


def test_no_broker_is_one_line() -> None:
    done = CliRunner().invoke(app, ["cluster", "status", "--bootstrap-server", "127.0.0.1:1"])
    assert str(done.exception).startswith("No broker responds (127.0.0.1:1: Connection refused).")


def test_a_drained_broker_is_shown_and_is_the_reason_of_a_failed_election(
    cluster: Cluster,
) -> None:
    cluster.create_topic("pages", 3)
    assert run(cluster, "drain", "2").exit_code == 0
    assert "broker 2 lacks leaderships" in run(cluster, "status").stdout
    found = rows(cluster, "status")
    assert [each["drained"] for each in found["brokers"]] == [False, True, False]
    assert [each["name"] for each in found["findings"]] == ["broker 2"]
    elected = run(cluster, "elect")
    assert elected.exit_code == 1
    assert "Broker 2 is drained" in elected.output
    assert run(cluster, "drain", "2", "--undo").exit_code == 0
    assert run(cluster, "status").stdout.endswith("Nothing is missing.\n")
    assert run(cluster, "elect").exit_code == 0
