"""Names and configs of topics, and new partitions. Pure.

The rules and their error messages are those of Kafka's ``Topic`` and ``ReplicationControlManager``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigValue
from odradek.config.topic import TOPIC_CONFIGS
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName
from odradek.metadata.image import PartitionImage

CONSUMER_OFFSETS = TopicName("__consumer_offsets")
TRANSACTION_STATE = TopicName("__transaction_state")
SHARE_GROUP_STATE = TopicName("__share_group_state")
CLUSTER_METADATA = TopicName("__cluster_metadata")
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

TOPIC_NAME_LENGTH_MAX = 249
# Most topics, partitions and configs that one request may change (MAX_RECORDS_PER_USER_OP).
CHANGES_PER_REQUEST_MAX = 10_000
# Characters of config values that are checked in the time of one element. A list of 32 KB takes as
# long as 14 to 33 elements.
CONFIG_CHARACTERS_AN_ELEMENT = 1_000

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def invalid_name_reason(name: str) -> str | None:
    """Return why a topic cannot have this name, or None if it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless a topic may have this name."""
    reason = invalid_name_reason(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def new_partition(number: int, replicas: tuple[BrokerId, ...]) -> PartitionImage:
    """Return a partition in its first epoch: all replicas in sync, the first one the leader."""
    return PartitionImage(number, replicas[0], 0, 0, replicas, replicas)


def check_change_count(count: int) -> None:
    if count > CHANGES_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


def config_elements(values: Iterable[str | None]) -> int:
    """Return the elements of a time slice that the check of long config values counts as."""
    return sum(len(value) for value in values if value) // CONFIG_CHARACTERS_AN_ELEMENT


def check_topic_configs(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check a topic's overrides, each and together. Wrong ones raise INVALID_CONFIG."""
    for name in overrides:
        if name not in TOPIC_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    values = config.topic_values(overrides)
    if values["remote.storage.enable"]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if _number(values[low]) > _number(values[high]):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting {low} ({values[low]}) > {high} ({values[high]})",
        )


def _number(value: ConfigValue) -> int:
    assert isinstance(value, int)
    return value
