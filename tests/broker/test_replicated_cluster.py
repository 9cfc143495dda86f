"""Three brokers of one cluster on loopback sockets: topics with three replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.ids import TopicName, TopicPartition
from odradek.metadata.image import PartitionImage
from odradek.offloading import WorkRunner
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.result_tasks import wait
from testkit.requests import batch
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

IDS = (1, 2, 3)
PARTITION = TopicPartition(TopicName("t"), 0)

Test = Callable[[ClusterBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    config = {"min.insync.replicas": "2", "replica.fetch.wait.max.ms": "200"}
    return lambda test: run_with_cluster(tmp_path, test, config=config)


def partition(cluster: ClusterBrokers, number: int = 0) -> PartitionImage:
    """Return the partition in the image of the controller's broker."""
    found = cluster.image(cluster.controller_id).partition("t", number)
    assert found is not None
    return found


def log_end(cluster: ClusterBrokers, broker: int, number: int = 0) -> int:
    log = cluster.servers[broker].services.log_manager.get(TopicPartition(PARTITION.topic, number))
    return -1 if log is None else log.log_end_offset


async def in_sync(cluster: ClusterBrokers, *brokers: int, number: int = 0) -> None:
    await cluster.until(lambda: set(partition(cluster, number).isr) == set(brokers))


async def produce(cluster: ClusterBrokers, *values: bytes, number: int = 0) -> None:
    """Append with acks=all at the leader, which may have changed."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    while code:
        leader = partition(cluster, number).leader
        if leader not in cluster.servers:
            await cluster.until(lambda: partition(cluster, number).leader in cluster.servers)
            continue
        result = await cluster.produce("t", *values, partition=number, at=leader)
        code = ErrorCode(result.error_code)
        assert code in (
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )


def test_a_record_with_acks_all_is_on_every_replica(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 3, 3)
        for number in range(3):
            await produce(cluster, b"a", b"b", number=number)
            assert [log_end(cluster, each, number) for each in IDS] == [2, 2, 2]
            assert await cluster.fetch("t", number) == [b"a", b"b"]

    run(test)


@pytest.mark.parametrize("of_controller", [True, False])
def test_another_replica_leads_when_the_leader_stops(
    run: Callable[[Test], None], *, of_controller: bool
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        controller = cluster.controller_id
        leader = controller if of_controller else next(e for e in IDS if e != controller)
        others = [each for each in IDS if each != leader]
        await cluster.create_topic("t", assignment=[[leader, *others]])
        await produce(cluster, b"before")
        await cluster.stop(leader)
        await cluster.until(
            lambda: any(cluster.member(each).is_controller for each in cluster.servers)
        )
        await cluster.until(lambda: partition(cluster).leader in others)
        await produce(cluster, b"between")
        await cluster.start(leader)
        await in_sync(cluster, *IDS)
        await produce(cluster, b"after")
        assert [log_end(cluster, each) for each in IDS] == [3, 3, 3]
        await cluster.until(lambda: partition(cluster).leader in cluster.servers)
        assert await cluster.fetch("t", at=partition(cluster).leader) == [
            b"before",
            b"between",
            b"after",
        ]

    run(test)


def test_every_broker_can_restart_in_turn(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 3, 3)
        expected: list[bytes] = []
        for broker in IDS * 2:
            await cluster.stop(broker)
            await cluster.until(
                lambda: any(cluster.member(each).is_controller for each in cluster.servers)
            )
            value = b"%d of %d" % (len(expected), broker)
            expected.append(value)
            for number in range(3):
                await produce(cluster, value, number=number)
            await cluster.start(broker)
            for number in range(3):
                await in_sync(cluster, *IDS, number=number)
        for number in range(3):
            leader = partition(cluster, number).leader
            assert await cluster.fetch("t", number, at=leader) == expected
            assert {log_end(cluster, each, number) for each in IDS} == {len(expected)}

    run(test)


def test_an_expired_session_of_a_leader_costs_no_record(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        leader = next(each for each in IDS if each != cluster.controller_id)
        await cluster.create_topic("t", assignment=[[leader, *(e for e in IDS if e != leader)]])
        await produce(cluster, b"before")
        epoch = cluster.member(leader).broker_epoch
        cluster.expire(leader)
        await cluster.until(lambda: cluster.member(leader).broker_epoch > epoch)
        await produce(cluster, b"after")
        await in_sync(cluster, *IDS)
        assert await cluster.fetch("t", at=partition(cluster).leader) == [b"before", b"after"]

    run(test)


def test_too_few_replicas_refuse_records(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        leader = cluster.controller_id
        others = [each for each in IDS if each != leader]
        await cluster.create_topic("t", assignment=[[leader, *others]])
        await produce(cluster, b"value")
        await cluster.stop(*others)
        await in_sync(cluster, leader)
        result = await cluster.produce("t", b"refused", at=leader)
        assert result.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.start(*others)
        await in_sync(cluster, *IDS)
        await produce(cluster, b"accepted")
        leader = partition(cluster).leader
        assert await cluster.fetch("t", at=leader) == [b"value", b"accepted"]

    run(test)


def test_r3_isr_below_the_minimum_after_the_append(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ISR shrinks after the records of `t` are committed and before those of `z` are appended.

    The batch of `z` is compressed again, in more than one time slice, which the test delays.
    """
    finish, gate = WorkRunner.finish, asyncio.Event()

    async def finish_later(runner: WorkRunner, work: Any, step: Any) -> Any:
        await gate.wait()
        return await finish(runner, work, step)

    async def test(cluster: ClusterBrokers) -> None:
        leader = cluster.controller_id
        others = [each for each in IDS if each != leader]
        await cluster.create_topic("t", assignment=[[leader, *others]])
        await cluster.create_topic(
            "z", assignment=[[leader, *others]], configs={"compression.type": "zstd"}
        )
        for topic in ("t", "z"):
            await cluster.until(lambda topic=topic: is_full(cluster, topic))
        monkeypatch.setattr(WorkRunner, "finish", finish_later)
        topics = [
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch(value))])
            for topic, value in (("t", b"first"), ("z", bytes(100_000)))
        ]
        request = ProduceRequest(None, -1, 30_000, topics)
        sent = cluster.channel(leader).send(request, ProduceResponse, version=12)
        await cluster.until(lambda: log_end(cluster, others[0]) == log_end(cluster, others[1]) == 1)
        found = cluster.servers[leader].services.replica_manager.find("t", 0)
        assert found is not None
        await cluster.until(lambda: found.log.high_watermark == 1)
        assert not sent.done
        await cluster.stop(*others)
        await in_sync(cluster, leader)
        gate.set()
        response = await wait(sent)
        codes = [topic.partition_responses[0].error_code for topic in response.responses]
        assert codes == [
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        ]
        assert await cluster.fetch("t", at=leader) == [b"first"], "it stays in the log"

    run(test)


def is_full(cluster: ClusterBrokers, topic: str) -> bool:
    found = cluster.image(cluster.controller_id).partition(topic, 0)
    return found is not None and set(found.isr) == set(IDS)
