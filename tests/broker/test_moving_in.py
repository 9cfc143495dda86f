"""Three brokers on the store and the log directories of a stopped Apache Kafka 3.9, as recorded."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker import cluster_identity, cluster_member
from odradek.config.consents import TAKE_OVER_WITHOUT_FILE
from odradek.controller.loading import prepare
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid, uuid_to_string
from odradek.metadata import znodes
from odradek.metadata.config_changes import OpType
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.interface import BadVersionError
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_client_quotas_response import AlterClientQuotasResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from odradek.records.batch import CONTROL_MASK, parse_header
from odradek.records.record import iter_batches, iter_records
from testkit.requests import fetch
from tests.helpers.cluster_brokers import ClusterBrokers
from tests.helpers.kafka_zookeeper import (
    TIME_MS,
    Tree,
    recorded_tree,
    recorded_view,
    store_with,
    tree_of,
    unpack_directories,
)
from tests.helpers.running_clock import RunningClock

BROKERS = (1, 2, 3)
READ_COMMITTED = 1
KAFKA_FILE = {"zookeeper.connect": "zk:2181/kafka", "listeners": "PLAINTEXT://:9092"}


@pytest.fixture(autouse=True)
def patient_tests(patient: None) -> None:
    pass


@asynccontextmanager
async def stopped_kafka(
    tmp_path: Path, more: Mapping[str, str | None] | None = None
) -> AsyncIterator[tuple[ClusterBrokers, MemoryStore]]:
    """Yield the recorded cluster, with further nodes, and a session on its store."""
    unpack_directories(tmp_path)
    cluster = ClusterBrokers(tmp_path)
    cluster.clock = RunningClock(TIME_MS)
    cluster.file = KAFKA_FILE
    store = await store_with(cluster.ensemble, {**recorded_tree(), **(more or {})})
    try:
        yield cluster, store
    finally:
        cluster.close_channels()
        await cluster.stop()


def run(
    tmp_path: Path,
    test: Callable[[ClusterBrokers, MemoryStore], Awaitable[None]],
    more: Mapping[str, str | None] | None = None,
) -> None:
    async def main() -> None:
        async with stopped_kafka(tmp_path, more) as (cluster, store):
            await test(cluster, store)

    asyncio.run(main())


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the contents of all files, except for those that lock a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


async def fetched(cluster: ClusterBrokers, topic: str, partition: int) -> list[Any]:
    """Return offset and key of the committed records, as a client reads them."""
    leader = cluster.leader(topic, partition)
    aborted: dict[int, int] = {}
    found: list[Any] = []
    offset, end = 0, 1
    while offset < end:
        request = fetch(topic, offset, partitions=(partition,), isolation_level=READ_COMMITTED)
        response = await cluster.call(leader, request, FetchResponse, version=12)
        (part,) = response.responses[0].partitions
        assert part.error_code == ErrorCode.NONE
        end = part.last_stable_offset
        for each in part.aborted_transactions or ():
            aborted.setdefault(each.producer_id, each.first_offset)
        for batch in iter_batches(bytes(part.records or b"")):
            header = parse_header(batch)
            offset = header.last_offset + 1
            if header.attributes & CONTROL_MASK:
                if header.base_offset > aborted.get(header.producer_id, header.base_offset):
                    del aborted[header.producer_id]
            elif header.base_offset < aborted.get(header.producer_id, 1 << 62):
                found += [[each.offset, each.key] for each in iter_records(batch)]
    return found


async def leads_everything(cluster: ClusterBrokers) -> None:
    """Wait until each partition has a leader that serves it."""

    def leads(broker: int, name: str, number: int) -> bool:
        found = cluster.servers[broker].services.replica_manager.find(name, number)
        return found is not None and not found.error

    await cluster.until(
        lambda: all(
            part.leader in cluster.servers and leads(part.leader, topic.name, part.partition)
            for topic in cluster.image(1).topics_by_name.values()
            for part in topic.partitions
        )
    )


def test_topics_ids_replicas_and_committed_records_are_as_before(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        before = recorded_view()
        await cluster.start(*BROKERS)
        await leads_everything(cluster)
        image = cluster.image(1)
        assert image.cluster_id == before["cluster"]
        topics = {
            topic.name: [
                topic.topic_id.hex(),
                [sorted(each.replicas) for each in topic.partitions],
            ]
            for topic in image.topics_by_name.values()
        }
        assert topics == before["topics"]
        for name, records in before["records"].items():
            topic, _, number = name.rpartition("-")
            expected = [[offset, key and key.encode()] for offset, _, key, _ in records]
            assert await fetched(cluster, topic, int(number)) == expected, name

    run(tmp_path, test)


def test_the_nodes_of_kafka_stay_as_they_are(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        before = recorded_tree()
        await cluster.start(*BROKERS)
        await leads_everything(cluster)
        after = await tree_of(store)
        defaults = "/config/brokers/<default>"
        changing = ("/controller_epoch", "/latest_producer_id_block", "/feature", defaults)
        for path, data in before.items():
            if not path.endswith("/state") and path not in changing:
                assert after[path] == (data or ""), path
        assert int(after["/controller_epoch"] or "") > int(before["/controller_epoch"] or "")
        assert json.loads(after["/feature"] or "")["features"] == {"metadata.version": 27}
        assert znodes.TAKEN_OVER in after
        kept = json.loads(before[defaults] or "")["config"]
        configs = json.loads(after[defaults] or "")["config"]
        assert configs == {**kept, "min.insync.replicas": "1"}  # added with the ELR (KIP-966)

    run(tmp_path, test)


def test_a_reassignment_in_progress_is_preserved_and_its_partition_is_served(
    tmp_path: Path,
) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        await cluster.start(*BROKERS)
        await leads_everything(cluster)
        found = cluster.image(1).partition("moving", 0)
        assert found is not None
        assert found.replicas == (2, 3, 1)
        assert found.adding_replicas == (3,)
        assert found.removing_replicas == (1,)
        for topics in (None, [ListPartitionReassignmentsTopics("moving", [0, 7])]):
            request = ListPartitionReassignmentsRequest(topics=topics)
            listed = await cluster.call(1, request, ListPartitionReassignmentsResponse)
            (topic,) = listed.topics
            assert topic.name == "moving"
            assert topic.partitions == [OngoingPartitionReassignment(0, [2, 3, 1], [3], [1])]
        produced = await cluster.produce("moving", b"new")
        assert produced.error_code == ErrorCode.NONE
        assert produced.base_offset == 100
        node = await store.get(znodes.topic_path(TopicName("moving")))
        assert node.data.decode() == recorded_tree()["/brokers/topics/moving"]

    run(tmp_path, test)


def test_replicas_return_to_the_isr(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        await cluster.start(*BROKERS)
        await cluster.until(
            lambda: all(
                set(part.isr) == set(part.replicas)
                for topic in cluster.image(1).topics_by_name.values()
                for part in topic.partitions
            )
        )

    run(tmp_path, test)


def test_scram_credentials_stay_beside_a_quota_that_changes(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        await cluster.start(*BROKERS)
        entity = [EntityData("user", "alice")]
        for op, expected in (
            (OpData("producer_byte_rate", 4_000_000.0, remove=False), "4000000"),
            (OpData("producer_byte_rate", 0.0, remove=True), None),
        ):
            request = AlterClientQuotasRequest([EntryData(entity, [op])])
            response = await cluster.call(1, request, AlterClientQuotasResponse)
            assert response.entries[0].error_code == ErrorCode.NONE
            found = json.loads((await store.get("/config/users/alice")).data)["config"]
            before = json.loads(recorded_tree()["/config/users/alice"] or "")["config"]
            assert found["SCRAM-SHA-256"] == before["SCRAM-SHA-256"]
            assert found.get("producer_byte_rate") == expected

    run(tmp_path, test)


def test_configs_that_odradek_does_not_know_stay_beside_one_that_changes(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        await cluster.start(*BROKERS)
        for kind, name, path, key in (
            (ResourceType.TOPIC, "moving", "/config/topics/moving", "retention.ms"),
            (ResourceType.BROKER, "1", "/config/brokers/1", "log.cleaner.threads"),
        ):
            config = AlterableConfig(key, OpType.SET, "2")
            resource = AlterConfigsResource(kind, name, [config])
            request = IncrementalAlterConfigsRequest([resource])
            response = await cluster.call(1, request, IncrementalAlterConfigsResponse)
            assert response.responses[0].error_code == ErrorCode.NONE, response
            before = json.loads(recorded_tree()[path] or "")["config"]
            after = json.loads((await store.get(path)).data)["config"]
            assert after == {**before, key: "2"}

    run(tmp_path, test)


def test_brokers_may_start_one_after_the_other(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        for broker in BROKERS:
            await cluster.start(broker)
        await leads_everything(cluster)
        await cluster.stop()
        await cluster.start(*BROKERS)
        await leads_everything(cluster)

    run(tmp_path, test)


def test_records_are_as_before_after_a_sigkill_of_all_brokers(tmp_path: Path) -> None:
    """A broker that was killed leaves no mark of a clean stop, and its logs are recovered."""

    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        for broker in BROKERS:
            (tmp_path / str(broker) / ".kafka_cleanshutdown").unlink()
        await cluster.start(*BROKERS)
        await leads_everything(cluster)
        for name, records in recorded_view()["records"].items():
            topic, _, number = name.rpartition("-")
            found = await fetched(cluster, topic, int(number))
            assert [offset for offset, _ in found] == [each[0] for each in records], name

    run(tmp_path, test)


def test_log_directories_get_ids_and_keep_their_other_properties(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        await cluster.start(*BROKERS)
        ids = set()
        for broker in BROKERS:
            lines = (tmp_path / str(broker) / "meta.properties").read_text("utf-8").splitlines()
            assert {"version=0", f"broker.id={broker}"} <= set(lines)
            (found,) = [each for each in lines if each.startswith("directory.id=")]
            ids.add(found)
            (registered,) = cluster.image(1).brokers[BrokerId(broker)].directories
            assert found == f"directory.id={uuid_to_string(registered)}"
        assert len(ids) == len(BROKERS)

    run(tmp_path, test)


# --- crashes ---


def test_a_take_over_that_ends_before_the_directories_are_marked_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise OSError("the power was cut")

    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        files = files_of(tmp_path)
        with monkeypatch.context() as broken:
            broken.setattr(cluster_identity, "write_mark", crash)
            with pytest.raises(OSError, match="power"):
                await cluster.start(1)
        assert znodes.TAKEN_OVER in await tree_of(store)
        assert files_of(tmp_path) == files
        await cluster.start(*BROKERS)
        await leads_everything(cluster)
        assert await fetched(cluster, "plain", 0)

    run(tmp_path, test)


# --- refusals ---


async def refused(
    cluster: ClusterBrokers, store: MemoryStore, tmp_path: Path, broker: int = 1
) -> str:
    """Return why a broker does not start. Neither the store nor its directory changes."""
    nodes, files = await tree_of(store), files_of(tmp_path)
    with pytest.raises(KafkaError) as error:
        await cluster.start(broker)
    assert error.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "\n" not in error.value.message
    assert await tree_of(store) == nodes
    assert files_of(tmp_path) == files
    return error.value.message


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"/kafka-acl": None, "/kafka-acl/Topic": None}, "/kafka-acl"),
        ({"/kafka-acl-extended": None}, "/kafka-acl-extended"),
        ({"/delegation_token": None}, "/delegation_token"),
        (
            {"/config/brokers/2": '{"version":1,"config":{"listeners":"SASL_SSL://:9093"}}'},
            "listeners",
        ),
        ({"/brokers/ids/2": "{}"}, "brokers 2"),
        ({"/controller": "{}"}, "its controller"),
        ({"/migration": "{}"}, "/migration"),
        ({"/admin/delete_topics/plain": None}, "plain"),
        ({"/brokers/topics/plain": '{"version":1,"partitions":{"0":[1]}}'}, "2.8"),
    ],
)
def test_a_cluster_is_refused_before_anything_is_written(
    tmp_path: Path, more: Tree, reason: str
) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        assert reason in await refused(cluster, store, tmp_path)

    run(tmp_path, test, more)


@pytest.mark.parametrize("name", ["authorizer.class.name", "sasl.enabled.mechanisms"])
def test_a_broker_with_configs_of_authorization_or_sasl_is_refused(
    tmp_path: Path, name: str
) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        cluster.config[name] = "X"
        assert name in await refused(cluster, store, tmp_path)
        del cluster.config[name]
        await cluster.start(1)
        cluster.config[name] = "X"
        with pytest.raises(KafkaError, match=name):
            await cluster.start(2)
        del cluster.servers[2]

    run(tmp_path, test)


def test_each_broker_of_kafka_needs_the_file_of_kafka(tmp_path: Path) -> None:
    """Without it, retention and min.insync.replicas of that file would be the defaults."""

    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        for file in (None, {"min.insync.replicas": "2"}):
            cluster.file = file
            reason = await refused(cluster, store, tmp_path)
            for part in ("--config", "SCRAM", TAKE_OVER_WITHOUT_FILE):
                assert part in reason
        cluster.file = KAFKA_FILE
        await cluster.start(1)
        cluster.file = None
        with pytest.raises(KafkaError, match="--config"):
            await cluster.start(2)
        del cluster.servers[2]
        await cluster.start(4)  # a new broker, which has no file of Kafka
        await cluster.restart(1)  # it has joined already

    run(tmp_path, test)


def test_a_config_permits_a_take_over_without_the_file(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        cluster.file = None
        cluster.config[TAKE_OVER_WITHOUT_FILE] = "true"
        await cluster.start(*BROKERS)
        await leads_everything(cluster)
        assert await fetched(cluster, "plain", 0)

    run(tmp_path, test)


@pytest.mark.parametrize(
    "secure",
    [
        {
            "listeners": "CLIENTS://:9092,EXTERNAL://:9093",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,EXTERNAL:SASL_SSL",
        },
        {"listeners": "SASL_PLAINTEXT://:9092"},
        {"advertised.listeners": "SSL://h:9092"},
        {"security.inter.broker.protocol": "SASL_SSL"},
        {"zookeeper.set.acl": "true"},
        {"principal.builder.class": "com.example.Principals"},
    ],
)
def test_a_file_with_secure_listeners_is_refused_although_options_replace_them(
    tmp_path: Path, secure: dict[str, str]
) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        cluster.file = {**KAFKA_FILE, **secure}
        assert [*secure][-1] in await refused(cluster, store, tmp_path)
        cluster.config[TAKE_OVER_WITHOUT_FILE] = "true"
        assert [*secure][-1] in await refused(cluster, store, tmp_path)
        del cluster.config[TAKE_OVER_WITHOUT_FILE]
        cluster.file = KAFKA_FILE
        await cluster.start(1)
        cluster.file = {**KAFKA_FILE, **secure}
        with pytest.raises(KafkaError, match=[*secure][-1]):
            await cluster.start(2)
        del cluster.servers[2]

    run(tmp_path, test)


def test_a_node_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        nodes = await tree_of(store)
        with pytest.raises(KafkaError, match="/config/topics/plain"):
            await cluster.start(1)
        assert await tree_of(store) == nodes

    run(tmp_path, test, {"/config/topics/plain": "no JSON"})


def test_the_directories_of_another_cluster_are_refused(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        properties = tmp_path / "1" / "meta.properties"
        text = properties.read_text("utf-8").replace(recorded_view()["cluster"], "another")
        properties.write_text(text, "utf-8")
        assert "another" in await refused(cluster, store, tmp_path)

    run(tmp_path, test)


def test_a_new_broker_does_not_take_the_cluster_over(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        assert "broker of Kafka first" in await refused(cluster, store, tmp_path, 4)
        del cluster.servers[4]
        await cluster.start(1)
        await cluster.start(4)

    run(tmp_path, test)


def test_log_directories_must_have_the_logs_of_in_sync_replicas(tmp_path: Path) -> None:
    """The broker would be elected, and the other replicas would truncate their logs."""

    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        shutil.rmtree(tmp_path / "3" / "plain-0")
        assert "plain-0" in await refused(cluster, store, tmp_path, 3)
        await cluster.start(1)
        with pytest.raises(KafkaError, match="without a log"):
            await cluster.start(3)
        del cluster.servers[3]

    run(tmp_path, test)


def test_a_broker_that_is_in_sync_does_not_join_with_empty_directories(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        shutil.rmtree(tmp_path / "3")
        await cluster.start(1)
        with pytest.raises(KafkaError, match="without a log"):
            await cluster.start(3)
        del cluster.servers[3]

    run(tmp_path, test)


def test_a_broker_that_is_not_in_sync_may_join_with_empty_directories(tmp_path: Path) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        shutil.rmtree(tmp_path / "1")
        await cluster.start(3)
        await cluster.start(1, 2)
        await leads_everything(cluster)
        await cluster.until(lambda: 1 in cluster.image(2).partition("plain", 0).isr)  # type: ignore[union-attr]

    run(tmp_path, test)


def test_a_store_that_was_restored_to_the_state_before_the_take_over_is_refused(
    tmp_path: Path,
) -> None:
    async def test(cluster: ClusterBrokers, _store: MemoryStore) -> None:
        await cluster.start(1)
        await cluster.stop()
        restored = ClusterBrokers(tmp_path)
        restored.file = KAFKA_FILE
        store = await store_with(restored.ensemble, recorded_tree())
        assert "taken over before" in await refused(restored, store, tmp_path)

    run(tmp_path, test)


def test_a_wrong_path_of_zookeeper_is_refused_and_the_right_one_is_taken_over_then(
    tmp_path: Path,
) -> None:
    """A new cluster in the empty path would rename the log of each partition."""

    async def test(right: ClusterBrokers, _store: MemoryStore) -> None:
        wrong = ClusterBrokers(tmp_path)
        wrong.clock = RunningClock(TIME_MS)
        store = MemoryStore(wrong.ensemble)
        await store.open()
        for broker in BROKERS:
            reason = await refused(wrong, store, tmp_path, broker)
            assert recorded_view()["cluster"] in reason
            assert "zookeeper.connect" in reason
        await right.start(*BROKERS)
        await leads_everything(right)
        assert await fetched(right, "plain", 0)

    run(tmp_path, test)


def test_a_store_that_has_none_of_the_partitions_of_a_broker_is_refused(tmp_path: Path) -> None:
    """Another broker has begun a new cluster with the id of Kafka's."""

    async def test(_right: ClusterBrokers, _store: MemoryStore) -> None:
        wrong = ClusterBrokers(tmp_path)
        wrong.clock = RunningClock(TIME_MS)
        store = MemoryStore(wrong.ensemble)
        await store.open()
        await prepare(store, recorded_view()["cluster"], lambda: Uuid(bytes(16)), completes=False)
        assert "none of the 13 partitions" in await refused(wrong, store, tmp_path)

    run(tmp_path, test)


def test_a_take_over_whose_nodes_change_all_the_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def changed(*_: object) -> None:
        raise BadVersionError(znodes.CLUSTER_ID)

    monkeypatch.setattr(cluster_member, "take_over", changed)

    async def test(cluster: ClusterBrokers, store: MemoryStore) -> None:
        nodes, files = await tree_of(store), files_of(tmp_path)
        with pytest.raises(KafkaError, match="Stop all brokers of Kafka"):
            await cluster.start(1)
        assert (await tree_of(store), files_of(tmp_path)) == (nodes, files)

    run(tmp_path, test)
