"""The effective configs of topics, groups and this broker: value, source and synonyms.

Follows ``kafka.server.ConfigHelper``. The origins of a topic config are the override of the topic
and then the broker configs that supply its default. The first origin determines the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.config.broker import (
    BROKER_CONFIGS,
    BrokerConfig,
    ConfigOrigin,
    ConfigSource,
    valid_overrides,
)
from odradek.config.client_metrics import CLIENT_METRICS_CONFIGS
from odradek.config.definition import ConfigKey, UpdateMode, to_text
from odradek.config.group import GROUP_CONFIGS, broker_name, group_value
from odradek.config.topic import SYNONYMS, TOPIC_CONFIGS


class ConfigEntry(NamedTuple):
    """One effective config. `origins` are its synonyms, the effective one first."""

    key: ConfigKey
    value: str | None
    source: ConfigSource
    read_only: bool
    origins: list[ConfigOrigin]


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every config of a topic with these overrides.

    A wrong override in the metadata is returned as it was stored, so that it can be found and
    deleted. It has no effect: see `BrokerConfig.log_config`.
    """
    valid = valid_overrides(overrides)
    values = config.topic_values(valid)
    entries = []
    for name, key in TOPIC_CONFIGS.items():
        is_wrong = name in overrides and name not in valid
        value = overrides[name] if is_wrong else to_text(values[name])
        synonyms = SYNONYMS.get(name)
        origins = config.origins(synonyms[0].name) if synonyms else []
        if name in overrides:
            own = ConfigOrigin(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)
            origins = [own, *origins]
        source = origins[0].source if origins else ConfigSource.DEFAULT_CONFIG
        entries.append(ConfigEntry(key, value, source, False, origins))
    return entries


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every config of a group with these overrides."""
    entries = []
    for name, key in GROUP_CONFIGS.items():
        value = str(group_value(config, overrides, name))
        origins = config.origins(broker_name(name))
        if name in overrides:
            origins = [ConfigOrigin(name, value, ConfigSource.GROUP_CONFIG), *origins]
        entries.append(ConfigEntry(key, value, origins[0].source, False, origins))
    return entries


def client_metrics_entries(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every config of a client metrics subscription with these overrides."""
    entries = []
    for name, key in CLIENT_METRICS_CONFIGS.items():
        value, source = key.default_text(), ConfigSource.DEFAULT_CONFIG
        origins = []
        if name in overrides:
            value, source = to_text(key.parse(overrides[name])), ConfigSource.CLIENT_METRICS_CONFIG
            origins = [ConfigOrigin(name, value, source)]
        entries.append(ConfigEntry(key, value, source, False, origins))
    return entries


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Return every config of this broker, except internal ones."""
    return [
        _broker_entry(key, config.shown_value(name), config.origins(name))
        for name, key in BROKER_CONFIGS.items()
        if not key.internal
    ]


def default_broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Return the dynamic default configs of all brokers.

    They belong to the broker resource without a name.
    """
    entries = []
    for name, key in BROKER_CONFIGS.items():
        origins = [
            origin
            for origin in config.origins(name)
            if origin.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        if any(origin.name == name for origin in origins):
            entries.append(_broker_entry(key, origins[0].value, origins))
    return entries


def _broker_entry(key: ConfigKey, value: str | None, origins: list[ConfigOrigin]) -> ConfigEntry:
    source = origins[0].source if origins else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(key, value, source, key.mode is UpdateMode.READ_ONLY, origins)
