"""Three brokers of one cluster on loopback sockets: topics with one replica."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.environment.files import RealFiles
from odradek.errors import ErrorCode, KafkaError
from odradek.log.directories.directory_names import parse_directory_name
from odradek.log.state.checkpoints import CLEAN_SHUTDOWN_FILE, read_clean_shutdown_epoch
from odradek.metadata import znodes
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.delete_topics_response import DeleteTopicsResponse
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from odradek.protocol.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from odradek.protocol.messages.describe_quorum_response import DescribeQuorumResponse
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.find_coordinator_response import FindCoordinatorResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from tests.helpers.cluster_brokers import ClusterBrokers, run_with_cluster

IDS = (1, 2, 3)
TOPIC_CONFIG = 2
SET = 0

Test = Callable[[ClusterBrokers], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, patient: None) -> Callable[[Test], None]:
    return lambda test: run_with_cluster(tmp_path, test)


def test_every_broker_serves_the_partitions_that_it_leads(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", at=2)
        assert {cluster.leader("t", number) for number in range(3)} == set(IDS)
        for number in range(3):
            result = await cluster.produce("t", b"value%d" % number, partition=number)
            assert result.error_code == ErrorCode.NONE
        for number in range(3):
            assert await cluster.fetch("t", number) == [b"value%d" % number]

    run(test)


def test_a_broker_that_does_not_lead_a_partition_names_the_leader(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2]])
        result = await cluster.produce("t", b"value", at=1)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(test)


def test_every_broker_executes_admin_requests(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        for broker in IDS:
            name = f"t{broker}"
            await cluster.create_topic(name, at=broker)
            setting = AlterableConfig("retention.ms", SET, "1234567")
            resource = AlterConfigsResource(TOPIC_CONFIG, name, [setting])
            altered = await cluster.call(
                broker, IncrementalAlterConfigsRequest([resource]), IncrementalAlterConfigsResponse
            )
            assert altered.responses[0].error_code == ErrorCode.NONE
            await cluster.until(
                lambda name=name: all(  # type: ignore[misc]
                    cluster.image(each).topic_configs.get(name) == {"retention.ms": "1234567"}
                    for each in IDS
                )
            )
            request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=30_000)
            deleted = await cluster.call(broker, request, DeleteTopicsResponse)
            assert deleted.responses[0].error_code == ErrorCode.NONE
            await cluster.until(
                lambda name=name: all(  # type: ignore[misc]
                    name not in cluster.image(each).topics_by_name for each in IDS
                )
            )

    run(test)


def test_metadata_and_describe_cluster_return_the_address_of_each_broker(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t")
        for broker in IDS:
            for listener in ("CLIENTS", "BROKERS"):
                addresses = {each: ("127.0.0.1", cluster.port(each, listener)) for each in IDS}
                metadata = await cluster.call(
                    broker,
                    MetadataRequest([MetadataRequestTopic(name="t")]),
                    MetadataResponse,
                    listener=listener,
                )
                found = {each.node_id: (each.host, each.port) for each in metadata.brokers}
                assert found == addresses
                leaders = [each.leader_id for each in metadata.topics[0].partitions]
                assert leaders == [cluster.leader("t", number) for number in range(3)]
                described = await cluster.call(
                    broker, DescribeClusterRequest(), DescribeClusterResponse, listener=listener
                )
                found = {each.broker_id: (each.host, each.port) for each in described.brokers}
                assert found == addresses
                assert described.cluster_id == metadata.cluster_id == cluster.member(1).cluster_id

    run(test)


def test_every_broker_names_the_same_coordinator(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        found = set()
        for broker in IDS:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
            coordinator = None
            while coordinator is None or coordinator.error_code:
                response = await cluster.call(broker, request, FindCoordinatorResponse)
                (coordinator,) = response.coordinators
                assert coordinator.error_code in (
                    ErrorCode.NONE,
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                )
            assert coordinator.port == cluster.port(coordinator.node_id)
            found.add(coordinator.node_id)
        assert len(found) == 1

    run(test)


def test_a_producer_id_is_given_out_once(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        found = []
        for broker in IDS * 3:
            response = await cluster.call(
                broker, InitProducerIdRequest(None, 60_000), InitProducerIdResponse
            )
            assert response.error_code == ErrorCode.NONE
            found.append(response.producer_id)
        assert len(set(found)) == len(found)
        assert len({each // 1000 for each in found}) == 3, "one block for each broker"

    run(test)


def test_describe_quorum_has_the_offset_of_each_broker(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t")
        controller = cluster.controller_id
        others = [each for each in IDS if each != controller]
        offset = cluster.image(controller).offset
        await cluster.until(lambda: {cluster.image(each).offset for each in IDS} == {offset})
        data = TopicData("__cluster_metadata", [PartitionData(0)])
        for broker in IDS:
            found = None
            while found is None or {each.log_end_offset for each in found.observers} != {offset}:
                response = await cluster.call(
                    broker, DescribeQuorumRequest([data]), DescribeQuorumResponse
                )
                assert response.error_code == ErrorCode.NONE
                (found,) = response.topics[0].partitions
            assert found.leader_id == controller
            assert found.high_watermark == offset
            assert [each.replica_id for each in found.current_voters] == [controller]
            assert sorted(each.replica_id for each in found.observers) == others
            addresses = {each.node_id: each.listeners[0].port for each in response.nodes}
            assert addresses == {each: cluster.port(each) for each in IDS}

    run(test)


def test_the_cluster_goes_on_after_a_restart_of_the_controller(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("before")
        former = cluster.controller_id
        epochs = {each: cluster.member(each).broker_epoch for each in IDS}
        await cluster.stop(former)
        await cluster.until(lambda: any(cluster.member(e).is_controller for e in cluster.servers))
        assert cluster.controller_id != former
        await cluster.start(former)
        assert cluster.member(former).broker_epoch > max(epochs.values())
        for broker in IDS:
            await cluster.create_topic(f"after{broker}", at=broker)
        for name in ("before", "after1", "after2", "after3"):
            for number in range(3):
                await cluster.until(lambda n=name, p=number: cluster.leader(n, p) != -1)  # type: ignore[misc]
                assert (await cluster.produce(name, b"v", partition=number)).error_code == 0
                assert await cluster.fetch(name, number) == [b"v"]

    run(test)


def test_records_of_a_leader_survive_its_restart(run: Callable[[Test], None]) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        leader = next(each for each in IDS if each != cluster.controller_id)
        other = cluster.controller_id
        await cluster.create_topic("t", assignment=[[leader]])
        await cluster.produce("t", b"before")
        await cluster.stop(leader)
        await cluster.until(lambda: _leader(cluster, other) == -1)
        await cluster.start(leader)
        await cluster.until(lambda: _leader(cluster, leader) == leader)
        assert (await cluster.produce("t", b"after", at=leader)).error_code == ErrorCode.NONE
        assert await cluster.fetch("t", at=leader) == [b"before", b"after"]

    run(test)


def _leader(cluster: ClusterBrokers, broker: int) -> int:
    found = cluster.image(broker).partition("t", 0)
    assert found is not None
    return found.leader


@pytest.mark.parametrize("of_controller", [True, False])
def test_a_broker_registers_again_after_its_session_has_expired(
    run: Callable[[Test], None], *, of_controller: bool
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        controller = cluster.controller_id
        broker = controller if of_controller else next(e for e in IDS if e != controller)
        await cluster.create_topic("t", assignment=[[broker]])
        await cluster.produce("t", b"before")
        epoch = cluster.member(broker).broker_epoch
        cluster.expire(broker)
        await cluster.until(lambda: cluster.member(broker).broker_epoch > epoch)
        await cluster.until(
            lambda: all(
                cluster.image(e).brokers[broker].epoch > epoch  # type: ignore[index]
                and not cluster.image(e).brokers[broker].fenced  # type: ignore[index]
                and _leader(cluster, e) == broker
                for e in IDS
            )
        )
        assert (await cluster.produce("t", b"after")).error_code == ErrorCode.NONE
        assert await cluster.fetch("t") == [b"before", b"after"]
        await asyncio.gather(*(cluster.create_topic(f"at{each}", at=each) for each in IDS))

    run(test)


def test_a_broker_stops_if_another_process_registers_with_its_id(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        broker = next(each for each in IDS if each != cluster.controller_id)
        other = MemoryStore(cluster.ensemble)
        await other.open()
        path = f"{znodes.BROKER_IDS}/{broker}"
        node = json.loads((await other.get(path)).data)
        node["incarnation_id"] = "AAAAAAAAQACAAAAAAAAAAQ"
        cluster.expire(broker)
        await other.create(path, znodes.encode(node), ephemeral=True)
        error = await cluster.servers[broker].failed()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await cluster.stop(broker)
        await other.close()

    run(test)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (None, "is empty"),
        (b'{"version":"1","id":"AAAAAAAAQACAAAAAAAAAAQ"}', "belongs to another cluster"),
    ],
)
def test_a_broker_stops_if_its_metadata_store_was_replaced(
    run: Callable[[Test], None], contents: bytes | None, reason: str
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        broker = next(each for each in IDS if each != cluster.controller_id)
        other = MemoryStore(cluster.ensemble)
        await other.open()
        if contents is None:
            await other.delete(znodes.CLUSTER_ID)
        else:
            await other.set(znodes.CLUSTER_ID, contents)
        cluster.expire(broker)
        error = await cluster.servers[broker].failed()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert reason in error.message
        await cluster.stop(broker)
        await other.close()

    run(test)


def test_a_broker_stops_if_its_metadata_store_was_restored_from_a_backup(
    run: Callable[[Test], None],
) -> None:
    """It would refuse all metadata of the controllers that follow, whose epochs are lower."""

    async def test(cluster: ClusterBrokers) -> None:
        broker = next(each for each in IDS if each != cluster.controller_id)
        epoch = cluster.image(broker).controller_epoch
        other = MemoryStore(cluster.ensemble)
        await other.open()
        await other.set(znodes.CONTROLLER_EPOCH, b"%d" % (epoch - 1))
        cluster.expire(broker)
        error = await cluster.servers[broker].failed()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert f"controller epoch {epoch - 1}" in error.message
        await cluster.stop(broker)
        await other.close()

    run(test)


def test_a_broker_stops_if_its_metadata_store_has_lost_the_controller_epoch(
    run: Callable[[Test], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        broker = next(each for each in IDS if each != cluster.controller_id)
        other = MemoryStore(cluster.ensemble)
        await other.open()
        await other.delete(znodes.CONTROLLER_EPOCH)
        cluster.expire(broker)
        error = await cluster.servers[broker].failed()
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert f"has no node {znodes.CONTROLLER_EPOCH}" in error.message
        assert not [each for each in caplog.records if each.exc_info and "register" in each.msg]
        await cluster.stop(broker)
        await other.close()

    run(test)


def test_a_deletion_is_finished_when_every_broker_has_removed_its_logs(
    run: Callable[[Test], None], tmp_path: Path
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t")
        for number in range(3):
            await cluster.produce("t", b"value", partition=number)
        absent = next(each for each in IDS if each != cluster.controller_id)
        running = [each for each in IDS if each != absent]
        await cluster.stop(absent)
        request = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=30_000)
        await cluster.call(running[0], request, DeleteTopicsResponse)
        await cluster.until(
            lambda: all(
                [each.brokers for each in cluster.image(e).deletions.values()] == [(absent,)]
                for e in running
            )
        )
        assert _partition_directories(tmp_path / str(absent)) == 1
        await cluster.start(absent)
        await cluster.until(lambda: all(not cluster.image(each).deletions for each in IDS))
        assert [_partition_directories(tmp_path / str(each)) for each in IDS] == [0, 0, 0]

    run(test)


def _partition_directories(path: Path) -> int:
    return sum(parse_directory_name(each.name) is not None for each in path.iterdir())


def test_a_clean_stop_is_proven_by_the_epoch_in_kafkas_file(
    run: Callable[[Test], None], tmp_path: Path
) -> None:
    """Rule E4: the next registration names the broker epoch of the last one."""

    async def test(cluster: ClusterBrokers) -> None:
        broker = next(each for each in IDS if each != cluster.controller_id)
        mark = tmp_path / str(broker) / CLEAN_SHUTDOWN_FILE
        epoch = cluster.member(broker).broker_epoch
        await cluster.stop(broker)
        assert json.loads(mark.read_bytes()) == {"version": 0, "brokerEpoch": epoch}
        await cluster.start(broker)
        assert not mark.exists()
        assert await _registered_clean_epoch(cluster, broker) == epoch
        restarted = cluster.member(broker).broker_epoch
        cluster.expire(broker)
        await cluster.until(lambda: cluster.member(broker).broker_epoch > restarted)
        assert await _registered_clean_epoch(cluster, broker) == epoch, "the same process"
        renewed = cluster.member(broker).broker_epoch
        await cluster.stop(broker)
        assert json.loads(mark.read_bytes())["brokerEpoch"] == renewed
        mark.unlink()
        await cluster.start(broker)
        assert await _registered_clean_epoch(cluster, broker) == -1

    run(test)


async def _registered_clean_epoch(cluster: ClusterBrokers, broker: int) -> int:
    store = MemoryStore(cluster.ensemble)
    await store.open()
    node = await store.get(f"{znodes.BROKER_IDS}/{broker}")
    await store.close()
    return znodes.decode_clean_shutdown_epoch(node.data)


@pytest.mark.parametrize(
    ("contents", "epoch"),
    [
        (['{"version":0,"brokerEpoch":7}'] * 2, 7),
        (['{"version":0,"brokerEpoch":7}', '{"version":0,"brokerEpoch":8}'], -1),
        (['{"version":0,"brokerEpoch":7}', None], -1),
        (['{"version":0,"brokerEpoch":7}', ""], -1),
        (['{"version":0}', '{"version":0}'], -1),
        (["[]", "[]"], -1),
        ([], -1),
    ],
)
def test_a_clean_stop_needs_the_same_epoch_in_all_log_directories(
    tmp_path: Path, contents: list[str | None], epoch: int
) -> None:
    paths = []
    for number, content in enumerate(contents):
        path = tmp_path / str(number)
        path.mkdir()
        paths.append(str(path))
        if content is not None:
            (path / CLEAN_SHUTDOWN_FILE).write_text(content)
    assert read_clean_shutdown_epoch(RealFiles(), paths) == epoch


def test_a_directory_that_the_metadata_does_not_know_is_set_aside(
    run: Callable[[Test], None],
) -> None:
    async def test(cluster: ClusterBrokers) -> None:
        await cluster.create_topic("t", assignment=[[2]])
        await cluster.produce("t", b"value")
        broker = 2
        await cluster.stop(broker)
        root = cluster.tmp_path / str(broker)
        shutil.copytree(root / "t-0", root / "unknown-7")
        (root / "unknown-7" / "partition.metadata").unlink()
        shutil.copytree(root / "unknown-7", root / "t-5")
        await cluster.start(broker)
        names = {each.name for each in root.iterdir() if each.is_dir()}
        assert "t-0" in names and not names & {"unknown-7", "t-5"}
        stray = [each for each in names if each.endswith("-stray")]
        assert sorted(each[:2] for each in stray) == ["t-", "un"]
        for each in stray:
            assert list((root / each).glob("*.log"))
        await cluster.until(lambda: cluster.leader("t") == broker)
        assert await cluster.fetch("t") == [b"value"]

    run(test)
