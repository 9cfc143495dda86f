"""The broker's configs: initial values, altered values, and the resulting topic configs."""

from __future__ import annotations

import pytest

from odradek.config import broker
from odradek.config.broker import BrokerConfig, ConfigOrigin, ConfigSource, dynamic_reason
from odradek.config.log_config import LogConfig
from odradek.config.properties import parse_properties
from odradek.errors import ErrorCode, KafkaError

KRAFT_FILE = """
process.roles=broker,controller
node.id=3
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/data/one,/data/two
num.partitions=6
offsets.topic.replication.factor=1
log.retention.hours=48
log.retention.minits=5
"""


def test_a_log_without_configs_has_kafkas_defaults() -> None:
    assert BrokerConfig({}).log_config({}) == LogConfig()


def test_a_kafka_file_is_accepted_and_its_inapplicable_keys_are_listed() -> None:
    config = BrokerConfig.from_properties(parse_properties(KRAFT_FILE))
    assert config.node_id == 3
    assert config.get_int("num.partitions") == 6
    assert config.log_dirs() == ["/data/one", "/data/two"]
    assert config.inapplicable_keys == (
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "num.io.threads",
        "num.network.threads",
        "process.roles",
    )
    assert config.unknown_keys == ("log.retention.minits",)


def test_internal_topics_of_a_single_node_have_one_replica_unless_set() -> None:
    names = (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    )
    assert [BrokerConfig({}).get_int(name) for name in names] == [1, 1, 1]
    configs = BrokerConfig(dict.fromkeys(names, "3"))
    assert [configs.get_int(name) for name in names] == [3, 3, 3]
    assert BrokerConfig({}).get_int("group.initial.rebalance.delay.ms") == 0


def test_internal_topics_of_a_cluster_have_kafkas_defaults() -> None:
    defaults = {
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.min.isr": 2,
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
    }
    config = BrokerConfig({"zookeeper.connect": "zk:2181"})
    assert {name: config.get_int(name) for name in defaults} == defaults
    for name, value in defaults.items():
        origin = ConfigOrigin(name, str(value), ConfigSource.DEFAULT_CONFIG)
        assert config.origins(name)[-1] == origin
        assert not config.explicit(name)
    set_one = BrokerConfig({"zookeeper.connect": "zk:2181", "transaction.state.log.min.isr": "1"})
    assert set_one.get_int("transaction.state.log.min.isr") == 1


def test_limits_by_address_are_read() -> None:
    config = BrokerConfig({"max.connections.per.ip.overrides": "10.0.0.1:5, ::1:6"})
    assert config.connections_per_ip() == {"10.0.0.1": 5, "::1": 6}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.connections.per.ip.overrides", "10.0.0.1"),
        ("max.connections.per.ip.overrides", "10.0.0.1:many"),
        ("offsets.topic.compression.codec", "5"),
    ],
)
def test_values_with_a_form_of_their_own_are_checked(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig({name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_wrong_value_is_invalid_config() -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig({"num.partitions": "0"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "num.partitions: Value must be at least 1" in caught.value.message


@pytest.mark.parametrize(
    ("configs", "node_id"),
    [({}, 1), ({"broker.id": "7"}, 7), ({"node.id": "7"}, 7), ({"node.id": 5, "broker.id": 5}, 5)],
)
def test_broker_id_is_accepted_as_node_id(configs: dict[str, object], node_id: int) -> None:
    assert BrokerConfig(configs).node_id == node_id


def test_node_id_and_broker_id_must_agree() -> None:
    with pytest.raises(KafkaError):
        BrokerConfig({"node.id": "1", "broker.id": "2"})


@pytest.mark.parametrize(
    ("configs", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_finest_unit_of_retention_wins(configs: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig(configs).log_config({}).retention_ms == retention_ms


def test_topic_overrides_win_over_the_brokers_values() -> None:
    config = BrokerConfig({"log.segment.bytes": "2000000", "log.cleanup.policy": "compact"})
    assert config.log_config({}).segment_bytes == 2_000_000
    made = config.log_config({"segment.bytes": "3000000", "cleanup.policy": "delete,compact"})
    assert made.segment_bytes == 3_000_000
    assert (made.cleanup_delete, made.cleanup_compact) == (True, True)


def test_wrong_override_is_invalid_config() -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerConfig({}).topic_values({"retention.ms": "-2"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_wrong_override_of_a_log_has_no_effect_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was written by another program, or accepted by another release."""
    broker._log_wrong_override.cache_clear()
    overrides = {"retention.ms": "-2", "segment.bytes": "3000000", "unknown": "x"}
    for _ in range(2):
        made = BrokerConfig({}).log_config(overrides)
        assert (made.retention_ms, made.segment_bytes) == (LogConfig().retention_ms, 3_000_000)
    (message,) = caplog.messages
    assert "retention.ms='-2'" in message


def test_dynamic_values_take_effect_in_place_and_fall_back_when_removed() -> None:
    config = BrokerConfig({"message.max.bytes": "1000"})
    config.set_dynamic({}, {"message.max.bytes": "2000"})
    assert config.get_int("message.max.bytes") == 2000
    config.set_dynamic({"message.max.bytes": "3000"}, {"message.max.bytes": "2000"})
    assert config.log_config({}).max_message_bytes == 3000
    assert config.origins("message.max.bytes") == [
        ConfigOrigin("message.max.bytes", "3000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ConfigOrigin("message.max.bytes", "2000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ConfigOrigin("message.max.bytes", "1000", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigOrigin("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG),
    ]
    config.set_dynamic({}, {})
    assert config.get_int("message.max.bytes") == 1000


def test_wrong_dynamic_value_changes_nothing() -> None:
    config = BrokerConfig({})
    with pytest.raises(KafkaError):
        config.set_dynamic({"message.max.bytes": "many"}, {})
    assert config.get_int("message.max.bytes") == 1_048_588
    assert not config.explicit("message.max.bytes")


THREADS = "log.cleaner.threads"


def resized(before: int, after: int, **configs: object) -> str | None:
    """Return the error for altering the number of the cleaner's threads, if there is one."""
    names = {name.replace("_", "."): value for name, value in configs.items()}
    config = BrokerConfig({THREADS: 1, **names})
    config.set_dynamic({THREADS: str(before)}, {})
    try:
        config.check_resizing({THREADS: str(after)}, {})
    except KafkaError as error:
        assert error.code is ErrorCode.INVALID_CONFIG
        return error.message
    return None


@pytest.mark.parametrize(
    ("before", "after"), [(1, 1), (1, 2), (2, 1), (3, 1), (4, 2), (5, 2), (5, 10), (0, 1), (0, 2)]
)
def test_cleaner_threads_may_be_halved_and_doubled(before: int, after: int) -> None:
    assert resized(before, after) is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (1, 3, "increased to more than double the current value 1"),
        (5, 11, "increased to more than double the current value 5"),
        (4, 1, "reduced to less than half the current value 4"),
        (9, 3, "reduced to less than half the current value 9"),
        (1, 0, "should be at least 1"),
        (8, 0, "should be at least 1"),
    ],
)
def test_cleaner_threads_cannot_be_changed_by_more(before: int, after: int, said: str) -> None:
    refused = resized(before, after)
    assert refused is not None and refused.endswith(said)


def test_threads_of_a_disabled_cleaner_may_be_any_number() -> None:
    assert resized(1, 40, log_cleaner_enable=False, log_cleaner_dedupe_buffer_size=1 << 30) is None


def test_value_in_effect_after_another_is_removed_counts_too() -> None:
    config = BrokerConfig({})
    config.set_dynamic({THREADS: "2"}, {THREADS: "8"})
    with pytest.raises(KafkaError, match="more than double the current value 2"):
        config.check_resizing({}, {THREADS: "8"})
    config.check_resizing({THREADS: "2"}, {THREADS: "80"})


def test_coarser_unit_has_no_finer_one_among_its_origins() -> None:
    config = BrokerConfig({"log.retention.ms": "5", "log.retention.hours": "7"})
    assert [origin.name for origin in config.origins("log.retention.ms")] == [
        "log.retention.ms",
        "log.retention.hours",
        "log.retention.hours",
    ]
    assert [origin.value for origin in config.origins("log.retention.hours")] == ["7", "168"]
    assert config.origins("broker.rack") == []
    hours = BrokerConfig({"log.retention.hours": "7"})
    assert hours.origins("log.retention.ms") == []


def test_whether_a_broker_config_can_be_altered() -> None:
    assert dynamic_reason("message.max.bytes", per_broker=False) is None
    assert dynamic_reason("num.partitions", per_broker=True) == (
        "Cannot update these configs dynamically: Set(num.partitions)"
    )
    refused = dynamic_reason("listener.security.protocol.map", per_broker=False)
    assert refused is not None
    assert "broker id must be specified" in refused
    assert dynamic_reason("listener.security.protocol.map", per_broker=True) is None


def test_values_that_are_not_text_are_converted_to_text() -> None:
    config = BrokerConfig({"auto.create.topics.enable": False, "num.partitions": 3, "x": None})
    assert not config.get_bool("auto.create.topics.enable")
    assert config.get_int("num.partitions") == 3
    assert config.unknown_keys == ()
