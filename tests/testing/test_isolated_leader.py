"""A whole broker that hears nothing of its cluster stops leading (rule Z13)."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.errors import ErrorCode
from odradek.testing import Cluster
from testkit.requests import batch, produce
from testkit.wire import WireClient

LIMIT_S = 60.0


def _append(cluster: Cluster, broker_id: int) -> ErrorCode:
    """Append with acks=1 at a broker, whether or not it leads the partition."""
    with WireClient(cluster.broker(broker_id).bootstrap_servers) as client:
        response = client.call(produce("t", batch(b"x"), acks=1), 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def _create_topic(cluster: Cluster, leader: int) -> None:
    replicas = [leader, *(each for each in cluster.broker_ids if each != leader)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    (created,) = admin.create_topics([NewTopic("t", 1, replica_assignment=[replicas])]).values()
    created.result(LIMIT_S)
    cluster.wait_until_in_sync("t")
    assert cluster.leader_of("t") == leader


@pytest.mark.parametrize("is_controller", [False, True])
def test_hazard_13_leader_that_is_cut_off_acknowledges_nothing_after_the_timeout(
    is_controller: bool,
) -> None:
    with Cluster(3) as cluster:
        controller = cluster.controller()
        leader = next(each for each in cluster.broker_ids if (each == controller) == is_controller)
        _create_topic(cluster, leader)
        assert _append(cluster, leader) is ErrorCode.NONE
        cluster.partition(leader, keep_clients=True)
        deadline = time.monotonic() + LIMIT_S
        while _append(cluster, leader) is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            assert time.monotonic() < deadline, "the leader still appends with acks=1"
        assert _append(cluster, leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.heal()
        cluster.wait_until_in_sync()
