"""The topic of the schemas: creation and refusals, on real brokers."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.registry import schemas_topic, server
from odradek.registry.kafka_settings import HIDDEN, KafkaSettings, RefusedSetting
from odradek.registry.schemas_topic import (
    BrokersUnavailable,
    RefusedTopic,
    UnknownTopic,
    prepare_topic,
)
from odradek.testing import Broker, Cluster, Registry
from testkit.peer.server import free_ports

TIMEOUT_S = 120.0


def replicas_of_partitions(servers: str) -> list[int]:
    """Return the number of replicas of each partition of the topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_topics(TopicCollection(["_schemas"]))["_schemas"].result(TIMEOUT_S)
    return [len(each.replicas) for each in described.partitions]


def configs(servers: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, "_schemas")
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in found.items()}


def test_a_missing_topic_is_created_with_one_compacted_partition(kafka: Broker) -> None:
    topic = prepare_topic(KafkaSettings(kafka.bootstrap_servers))
    assert topic.is_created
    assert topic.cluster_id
    assert replicas_of_partitions(kafka.bootstrap_servers) == [1]
    assert configs(kafka.bootstrap_servers)["cleanup.policy"] == "compact"
    again = prepare_topic(KafkaSettings(kafka.bootstrap_servers))
    assert not again.is_created
    assert again.identity == topic.identity
    assert topic.topic_id


@pytest.mark.parametrize("brokers", [2, 4])
def test_the_topic_has_at_most_three_replicas(brokers: int) -> None:
    with Cluster(brokers) as cluster:
        prepare_topic(KafkaSettings(cluster.bootstrap_servers))
        assert replicas_of_partitions(cluster.bootstrap_servers) == [min(3, brokers)]


def test_a_topic_of_two_partitions_is_refused_in_one_line(kafka: Broker) -> None:
    kafka.create_topic("_schemas", partitions=2, config={"cleanup.policy": "compact"})
    with pytest.raises(RefusedTopic) as raised:
        prepare_topic(KafkaSettings(kafka.bootstrap_servers))
    line = str(raised.value)
    assert line.startswith("Topic '_schemas' has 2 partitions")
    assert "--topic" in line and "\n" not in line


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_deletes_schemas_is_refused_in_one_line(kafka: Broker, policy: str) -> None:
    kafka.create_topic("_schemas", config={"cleanup.policy": policy})
    with pytest.raises(RefusedTopic) as raised:
        prepare_topic(KafkaSettings(kafka.bootstrap_servers))
    line = str(raised.value)
    assert f"cleanup.policy={policy}" in line
    assert "Set cleanup.policy=compact" in line and "\n" not in line


def test_a_topic_of_another_name_is_used(kafka: Broker) -> None:
    kafka.create_topic("schemas.test", config={"cleanup.policy": "compact"})
    topic = prepare_topic(KafkaSettings(kafka.bootstrap_servers, "schemas.test"))
    assert not topic.is_created


def unknown_to_the_first_broker(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the first request for configs reach a broker without the metadata of the topic.

    Returns:
        The topics of the requests that have been sent.
    """
    describe = AdminClient.describe_configs
    asked: list[str] = []

    def described(
        self: AdminClient, resources: list[ConfigResource], **options: float
    ) -> dict[ConfigResource, Future[object]]:
        asked.extend(each.name for each in resources)
        if len(asked) > 1:
            return dict(describe(self, resources, **options))
        failed: Future[object] = Future()
        failed.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return dict.fromkeys(resources, failed)

    monkeypatch.setattr(AdminClient, "describe_configs", described)
    return asked


def test_a_topic_that_a_broker_does_not_know_yet_is_no_refusal(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown_to_the_first_broker(monkeypatch)
    settings = KafkaSettings(kafka.bootstrap_servers)
    with pytest.raises(UnknownTopic) as raised:
        prepare_topic(settings)
    line = str(raised.value)
    assert "does not know the new topic '_schemas' yet" in line and "\n" not in line
    assert prepare_topic(settings).cluster_id


def test_a_registry_waits_until_all_brokers_know_its_new_topic(
    kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "START_RETRY_S", 0.01)
    asked = unknown_to_the_first_broker(monkeypatch)
    with Registry(kafka) as registry:
        assert registry.url
    assert asked == ["_schemas", "_schemas"]


def test_missing_brokers_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas_topic, "REQUEST_TIMEOUT_S", 1.0)
    (port,) = free_ports(1)
    with pytest.raises(BrokersUnavailable) as raised:
        prepare_topic(KafkaSettings(f"127.0.0.1:{port}"))
    line = str(raised.value)
    assert line.startswith(f"No broker responds at 127.0.0.1:{port} (")
    assert "--bootstrap-server" in line and "\n" not in line


def test_an_invalid_property_is_refused_without_its_value() -> None:
    settings = KafkaSettings("127.0.0.1:1", properties={"sasl.mechnism": "secret-value"})
    with pytest.raises(RefusedSetting) as raised:
        prepare_topic(settings)
    assert "sasl.mechnism" in str(raised.value)
    assert "secret-value" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["group.id", "transactional.id", "isolation.level", "bootstrap.servers"]
)
def test_properties_of_the_registry_itself_cannot_be_replaced(name: str) -> None:
    with pytest.raises(RefusedSetting, match=name):
        KafkaSettings("127.0.0.1:1", properties={name: "x"})


def test_values_of_properties_are_hidden_in_texts_and_in_repr() -> None:
    settings = KafkaSettings(
        "127.0.0.1:1",
        properties={
            "sasl.username": "alice",
            "sasl.password": "wonder",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "/etc/ca.pem",
        },
    )
    text = settings.hide("alice:wonder by SASL_SSL with /etc/ca.pem")
    assert text == f"{HIDDEN}:{HIDDEN} by SASL_SSL with /etc/ca.pem"
    assert "alice" not in repr(settings) and "wonder" not in repr(settings)


def test_users_properties_reach_every_client_and_replace_defaults() -> None:
    properties = {"security.protocol": "SSL", "client.id": "mine", "session.timeout.ms": "9000"}
    settings = KafkaSettings("127.0.0.1:1", properties=properties)
    for client in (settings.admin(), settings.reader(), settings.member(), settings.producer("c")):
        assert client["security.protocol"] == "SSL"
        assert client["client.id"] == "mine"
    assert settings.member()["session.timeout.ms"] == "9000"
