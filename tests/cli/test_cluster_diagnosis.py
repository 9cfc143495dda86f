"""What a cluster lacks, and why: each finding from facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from odradek.cli.cluster_diagnosis import (
    BrokerFacts,
    ClusterFacts,
    Finding,
    PartitionFacts,
    ZooKeeperFacts,
    diagnose,
    diagnose_zookeeper,
)

ZOOKEEPER = ZooKeeperFacts(
    "zk:2181/a", {"zk:2181": None}, None, frozenset({1, 2, 3}), controller=1, cluster_id="c"
)


def broker(broker_id: int, *, fenced: bool = False, **more: object) -> BrokerFacts:
    found = BrokerFacts(broker_id, f"host-{broker_id}:9092", fenced, applied_offset=7)
    return replace(found, **more)  # type: ignore[arg-type]


def facts(
    brokers: Mapping[int, BrokerFacts] | None = None,
    *partitions: PartitionFacts,
    zookeeper: ZooKeeperFacts | None = ZOOKEEPER,
    controller: int = 1,
    offset: int | None = 7,
) -> ClusterFacts:
    found = {each: broker(each) for each in (1, 2, 3)} | dict(brokers or {})
    return ClusterFacts("c", controller, offset, found, zookeeper, partitions)


def only(found: list[Finding]) -> str:
    (finding,) = found
    return f"{finding.kind}: {finding.name} lacks {finding.lacks}: {finding.why}. {finding.remedy}"


def test_a_drained_broker_is_named_with_the_command_that_ends_the_drain() -> None:
    found = only(diagnose(facts({2: broker(2, drained=True)})))
    assert "broker 2 lacks leaderships" in found
    assert "it is drained. `odradek cluster drain 2 --undo`" in found


def test_a_broker_that_accepts_connections_without_a_response_is_named() -> None:
    found = only(diagnose(facts({2: broker(2, silent="no response within 5 s")})))
    assert "broker 2 lacks a response" in found
    assert "accepts connections, but no response within 5 s" in found


def test_unknown_partitions_have_no_findings() -> None:
    assert diagnose(replace(facts(), partitions=None)) == []


IN_SYNC = PartitionFacts("t-0", 1, (1, 2, 3), (1, 2, 3), min_isr=2)
DOWN = {3: broker(3, fenced=True, failure="Connection refused")}


def test_a_complete_cluster_lacks_nothing() -> None:
    assert diagnose(facts(None, IN_SYNC)) == []
    assert diagnose(facts(None, IN_SYNC, zookeeper=None)) == []


def test_a_zookeeper_without_quorum_is_named_with_its_servers() -> None:
    servers = {"a:1": None, "b:2": "refused", "c:3": "refused"}
    down = replace(ZOOKEEPER, servers=servers, failure="no session")
    text = only(diagnose(facts(zookeeper=down)))
    assert text.startswith("zookeeper: ZooKeeper zk:2181/a lacks a quorum: b:2: refused; c:3: refu")
    assert "Start at least 2 of 3 servers" in text


def test_a_server_of_a_quorum_that_does_not_respond_is_named() -> None:
    servers = {"a:1": None, "b:2": "refused", "c:3": None}
    text = only(diagnose(facts(zookeeper=replace(ZOOKEEPER, servers=servers))))
    assert text.startswith("zookeeper: ZooKeeper b:2 lacks a response: refused. Start this server")


def test_a_zookeeper_of_another_cluster_is_named() -> None:
    text = only(diagnose(facts(zookeeper=replace(ZOOKEEPER, cluster_id="d"))))
    assert "lacks cluster c: it has cluster d. Give each cluster a path of its own" in text
    text = only(diagnose(facts(zookeeper=replace(ZOOKEEPER, cluster_id=None))))
    assert "lacks the id of the cluster: its path is empty" in text


def test_a_zookeeper_without_brokers_is_shown_without_any_broker() -> None:
    assert diagnose_zookeeper(ZOOKEEPER) == []
    text = only(diagnose_zookeeper(replace(ZOOKEEPER, registered=frozenset())))
    assert "lacks registered brokers: no broker has a session. Start the brokers" in text


def test_a_broker_whose_session_was_lost_is_named() -> None:
    lost = replace(ZOOKEEPER, registered=frozenset({1, 2}))
    assert "lacks the node of broker 3" in only(diagnose(facts(zookeeper=lost)))


def test_a_cluster_without_a_controller_is_reported() -> None:
    text = only(diagnose(facts(controller=-1, offset=None)))
    assert "lacks a controller: the brokers do not know broker 1 yet" in text
    text = only(diagnose(facts(offset=None)))
    assert "controller: broker 1 lacks a response" in text
    text = only(diagnose(facts(zookeeper=replace(ZOOKEEPER, controller=2))))
    assert "lacks the node /controller: it belongs to broker 2" in text


@pytest.mark.parametrize(
    ("down", "registered", "reason"),
    [
        ("refused", {1, 2}, "it has no session in ZooKeeper: it does not run, or cannot reach"),
        ("refused", {1, 2, 3}, "it does not respond (refused), and its session has not ended yet"),
        (None, {1, 2, 3}, "it has not caught up with the metadata, or cannot reach the controller"),
    ],
)
def test_a_fenced_broker_has_a_reason(down: str | None, registered: set[int], reason: str) -> None:
    store = replace(ZOOKEEPER, registered=frozenset(registered))
    text = only(diagnose(facts({3: broker(3, fenced=True, failure=down)}, zookeeper=store)))
    assert f"broker: broker 3 lacks leadership: {reason}" in text


def test_an_advertised_address_that_cannot_be_reached_is_named() -> None:
    text = only(diagnose(facts({2: broker(2, failure="Name or service not known")})))
    assert "its advertised address host-2:9092: Name or service not known" in text
    assert "Start broker 2 if it does not run. If it runs and other hosts cannot connect" in text
    assert "correct its `advertised.listeners`" in text


def test_a_broker_that_does_not_poll_the_controller_is_named() -> None:
    text = only(diagnose(facts({2: broker(2, applied_offset=None)})))
    assert "broker 2 lacks the newest metadata: it does not poll the controller" in text
    assert diagnose(facts({1: broker(1, applied_offset=None)})) == []  # the controller itself


@pytest.mark.parametrize(
    ("ahead_ms", "words"),
    [(725_000, "12 min 5 s ahead of"), (-61_000, "1 min 1 s behind"), (59_000, None)],
)
def test_a_clock_that_is_minutes_off_is_named(ahead_ms: int, words: str | None) -> None:
    found = diagnose(facts({2: broker(2, clock_ahead_ms=ahead_ms)}))
    if words is None:
        assert found == []
    else:
        assert f"its clock was {words} ZooKeeper's when it registered" in only(found)
        assert "NTP" in only(found)


def _of_partitions(found: list[Finding]) -> list[Finding]:
    return [each for each in found if each.kind == "partition"]


def test_a_partition_that_serves_with_fewer_replicas_has_a_reason() -> None:
    short = replace(IN_SYNC, isr=(1, 2))
    text = only(_of_partitions(diagnose(facts(DOWN, short))))
    assert "t-0 lacks in-sync replicas on broker 3: broker 3 is not live. It serves. Start" in text


def test_a_slow_replica_has_its_number_of_missing_records() -> None:
    short = replace(IN_SYNC, isr=(1, 2), behind={3: 1_200})
    text = only(diagnose(facts(None, short)))
    assert "broker 3 is catching up, or is too slow, 1,200 records behind" in text
    assert "The replicas return by themselves" in text


def test_a_partition_below_its_minimum_refuses_writes() -> None:
    short = replace(IN_SYNC, isr=(1,), replicas=(1, 3, 4))
    text = only(_of_partitions(diagnose(facts(DOWN, short))))
    assert "t-0 lacks 2 in-sync replicas: it has 1: broker 3 is not live; broker 4 was" in text
    assert "NOT_ENOUGH_REPLICAS" in text


def test_the_minimum_is_at_most_the_number_of_replicas() -> None:
    assert diagnose(facts(None, PartitionFacts("t-0", 1, (1,), (1,), min_isr=2))) == []


@pytest.mark.parametrize(
    ("partition", "why"),
    [
        (
            PartitionFacts("t-0", -1, (3,), (3,)),
            "all replicas with its newest records are on brokers that are not live (broker 3)",
        ),
        (
            PartitionFacts("t-0", -1, (1, 3), (), elr=(3,)),
            "all replicas with its newest records are on brokers that are not live (broker 3)",
        ),
        (
            PartitionFacts("t-0", -1, (1, 3), (), last_known=(3,)),
            "no replica is known to be complete. Not live: broker 3",
        ),
        (
            PartitionFacts("t-0", -1, (1, 2), (2,)),
            "broker 2 can lead it, and an election has not run yet",
        ),
    ],
)
def test_a_partition_without_a_leader_has_a_reason(partition: PartitionFacts, why: str) -> None:
    text = only(_of_partitions(diagnose(facts(DOWN, partition))))
    assert f"partition: t-0 lacks a leader: {why}" in text
