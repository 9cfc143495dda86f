"""Requests of administrators that only a cluster of several brokers can execute, at any broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.metadata.image import NO_LEADER, PartitionImage
from odradek.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.elect_leaders_response import ElectLeadersResponse
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

IDS = (1, 2, 3)
PREFERRED, UNCLEAN = 0, 1

Test = Callable[[ClusterBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    return lambda test: run_with_cluster(tmp_path, test)


def _others(cluster: ClusterBrokers) -> list[int]:
    """Return the brokers that are not the controller."""
    return [each for each in IDS if each != cluster.controller_id]


def _partition(cluster: ClusterBrokers, broker: int) -> PartitionImage:
    found = cluster.image(broker).partition("t", 0)
    assert found is not None
    return found


async def _elect(
    cluster: ClusterBrokers, at: int, kind: int, *partitions: int, everywhere: bool = False
) -> dict[tuple[str, int], int]:
    topics = None if everywhere else [TopicPartitions("t", list(partitions))]
    request = ElectLeadersRequest(kind, topics, 10_000)
    response: Any = await cluster.call(at, request, ElectLeadersResponse)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


def test_elections_that_are_not_needed_or_not_possible(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        first, second = _others(cluster)
        await cluster.create_topic("t", assignment=[[first], [second]])
        await cluster.stop(first)
        await cluster.until(lambda: cluster.leader("t") == NO_LEADER)
        for at in cluster.servers:
            assert await _elect(cluster, at, PREFERRED, 0, 1, 2) == {
                ("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
                ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            assert await _elect(cluster, at, UNCLEAN, 0, 1) == {
                ("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
            }
            assert await _elect(cluster, at, UNCLEAN, everywhere=True) == {
                ("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            }

    run(test)


@pytest.mark.parametrize("everywhere", [True, False])
def test_requested_unclean_election_is_applied_before_the_response(
    run: Callable[[Test], None], everywhere: bool
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        first, second = _others(cluster)
        await cluster.create_topic("t", assignment=[[first, second]])
        controller = cluster.controller_id
        await cluster.stop(first)
        await cluster.until(lambda: _partition(cluster, controller).isr == (second,))
        await cluster.stop(second)
        await cluster.until(lambda: _partition(cluster, controller).leader == NO_LEADER)
        await cluster.start(first)
        await cluster.until(lambda: cluster.image(controller).is_alive(BrokerId(first)))
        assert _partition(cluster, controller).leader == NO_LEADER
        assert await _elect(cluster, first, UNCLEAN, 0, everywhere=everywhere) == {("t", 0): 0}
        assert _partition(cluster, first).leader == first

    run(test)


def test_broker_that_runs_can_be_unregistered(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        first, second = _others(cluster)
        await cluster.create_topic("t", assignment=[[first]])

        async def unregister(broker: int) -> int:
            request = UnregisterBrokerRequest(broker)
            response: Any = await cluster.call(second, request, UnregisterBrokerResponse)
            return int(response.error_code)

        assert await unregister(first) == ErrorCode.NONE
        await cluster.until(lambda: cluster.leader("t") == NO_LEADER)
        assert await unregister(first) == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert await unregister(9) == ErrorCode.BROKER_ID_NOT_REGISTERED
        await asyncio.sleep(0)
        await cluster.restart(first)
        await cluster.until(lambda: cluster.image(second).is_alive(first))

    run(test)
