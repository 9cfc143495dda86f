"""Decisions on requests that alter configs. Pure.

The rules and their error messages are those of Kafka's ``ConfigurationControlManager``,
``ControllerConfigurationValidator`` and ``DynamicBrokerConfig``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from odradek.config.broker import BROKER_CONFIGS, BrokerConfig, dynamic_reason
from odradek.config.client_metrics import check_client_metrics
from odradek.config.definition import ConfigDef, ConfigType
from odradek.config.group import check_group_configs
from odradek.config.inapplicable import inapplicable_reason
from odradek.config.topic import TOPIC_CONFIGS
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName
from odradek.metadata.image import MetadataImage
from odradek.metadata.resources import ResourceType
from odradek.metadata.topics import check_topic_configs, check_topic_name

# Limits of followers' copying, in bytes per second. They are kept for tools that set them before a
# reassignment and remove them after it.
REPLICATION_THROTTLES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
# Lists in the configs of groups and subscriptions can only be set, not edited.
_NO_LISTS = ConfigDef([])


def _nothing(_name: str) -> str:
    return ""


class OpType(IntEnum):
    """The operations of IncrementalAlterConfigs on one config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigOp(NamedTuple):
    name: str
    op: OpType
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The changes of one resource.

    Attributes:
        replace: Drop all existing overrides first.
        forced: Accept any change of a number of threads.
    """

    type: ResourceType
    name: str
    ops: Sequence[ConfigOp]
    replace: bool = False
    forced: bool = False

    def configs(self, image: MetadataImage) -> Mapping[str, str]:
        """Return the resource's overrides in an image."""
        if self.type is ResourceType.TOPIC:
            return image.topic_configs.get(TopicName(self.name), {})
        if self.type is ResourceType.GROUP:
            return image.group_configs.get(self.name, {})
        if self.type is ResourceType.CLIENT_METRICS:
            return image.client_metrics.get(self.name, {})
        return image.broker_configs.get(self.name, {})


def plan_config_change(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange
) -> dict[str, str]:
    """Return the resource's overrides after the change.

    A request alters a resource only once.

    Raises:
        KafkaError: The change is refused.
    """
    if change.type is ResourceType.TOPIC:
        return _plan_topic_change(image, config, change)
    if change.type is ResourceType.BROKER:
        return _plan_broker_change(image, config, change)
    if change.type is ResourceType.GROUP:
        if not change.name:
            text = "Default group resources are not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        configs = _applied(_NO_LISTS, change, change.configs(image), _nothing)
        check_group_configs(config, configs)
        return configs
    if change.type is ResourceType.CLIENT_METRICS:
        configs = _applied(_NO_LISTS, change, change.configs(image), _nothing)
        check_client_metrics(change.name, configs)
        return configs
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {change.type.name}.")


def _plan_topic_change(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange
) -> dict[str, str]:
    if not change.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(change.name)
    name = TopicName(change.name)
    if name not in image.topics_by_name:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        )
    configs = _applied(TOPIC_CONFIGS, change, change.configs(image), config.topic_default_text)
    check_topic_configs(config, configs)
    return configs


def _plan_broker_change(
    image: MetadataImage, config: BrokerConfig, change: ConfigChange
) -> dict[str, str]:
    for op in change.ops:
        _check_dynamic(op, per_broker=bool(change.name))
    configs = _applied(
        BROKER_CONFIGS, change, change.configs(image), lambda key: config.shown_value(key) or ""
    )
    dynamic = {**image.broker_configs, change.name: configs}
    own = dynamic.get(change.name or str(config.node_id), {})
    try:
        config.check_dynamic(own, dynamic.get("", {}))
        # Another broker has compared the number of its threads before it forwarded the change.
        if not change.forced and change.name in ("", str(config.node_id)):
            config.check_resizing(own, dynamic.get("", {}))
    except KafkaError as error:
        # Kafka's code for brokers. For topics it is INVALID_CONFIG (KAFKA-13609).
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
    return configs


def check_own_broker_name(node_id: int, name: str) -> None:
    """Raise INVALID_REQUEST unless `name` is `node_id`, the id of this broker."""
    if not name.isascii() or not name.isdigit():
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        )
    if int(name) != node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id}, but received {name}",
        )


def _check_dynamic(op: ConfigOp, per_broker: bool) -> None:
    name = op.name
    if op.op is OpType.DELETE and name not in BROKER_CONFIGS:
        return
    if name in REPLICATION_THROTTLES:
        if op.value is None or not op.value.isascii() or not op.value.isdigit():
            text = f"Invalid value {op.value} for configuration {name}: Not a number of bytes"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return
    if name not in BROKER_CONFIGS:
        reason = inapplicable_reason(name)
        detail = f"it does not apply here, {reason}" if reason else "it is unknown"
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Broker config {name} cannot be altered: {detail}"
        )
    refused = dynamic_reason(name, per_broker)
    if refused is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, refused)


def _applied(
    table: ConfigDef,
    change: ConfigChange,
    current: Mapping[str, str],
    inherited: Callable[[str], str],
) -> dict[str, str]:
    """Return the overrides after the operations. APPEND starts from the value in effect."""
    configs = {} if change.replace else dict(current)
    for op in change.ops:
        if op.op is OpType.DELETE:
            configs.pop(op.name, None)
            continue
        if op.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {op.name}")
        if op.op is OpType.SET:
            configs[op.name] = op.value
        else:
            _check_list(table, op)
            before = configs[op.name] if op.name in configs else inherited(op.name)
            configs[op.name] = _spliced(op, before, op.value)
    return configs


def _check_list(table: ConfigDef, op: ConfigOp) -> None:
    key = table.get(op.name)
    if key is None or key.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {op.op.name} to key {op.name} because its type is not LIST.",
        )


def _spliced(op: ConfigOp, before: str, value: str) -> str:
    """Add parts to a list where they are missing, or remove each part once."""
    parts = [part for part in before.split(",") if part]
    changes = value.split(",")
    if op.op is OpType.APPEND:
        return ",".join(dict.fromkeys([*parts, *changes]))
    left = Counter(changes)
    kept = []
    for part in parts:
        if left[part]:
            left[part] -= 1
        else:
            kept.append(part)
    return ",".join(kept)
