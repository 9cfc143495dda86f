"""The configs of groups (resource type GROUP): a group's own values precede the broker's.

Kafka has more of them, for share and streams groups, which are not served. They are refused by
name. Rules and error messages are those of ``GroupConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigDef, ConfigKey, ConfigType, Importance, at_least
from odradek.errors import ErrorCode, KafkaError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"

GROUP_CONFIGS = ConfigDef(
    [
        ConfigKey(
            SESSION_TIMEOUT,
            ConfigType.INT,
            45_000,
            Importance.MEDIUM,
            "Time without a heartbeat after which a member of the group is removed.",
            at_least(1),
        ),
        ConfigKey(
            HEARTBEAT_INTERVAL,
            ConfigType.INT,
            5_000,
            Importance.MEDIUM,
            "Interval at which members of the group shall send heartbeats.",
            at_least(1),
        ),
    ]
)
_NOT_SERVED = ("share.", "streams.")


def broker_name(name: str) -> str:
    """Return the broker config that is the default of a group's config."""
    return f"group.{name}"


def group_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    """Return the value in effect for a group with these overrides."""
    if name not in overrides:
        return config.get_int(broker_name(name))
    value = GROUP_CONFIGS[name].parse(overrides[name])
    assert isinstance(value, int), name
    return value


def check_group_configs(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check a group's overrides, each and together. Wrong ones raise INVALID_CONFIG."""
    for name in overrides:
        if name.startswith(_NOT_SERVED):
            raise _invalid(f"Group config {name} does not apply: such groups are not served")
        if name not in GROUP_CONFIGS:
            raise _invalid(f"Unknown group config name: {name}")
    values = {name: group_value(config, overrides, name) for name in GROUP_CONFIGS}
    for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT):
        kind = name.removeprefix("consumer.")
        low, high = f"group.consumer.min.{kind}", f"group.consumer.max.{kind}"
        if values[name] < config.get_int(low):
            raise _invalid(f"{name} must be greater than or equal to {low}")
        if values[name] > config.get_int(high):
            raise _invalid(f"{name} must be less than or equal to {high}")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise _invalid(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
