"""Altering configs: the refused changes, and the overrides after accepted ones."""

from __future__ import annotations

import pytest

from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType, plan_config_change
from odradek.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.resources import ResourceType

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
GROUP, METRICS = ResourceType.GROUP, ResourceType.CLIENT_METRICS
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
SET, DELETE, APPEND, SUBTRACT = OpType
T = TopicName("t")
IMAGE = MetadataImage(
    controller_id=BrokerId(9),
    brokers=PersistentMap({BrokerId(1): BrokerRegistration(BrokerId(1), "host", 9092)}),
).with_topics({T: TopicImage(T, Uuid(bytes(16)), ())}, {T: {"retention.ms": "5"}})


def change(kind: ResourceType, name: str, *ops: tuple[str, OpType, str | None]) -> ConfigChange:
    return ConfigChange(kind, name, [ConfigOp(*op) for op in ops])


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (change(TOPIC, "nope", ("retention.ms", SET, "1")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(TOPIC, "", ("retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
        (change(TOPIC, "a b", ("retention.ms", SET, "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (change(TOPIC, "t", ("nope", SET, "1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "t", ("retention.ms", SET, "x")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "t", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (change(TOPIC, "t", ("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "t", ("nope", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG),
        (change(TOPIC, "t", ("cleanup.policy", APPEND, "x")), ErrorCode.INVALID_CONFIG),
        (change(BROKER, "1", ("message.max.bytes", SET, "x")), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "1", ("num.partitions", SET, "2")), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "1", ("num.io.threads", SET, "0")), ErrorCode.INVALID_REQUEST),
        (change(BROKER, "1", ("queued.max.requests", SET, "2")), ErrorCode.INVALID_CONFIG),
        (change(BROKER, "1", ("nope", SET, "2")), ErrorCode.INVALID_CONFIG),
        (change(BROKER, "1", ("leader.replication.throttled.rate", SET, "x")), INVALID_REQUEST),
        (change(BROKER, "1", ("leader.replication.throttled.rate", SET, "-1")), INVALID_REQUEST),
        (change(GROUP, "", (SESSION, SET, "50000")), INVALID_REQUEST),
        (change(GROUP, "g", ("a", SET, "2")), INVALID_CONFIG),
        (change(GROUP, "g", ("share.session.timeout.ms", SET, "50000")), INVALID_CONFIG),
        (change(GROUP, "g", (SESSION, SET, "x")), INVALID_CONFIG),
        (change(GROUP, "g", (SESSION, SET, "0")), INVALID_CONFIG),
        (change(GROUP, "g", (SESSION, SET, "44999")), INVALID_CONFIG),
        (change(GROUP, "g", (SESSION, SET, "60001")), INVALID_CONFIG),
        (change(GROUP, "g", (SESSION, APPEND, "50000")), INVALID_CONFIG),
        (change(GROUP, "g", (HEARTBEAT, SET, "4999")), INVALID_CONFIG),
        (change(GROUP, "g", (HEARTBEAT, SET, "15001")), INVALID_CONFIG),
        (change(METRICS, "", ("interval.ms", SET, "500")), INVALID_REQUEST),
        (change(METRICS, "m", ("interval.ms", SET, "5")), INVALID_REQUEST),
        (change(METRICS, "m", ("interval.ms", SET, "3600001")), INVALID_REQUEST),
        (change(METRICS, "m", ("interval.ms", SET, "x")), INVALID_CONFIG),
        (change(METRICS, "m", ("a", SET, "2")), INVALID_REQUEST),
        (change(METRICS, "m", ("metrics", APPEND, "a")), INVALID_CONFIG),
        (change(METRICS, "m", ("match", SET, "a=2")), INVALID_CONFIG),
        (change(METRICS, "m", ("match", SET, "client_id")), INVALID_CONFIG),
        (change(METRICS, "m", ("match", SET, "client_id=[")), INVALID_CONFIG),
    ],
)
def test_refused_change_has_kafkas_error_code(refused: ConfigChange, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        plan_config_change(IMAGE, BrokerConfig({}), refused)
    assert caught.value.code is code
    assert caught.value.message


@pytest.mark.parametrize(
    "accepted",
    [
        change(GROUP, "g", (SESSION, SET, "45000"), (HEARTBEAT, SET, "15000")),
        change(METRICS, "m", ("interval.ms", SET, "100"), ("metrics", SET, "a.,b.")),
        change(METRICS, "m", ("match", SET, "client_id=a.*,client_software_name = J")),
        change(BROKER, "1", ("leader.replication.throttled.rate", SET, "1000")),
        change(BROKER, "", ("follower.replication.throttled.rate", SET, "1000")),
    ],
)
def test_accepted_change_becomes_the_overrides(accepted: ConfigChange) -> None:
    made = plan_config_change(IMAGE, BrokerConfig({}), accepted)
    assert made == {op.name: op.value for op in accepted.ops}


def test_heartbeat_interval_must_be_less_than_the_session_timeout() -> None:
    config = BrokerConfig({"group.consumer.max.heartbeat.interval.ms": "50000"})
    wrong = change(GROUP, "g", (HEARTBEAT, SET, "45000"))
    with pytest.raises(KafkaError, match=r"must be greater than consumer\.heartbeat"):
        plan_config_change(IMAGE, config, wrong)


@pytest.mark.parametrize(
    "name", ["nope", "queued.max.requests", "leader.replication.throttled.rate"]
)
def test_an_absent_config_can_be_deleted(name: str) -> None:
    made = plan_config_change(IMAGE, BrokerConfig({}), change(BROKER, "1", (name, DELETE, None)))
    assert name not in made


def test_append_starts_from_the_value_in_effect_without_duplicates() -> None:
    config = BrokerConfig({"log.cleanup.policy": "compact"})
    made = plan_config_change(
        IMAGE, config, change(TOPIC, "t", ("cleanup.policy", APPEND, "delete,compact"))
    )
    assert made["cleanup.policy"] == "compact,delete"


def test_subtracting_everything_leaves_an_empty_list() -> None:
    made = plan_config_change(
        IMAGE, BrokerConfig({}), change(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    )
    assert made["cleanup.policy"] == ""


@pytest.mark.parametrize(
    ("op", "before", "value", "after"),
    [
        (APPEND, "delete", "compact", "delete,compact"),
        (APPEND, "delete", "delete", "delete"),
        (APPEND, "", "delete,delete", "delete"),
        (SUBTRACT, "compact,delete", "compact", "delete"),
        (SUBTRACT, "delete,delete", "delete", "delete"),
        (SUBTRACT, "delete", "compact", "delete"),
    ],
)
def test_lists_are_edited_part_by_part(op: OpType, before: str, value: str, after: str) -> None:
    image = IMAGE.with_configs({T: {"cleanup.policy": before}}, {})
    made = plan_config_change(
        image, BrokerConfig({}), change(TOPIC, "t", ("cleanup.policy", op, value))
    )
    assert made == {"cleanup.policy": after}


def test_delete_of_an_unset_config_is_no_error() -> None:
    made = plan_config_change(
        IMAGE, BrokerConfig({}), change(TOPIC, "t", ("segment.ms", DELETE, None))
    )
    assert made == {"retention.ms": "5"}


def test_broker_lists_start_from_the_brokers_own_value() -> None:
    config = BrokerConfig({"log.cleanup.policy": "compact"})
    made = plan_config_change(
        IMAGE, config, change(BROKER, "", ("log.cleanup.policy", APPEND, "delete"))
    )
    assert made == {"log.cleanup.policy": "compact,delete"}
