"""Import of a Kafka cluster into a store: all or nothing, and unsupported metadata is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.log_config import LogConfig
from odradek.controller.controller import Controller
from odradek.environment.clock import ManualClock
from odradek.environment.files import RealFiles
from odradek.environment.randomness import SystemRandomness
from odradek.ids import BrokerId, TopicName, TopicPartition
from odradek.log.directories.directory_names import METADATA_DIRECTORY
from odradek.log.directories.log_manager import LogManager
from odradek.log.unified_log import UnifiedLog
from odradek.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage
from odradek.metadata.kafka_import.metadata_log import UnreadableMetadata
from odradek.metadata.kafka_import.takeover import Takeover, find_takeover
from odradek.metadata.store.interface import Operation, Performed, StoreFailure
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.records.record import Record, build_batch
from tests.helpers.kafka_directory import CLUSTER_ID, NODE_ID, config_for, unpack
from tests.metadata.kafka_import.test_log_and_state import TOPIC_A, A, B, framed, write_log

BROKER = BrokerRegistration(BrokerId(NODE_ID), "localhost", 9092)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    manager = LogManager([str(tmp_path)], LogConfig(), ManualClock())
    manager.load(CLUSTER_ID, NODE_ID)
    yield manager
    manager.close()


def take_over(tmp_path: Path, logs: LogManager | None = None) -> Takeover | None:
    found = logs.all_logs() if logs is not None else []
    return find(config_for(tmp_path), tmp_path, found)


def find(config: BrokerConfig, tmp_path: Path, logs: list[UnifiedLog]) -> Takeover | None:
    new_uuid = SystemRandomness().uuid
    return find_takeover(config, CLUSTER_ID, logs, [str(tmp_path)], RealFiles(), new_uuid)


def taken(tmp_path: Path, *values: bytes, logs: LogManager | None = None) -> MetadataImage:
    directory = tmp_path / METADATA_DIRECTORY
    directory.mkdir()
    write_log(directory, *values)
    takeover = take_over(tmp_path, logs)
    assert takeover is not None
    return takeover.image


def append(logs: LogManager, partition: TopicPartition, epoch: int) -> None:
    log = logs.get(partition) or logs.create(partition, A)
    batch = memoryview(build_batch([Record(None, b"x")], timestamp_ms=1))
    log.append_as_leader(batch, epoch, now_ms=1)


def partition(number: int, replicas: list[int], epoch: int = 0) -> bytes:
    return framed(PartitionRecord(number, A, replicas, replicas, leader_epoch=epoch))


def test_an_empty_directory_has_no_cluster_to_import(tmp_path: Path) -> None:
    assert take_over(tmp_path) is None


def test_the_replica_of_this_node_becomes_the_only_one(tmp_path: Path) -> None:
    image = taken(tmp_path, TOPIC_A, partition(0, [1, 7, 2]), partition(1, [1, 2]))
    here, away = image.topics_by_name[TopicName("a")].partitions
    assert (here.replicas, here.isr, here.leader) == ((7,), (7,), 7)
    assert (away.replicas, away.leader) == ((1, 2), NO_LEADER)


def test_epochs_are_never_below_those_in_the_log(tmp_path: Path, logs: LogManager) -> None:
    append(logs, TopicPartition("a", 0), 12)
    image = taken(tmp_path, TOPIC_A, partition(0, [7], 3), partition(1, [7], 4), logs=logs)
    topic = image.topics_by_name[TopicName("a")]
    assert [p.leader_epoch for p in topic.partitions] == [12, 4]


def test_partitions_that_are_missing_in_the_metadata_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableMetadata, match="partitions of topic a"):
        taken(tmp_path, TOPIC_A, partition(1, [7]))


def test_configs_that_cannot_be_set_here_are_logged_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configs = (
        (2, "a", "retention.ms", "5"),
        (2, "a", "from.the.future", "secret"),
        (2, "a", "segment.bytes", "-3"),
        (4, "9", "log.retention.ms", "5"),
        (99, "x", "y", "z"),
    )
    records = [framed(ConfigRecord(*each)) for each in configs]
    image = taken(tmp_path, TOPIC_A, partition(0, [7]), *records)
    assert image.topic_configs == {"a": {"retention.ms": "5"}}
    assert image.broker_configs == {}
    for line in (
        "from.the.future of topic a",
        "segment.bytes of topic a",
        "retention.ms of broker 9",
    ):
        assert line in caplog.text
    assert "secret" not in caplog.text


def test_directories_of_one_topic_must_agree_on_its_id(tmp_path: Path, logs: LogManager) -> None:
    append(logs, TopicPartition("a", 0), 0)
    logs.create(TopicPartition("a", 1), B)
    with pytest.raises(UnreadableMetadata, match="different topic ids"):
        take_over(tmp_path, logs)


def test_missing_directories_of_a_topic_are_empty_partitions(
    tmp_path: Path, logs: LogManager
) -> None:
    append(logs, TopicPartition("a", 2), 5)
    takeover = take_over(tmp_path, logs)
    assert takeover is not None
    topic = takeover.image.topics_by_name[TopicName("a")]
    assert [p.leader_epoch for p in topic.partitions] == [0, 0, 5]
    assert topic.topic_id == A


class FailingStore(MemoryStore):
    """Fails at the write of the takeover, which has the cluster id and further nodes."""

    fails = True

    async def perform(self, operations: Sequence[Operation]) -> list[Performed]:
        paths = [operation.path for operation in operations]
        if self.fails and "/cluster/id" in paths and len(paths) > 1:
            raise StoreFailure("the power went")
        return await super().perform(operations)


def test_an_interrupted_import_leaves_nothing_and_the_next_start_imports_all(
    tmp_path: Path,
) -> None:
    config = config_for(unpack("killed", tmp_path))
    store = FailingStore()

    async def found() -> Takeover | None:
        return find(config, tmp_path, [])

    async def run() -> MetadataImage:
        with pytest.raises(StoreFailure):
            await Controller(store, config).start(BROKER, CLUSTER_ID, found)
        await store.open()
        assert await store.get_many(["/cluster/id"]) == [None]
        assert await store.get_many(["/brokers/topics"]) == [None]
        await store.close()
        store.fails = False
        controller = Controller(store, config)
        await controller.start(BROKER, CLUSTER_ID, found)
        return controller.image

    image = asyncio.run(run())
    assert len(image.topics_by_name) == 7
    assert len(image.client_quotas) == 3


def test_a_store_that_is_not_new_imports_nothing(tmp_path: Path) -> None:
    config = config_for(tmp_path)

    async def never() -> Takeover | None:
        raise AssertionError("the store looked for a cluster to import")

    async def run() -> None:
        store = MemoryStore()
        first = Controller(store, config)
        await first.start(BROKER, CLUSTER_ID)
        await first.stop()
        await Controller(store, config).start(BROKER, CLUSTER_ID, never)

    asyncio.run(run())
