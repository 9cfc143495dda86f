"""Partitions with three replicas on the brokers of one cluster: all logs become equal."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.log.unified_log import UnifiedLog
from odradek.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
)
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster
from tests.replication.scripted_leader import bytes_of

BROKERS = (1, 2, 3)
TIMEOUT_S = 30

Test = Callable[[ClusterBrokers], Awaitable[None]]


def run(tmp_path: Path, test: Test, **config: str) -> None:
    async def limited(cluster: ClusterBrokers) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await test(cluster)

    run_with_cluster(tmp_path, limited, config={"min.insync.replicas": "2", **config})


def logs(cluster: ClusterBrokers, topic: str = "t", partition: int = 0) -> dict[int, UnifiedLog]:
    found = {}
    for broker_id, server in cluster.servers.items():
        replica = server.services.replica_manager.find(topic, partition)
        if replica is not None:
            found[broker_id] = replica.log
    return found


def isr(cluster: ClusterBrokers, topic: str = "t", partition: int = 0) -> tuple[int, ...]:
    found = cluster.image(next(iter(cluster.servers))).partition(topic, partition)
    assert found is not None
    return tuple(sorted(found.isr))


async def equal_logs(cluster: ClusterBrokers, topic: str = "t", partition: int = 0) -> bytes:
    """Return the bytes of the log when all replicas are in sync and have the same ones."""

    def is_equal() -> bool:
        found = logs(cluster, topic, partition)
        ends = {each.log_end_offset for each in found.values()}
        high = {each.high_watermark for each in found.values()}
        return (
            set(isr(cluster, topic, partition)) == set(cluster.servers)
            and len(found) == len(cluster.servers)
            and ends == high
            and len(ends) == 1
        )

    await cluster.until(is_equal)
    contents = {bytes_of(each) for each in logs(cluster, topic, partition).values()}
    assert len(contents) == 1, "logs differ"
    epochs = [
        [entry for entry in each.epochs.entries() if entry[1] < each.log_end_offset]
        for each in logs(cluster, topic, partition).values()
    ]
    assert all(each == epochs[0] for each in epochs), epochs
    return contents.pop()


def test_followers_equal_their_leader_byte_for_byte(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 3, 3)
        rng = random.Random(5)
        for number in range(60):
            values = [rng.randbytes(rng.choice([1, 100, 5_000])) for _ in range(rng.randint(1, 5))]
            response = await cluster.produce("t", *values, partition=number % 3)
            assert response.error_code == ErrorCode.NONE
        for partition in range(3):
            assert len(await equal_logs(cluster, partition=partition)) > 1_000
            assert len(await cluster.fetch("t", partition)) >= 20

    run(tmp_path, test)


def test_acks_all_returns_when_the_followers_have_the_records(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 1, 3)
        await equal_logs(cluster)
        for number in range(20):
            response = await cluster.produce("t", b"value")
            assert response.error_code == ErrorCode.NONE
            ends = [each.log_end_offset for each in logs(cluster).values()]
            assert min(ends) >= number + 1, "each member of the ISR has the record"

    run(tmp_path, test)


def test_restarted_follower_catches_up(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 1, 3)
        await cluster.produce("t", b"before")
        leader = cluster.leader("t")
        follower = next(each for each in BROKERS if each != leader)
        await cluster.stop(follower)
        for _ in range(40):
            assert (await cluster.produce("t", bytes(100_000))).error_code == ErrorCode.NONE
        await cluster.start(follower)
        assert len(await equal_logs(cluster)) > 4_000_000

    run(tmp_path, test)


def test_leaders_change_and_logs_stay_equal(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 1, 3)
        written = []
        for round_ in range(3):
            for number in range(5):
                value = b"%d-%d" % (round_, number)
                response = await cluster.produce("t", value)
                if response.error_code == ErrorCode.NONE:
                    written.append(value)
            leader = cluster.leader("t")
            await cluster.stop(leader)
            await cluster.until(lambda leader=leader: cluster.leader("t") not in (leader, -1))
            await cluster.until(lambda: cluster.leader("t") in cluster.servers)
            response = await cluster.produce("t", b"without %d" % leader)
            if response.error_code == ErrorCode.NONE:
                written.append(b"without %d" % leader)
            await cluster.start(leader)
            await equal_logs(cluster)
        assert await cluster.fetch("t") == written
        assert len(written) >= 15

    run(tmp_path, test)


def test_r8_log_start_moves_on_all_replicas_before_delete_records_returns(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 1, 3)
        for _ in range(10):
            await cluster.produce("t", b"value")
        await equal_logs(cluster)
        found = await delete_records(cluster, 6)
        assert (found.error_code, found.low_watermark) == (ErrorCode.NONE, 6)
        assert [each.log_start_offset for each in logs(cluster).values()] == [6, 6, 6]

    run(tmp_path, test)


async def delete_records(cluster: ClusterBrokers, offset: int) -> DeleteRecordsPartitionResult:
    topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])
    request = DeleteRecordsRequest([topic], 10_000)
    response = await cluster.call(cluster.leader("t"), request, DeleteRecordsResponse)
    (found,) = response.topics[0].partitions
    assert isinstance(found, DeleteRecordsPartitionResult)
    return found


def test_f12_follower_begins_inside_a_batch_of_its_leader(tmp_path: Path) -> None:
    """DeleteRecords moves the leader's log start into a batch while the follower is down."""

    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 1, 3)
        await equal_logs(cluster)
        follower = next(each for each in BROKERS if each != cluster.leader("t"))
        await cluster.stop(follower)
        for values in ((b"a", b"b", b"c"), (b"d", b"e")):
            assert (await cluster.produce("t", *values)).error_code == ErrorCode.NONE
        assert (await delete_records(cluster, 1)).low_watermark == 1
        await cluster.start(follower)
        await equal_logs(cluster)
        assert [each.log_start_offset for each in logs(cluster).values()] == [1, 1, 1]
        await cluster.restart(follower)
        await equal_logs(cluster)
        assert logs(cluster)[follower].log_start_offset == 1

    run(tmp_path, test)


def test_r11_flush_precedes_acknowledgement_and_fetch(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", 2, 3)
        await equal_logs(cluster)
        for number in range(10):
            assert (await cluster.produce("t", b"value")).error_code == ErrorCode.NONE
            points = [each.recovery_point for each in logs(cluster).values()]
            assert min(points) >= number + 1, "each member of the ISR has synced the record"

    run(tmp_path, test, **{"log.flush.interval.messages": "1"})


@pytest.mark.parametrize("partitions", [60])
def test_many_partitions_are_in_sync_after_a_restart(tmp_path: Path, partitions: int) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", partitions, 3)
        for partition in range(0, partitions, 7):
            assert (await cluster.produce("t", b"v", partition=partition)).error_code == 0
        await cluster.restart(2)
        for partition in range(partitions):
            await equal_logs(cluster, partition=partition)

    run(tmp_path, test)
