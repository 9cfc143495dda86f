"""The admin APIs with other projects' clients: librdkafka, kafka-python, aiokafka."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from odradek.errors import ErrorCode
from odradek.testing import Broker

TIMEOUT_S = 120


def one(futures: dict[Any, Future[Any]]) -> Any:
    """Return the result of a call for one resource."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient(
        {"bootstrap.servers": broker.bootstrap_servers, "socket.timeout.ms": TIMEOUT_S * 1000}
    )


def test_librdkafka_creates_widens_describes_and_deletes(admin: AdminClient) -> None:
    one(admin.create_topics([NewTopic("t", 3, 1, config={"retention.ms": "1000"})]))
    one(admin.create_partitions([NewPartitions("t", 5)]))
    described = one(admin.describe_topics(TopicCollection(["t"])))
    assert (described.name, len(described.partitions)) == ("t", 5)
    assert all(partition.leader.id == 1 for partition in described.partitions)
    assert set(admin.list_topics(timeout=TIMEOUT_S).topics) == {"t"}
    with pytest.raises(KafkaException) as caught:
        one(admin.create_topics([NewTopic("t", 1, 1)]))
    assert caught.value.args[0].code() == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as caught:
        one(admin.create_topics([NewTopic("u", 1, 3)]))
    assert caught.value.args[0].code() == ErrorCode.INVALID_REPLICATION_FACTOR
    one(admin.delete_topics(["t"]))
    assert not admin.list_topics(timeout=TIMEOUT_S).topics


def test_librdkafka_alters_and_describes_configs(admin: AdminClient) -> None:
    one(admin.create_topics([NewTopic("t", 1, 1)]))
    entries = [
        ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    topic = ConfigResource("topic", "t", incremental_configs=entries)
    one(admin.incremental_alter_configs([topic]))
    configs = one(admin.describe_configs([ConfigResource("topic", "t")]))
    assert configs["retention.ms"].value == "7"
    assert configs["cleanup.policy"].value == "delete,compact"
    assert list(configs["cleanup.policy"].synonyms) == ["cleanup.policy", "log.cleanup.policy"]
    brokers = one(admin.describe_configs([ConfigResource("broker", "1")]))
    assert brokers["num.partitions"].is_read_only
    assert brokers["num.partitions"].is_default


def test_librdkafka_deletes_records(broker: Broker, admin: AdminClient) -> None:
    one(admin.create_topics([NewTopic("t", 1, 1)]))
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce("t", str(number).encode())
    assert producer.flush(TIMEOUT_S) == 0
    deleted = one(admin.delete_records([TopicPartition("t", 0, 4)]))
    assert deleted.low_watermark == 4
    earliest = one(admin.list_offsets({TopicPartition("t", 0): OffsetSpec.earliest()}))
    assert earliest.offset == 4


def test_librdkafka_describes_the_cluster(broker: Broker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap_servers]
    assert cluster.controller.id == 1
    assert len(cluster.authorized_operations) == 7


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_administers_topics(broker: Broker) -> None:
    from kafka import TopicPartition as Partition
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType, KafkaAdminClient
    from kafka.admin import NewPartitions as Wider
    from kafka.admin import NewTopic as Topic

    client = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers,
        request_timeout_ms=TIMEOUT_S * 1000,
        bootstrap_timeout_ms=TIMEOUT_S * 1000,
    )
    try:
        client.create_topics([Topic("t", 2, 1, topic_configs={"retention.ms": "77"})])
        client.create_partitions({"t": Wider(4)})
        assert client.list_topics() == ["t"]
        (described,) = client.describe_topics(["t"])
        assert len(described["partitions"]) == 4
        configs = client.describe_configs([Resource(ConfigResourceType.TOPIC, "t")])
        assert configs["topic"]["t"]["retention.ms"]["value"] == "77"
        client.alter_configs([Resource(ConfigResourceType.TOPIC, "t", configs={"segment.ms": "9"})])
        assert client.delete_records({Partition("t", 0): -1})
        (directories,) = client.describe_log_dirs()
        (topic,) = directories["log_dirs"][0]["topics"]
        assert (topic["name"], len(topic["partitions"])) == ("t", 4)
        client.delete_topics(["t"])
        assert client.list_topics() == []
    finally:
        client.close()


def test_aiokafka_administers_topics(broker: Broker) -> None:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin import NewPartitions as Wider
    from aiokafka.admin import NewTopic as Topic
    from aiokafka.admin.config_resource import ConfigResource as Resource
    from aiokafka.admin.config_resource import ConfigResourceType

    async def administer() -> None:
        client = AIOKafkaAdminClient(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=TIMEOUT_S * 1000
        )
        await client.start()
        try:
            await client.create_topics([Topic("t", 2, 1, topic_configs={"retention.ms": "77"})])
            await client.create_partitions({"t": Wider(4)})
            assert await client.list_topics() == ["t"]
            (described,) = await client.describe_topics(["t"])
            assert len(described["partitions"]) == 4
            resource = Resource(ConfigResourceType.TOPIC, "t", configs={"segment.ms": "9"})
            await client.alter_configs([resource])
            assert await client.describe_configs([Resource(ConfigResourceType.TOPIC, "t")])
            cluster = await client.describe_cluster()
            assert cluster["brokers"][0]["node_id"] == 1
            await client.delete_topics(["t"])
            assert await client.list_topics() == []
        finally:
            await client.close()

    asyncio.run(administer())
