"""Which stores of Kafka are taken over, and which are refused. Pure."""

from __future__ import annotations

import pytest

from odradek.config.consents import TAKE_OVER_WITHOUT_FILE
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid
from odradek.metadata.image import MetadataImage, PartitionImage, TopicImage
from odradek.metadata.kafka_import.zookeeper_store import (
    ACL_NODES,
    MESSAGE_NAMES_MAX,
    DirectoryUse,
    KafkaStore,
    Logs,
    checking_directories,
    config_refusal,
    file_refusal,
    initial_levels,
    is_kafkas,
    secure_configs,
    store_refusal,
    store_warnings,
    use_refusal,
)
from odradek.metadata.persistent import PersistentMap
from odradek.slicing import run_to_completion

ID, OTHER_ID = Uuid(b"t" * 16), Uuid(b"o" * 16)


def refusal(store: KafkaStore) -> str:
    found = store_refusal(store)
    assert found is not None
    assert "\n" not in found
    return found


def test_a_store_of_a_stopped_kafka_may_be_taken_over() -> None:
    names = ("admin", "brokers", "cluster", "config", "consumers", "controller_epoch", "feature")
    assert store_refusal(KafkaStore(root_names=names)) is None


def test_a_store_with_nodes_of_odradek_is_not_kafkas() -> None:
    assert is_kafkas(["brokers", "cluster"], has_kafkas_parents=True)
    assert not is_kafkas(["brokers", "cluster", "odradek"], has_kafkas_parents=True)


def test_a_store_of_odradek_that_has_lost_its_nodes_is_not_kafkas() -> None:
    assert not is_kafkas(["brokers", "cluster"], has_kafkas_parents=False)


@pytest.mark.parametrize("node", ACL_NODES)
def test_a_cluster_with_acl_nodes_is_refused(node: str) -> None:
    assert f"/{node}" in refusal(KafkaStore(root_names=["brokers", node]))


def test_a_cluster_with_delegation_tokens_is_refused() -> None:
    assert "/delegation_token" in refusal(KafkaStore(root_names=["delegation_token"]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "PLAINTEXT://:9092,SASL_SSL://:9093"),
        ("listeners", "SSL://:9093"),
        ("advertised.listeners", "SASL_PLAINTEXT://h:9092"),
        ("listener.security.protocol.map", "CLIENTS:SASL_SSL,BROKERS:PLAINTEXT"),
        ("ssl.keystore.location", "/etc/k"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.clients.ssl.keystore.password", "x"),
        ("listener.name.clients.scram-sha-256.sasl.jaas.config", "x"),
        ("listener.name.clients.sasl.enabled.mechanisms", "GSSAPI"),
        ("listener.name.clients.principal.builder.class", "com.example.Principals"),
        ("security.inter.broker.protocol", "SASL_PLAINTEXT"),
        ("principal.builder.class", "com.example.Principals"),
        ("zookeeper.set.acl", "true"),
        ("super.users", "User:admin"),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
    ],
)
@pytest.mark.parametrize("broker", ["", "1"])
def test_a_cluster_with_dynamic_configs_of_secure_listeners_is_refused(
    name: str, value: str, broker: str
) -> None:
    store = KafkaStore(broker_configs={broker: {"log.retention.ms": "1", name: value}})
    assert name in refusal(store)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "PLAINTEXT://:9092"),
        ("listeners", "PLAINTEXT://ssl.example.com:9092"),
        ("listener.security.protocol.map", "CLIENTS:PLAINTEXT"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("zookeeper.set.acl", "false"),
        ("zookeeper.ssl.client.enable", "true"),
        ("listener.name.clients.max.connections", "100"),
        ("follower.replication.throttled.rate", "1"),
        ("log.retention.ms", "1"),
    ],
)
def test_other_dynamic_configs_of_brokers_are_no_reason_to_refuse(name: str, value: str) -> None:
    assert secure_configs({"": {name: value}}) == []


@pytest.mark.parametrize(
    "name", ["authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"]
)
def test_a_broker_with_an_authorizer_in_its_configs_is_refused(name: str) -> None:
    found = config_refusal({name: "x"})
    assert found is not None
    assert name in found


@pytest.mark.parametrize(
    "name", ["sasl.enabled.mechanisms", "ssl.keystore.location", "listener.name.a.ssl.key.password"]
)
def test_a_broker_with_configs_of_secure_listeners_is_refused(name: str) -> None:
    """Its addresses may have been replaced by plain ones."""
    found = config_refusal({name: "x"})
    assert found is not None
    assert name in found
    assert "\n" not in found


def test_a_listener_is_secure_by_its_protocol_and_not_by_its_name() -> None:
    protocols = {"listener.security.protocol.map": "SSL:PLAINTEXT, CLIENTS:sasl_ssl"}
    assert secure_configs({"": {**protocols, "listeners": "SSL://:1"}}) == [*protocols]
    secured = secure_configs({"": {**protocols, "listeners": "SSL://:1, clients://:2"}})
    assert secured == [*protocols, "listeners"]


@pytest.mark.parametrize("file", [None, {}, {"zookeeper.connect": " "}])
@pytest.mark.parametrize("users", [(), ("alice",)])
def test_a_broker_needs_the_file_of_kafka_or_a_permission(
    file: dict[str, str] | None, users: tuple[str, ...]
) -> None:
    found = file_refusal(file, users, permitted=False)
    assert found is not None
    assert "\n" not in found
    assert ("SCRAM" in found) == bool(users)
    for part in ("server.properties", "--config", TAKE_OVER_WITHOUT_FILE):
        assert part in found
    assert file_refusal(file, users, permitted=True) is None
    assert file_refusal({"zookeeper.connect": "zk:2181"}, users, permitted=False) is None


def test_a_broker_without_such_configs_is_admitted() -> None:
    assert config_refusal({}) is None
    assert config_refusal({"authorizer.class.name": " ", "ssl.keystore.location": ""}) is None
    assert config_refusal({"zookeeper.ssl.client.enable": "true", "process.roles": "x"}) is None


def test_a_cluster_whose_brokers_run_is_refused() -> None:
    assert "brokers 1, 2" in refusal(KafkaStore(brokers=["2", "1"]))
    assert "its controller" in refusal(KafkaStore(has_controller=True))


def test_a_cluster_that_migrates_to_kraft_is_refused() -> None:
    assert "/migration" in refusal(KafkaStore(root_names=["migration"]))


def test_a_cluster_with_an_unfinished_deletion_is_refused() -> None:
    assert "gone" in refusal(KafkaStore(deletions=["gone"]))


def test_a_cluster_that_has_lost_its_controller_epoch_or_producer_ids_is_refused() -> None:
    assert "/controller_epoch" in refusal(KafkaStore(has_epoch=False))
    assert "/latest_producer_id_block" in refusal(KafkaStore(has_producer_ids=False))


def test_a_refusal_names_a_few_of_many_brokers() -> None:
    names = [str(number) for number in range(1, MESSAGE_NAMES_MAX + 4)]
    assert "and 3 more" in refusal(KafkaStore(brokers=names))


def test_warnings_name_credentials_and_pending_reassignments() -> None:
    assert store_warnings(KafkaStore()) == []
    store = KafkaStore(scram_users=["a", "b"], has_pending_reassignments=True)
    credentials, reassignments = store_warnings(store)
    assert "2 users" in credentials
    assert "/admin/reassign_partitions" in reassignments


@pytest.mark.parametrize("name", DirectoryUse._fields)
def test_directories_of_another_use_are_refused(name: str) -> None:
    assert use_refusal(DirectoryUse()) is None
    found = use_refusal(DirectoryUse(**{name: True}))
    assert found is not None
    assert "\n" not in found


def test_features_that_were_off_stay_off() -> None:
    assert initial_levels({}) == {"metadata.version": 27}
    assert initial_levels({"metadata.version": 20, "x": 1}) == {"metadata.version": 20, "x": 1}


# --- log directories ---


def partition(number: int, **members: tuple[BrokerId, ...]) -> PartitionImage:
    return PartitionImage(number, BrokerId(-1), 3, 0, (BrokerId(1), BrokerId(2)), **members)


def image_of(*isrs: tuple[int, ...]) -> MetadataImage:
    return image_with(
        [partition(number, isr=tuple(map(BrokerId, isr))) for number, isr in enumerate(isrs)]
    )


def image_with(partitions: list[PartitionImage]) -> MetadataImage:
    topic = TopicImage(TopicName("t"), ID, partitions)
    return MetadataImage(
        topics_by_name=PersistentMap({topic.name: topic}),
        topics_by_id=PersistentMap({ID: topic}),
    )


def directories_refusal(image: MetadataImage, broker: int, logs: Logs) -> str | None:
    return run_to_completion(checking_directories(image, BrokerId(broker), logs))


def test_a_broker_that_is_in_sync_without_its_log_is_refused() -> None:
    found = directories_refusal(image_of((1, 2), (1,)), 1, {TopicPartition("t", 1): [ID]})
    assert found is not None
    assert "t-0" in found
    assert "t-1" not in found


@pytest.mark.parametrize("members", ["elr", "last_known_elr"])
def test_a_broker_that_was_in_sync_last_needs_its_log(members: str) -> None:
    image = image_with([partition(0, isr=(), **{members: (BrokerId(1),)})])
    assert directories_refusal(image, 1, {}) is not None
    assert directories_refusal(image, 2, {}) is None


def test_a_broker_out_of_sync_needs_no_log() -> None:
    assert directories_refusal(image_of((2,), (2,)), 1, {}) is None
    assert directories_refusal(image_of((2,), (2,)), 3, {}) is None


def test_a_log_of_another_topic_of_the_same_name_is_refused() -> None:
    found = directories_refusal(image_of((1,)), 1, {TopicPartition("t", 0): [OTHER_ID]})
    assert found is not None
    assert "t-0" in found


@pytest.mark.parametrize("ids", [[ID, ID], [ID, None], [None, None]])
def test_two_directories_of_one_partition_are_refused(ids: list[Uuid | None]) -> None:
    """A log manager refuses them, too, but after the store was written."""
    found = directories_refusal(image_of((2,)), 1, {TopicPartition("t", 7): ids})
    assert found is not None
    assert "t-7" in found


def test_directories_of_a_deleted_topic_and_its_successor_are_accepted() -> None:
    logs = {TopicPartition("t", 0): [OTHER_ID, ID]}
    assert directories_refusal(image_of((1,)), 1, logs) is None


def test_a_log_without_a_topic_id_is_accepted() -> None:
    assert directories_refusal(image_of((1,)), 1, {TopicPartition("t", 0): [None]}) is None


def test_many_partitions_are_checked_in_time_slices() -> None:
    image = image_of(*[(1,)] * 1_000)
    logs = {TopicPartition("t", n): [ID] for n in range(1_000)}
    checking = checking_directories(image, BrokerId(1), logs)
    assert sum(1 for _ in checking) > 1
