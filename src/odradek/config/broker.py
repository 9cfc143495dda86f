"""The configs of this broker: the initial values and the values altered at run time.

`BROKER_CONFIGS` is the table of every broker config of Kafka 4.1 that applies here, and of the few
that are kept for tools. `odradek.config.inapplicable` lists the others that Kafka knows. The broker
looks a value up in Kafka's order (``DynamicBrokerConfig``): set for this broker, set for all
brokers, set at the start, default.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from odradek.config.broker_cleaner import CLEANER_CONFIGS
from odradek.config.broker_cluster import CLUSTER_CONFIGS
from odradek.config.broker_coordinators import CLUSTER_DEFAULTS, GROUP_CONFIGS, PRODUCER_CONFIGS
from odradek.config.broker_log import LOG_CONFIGS, TOPIC_DEFAULTS
from odradek.config.broker_network import NETWORK_CONFIGS
from odradek.config.broker_replication import REPLICATION_CONFIGS
from odradek.config.consents import CONSENTS
from odradek.config.definition import (
    ConfigDef,
    ConfigKey,
    ConfigValue,
    UpdateMode,
    invalid_value,
    to_text,
    value_text,
)
from odradek.config.inapplicable import KEPT_CONFIGS, KEPT_NAMES, inapplicable_reason
from odradek.config.log_config import LogConfig
from odradek.config.topic import (
    HOUR_MS,
    MINUTE_MS,
    SYNONYMS,
    TOPIC_CONFIGS,
    WITHOUT_EFFECT,
    Synonym,
)
from odradek.errors import ErrorCode, KafkaError

BROKER_CONFIGS = ConfigDef(
    [
        *NETWORK_CONFIGS,
        *TOPIC_DEFAULTS,
        *LOG_CONFIGS,
        *CLEANER_CONFIGS,
        *GROUP_CONFIGS,
        *PRODUCER_CONFIGS,
        *CLUSTER_CONFIGS,
        *REPLICATION_CONFIGS,
        *KEPT_CONFIGS,
    ]
)
_EFFECTIVE = frozenset(BROKER_CONFIGS) - KEPT_NAMES

logger = logging.getLogger(__name__)

WRONG_OVERRIDES_MAX = 1_000
"""Number of wrong overrides of topics that are remembered, to log each of them once."""


class ConfigSource(IntEnum):
    """The source of a value. The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigOrigin(NamedTuple):
    """One source that sets a config. The first of several wins. DescribeConfigs' synonym."""

    name: str
    value: str | None
    source: ConfigSource


# Names of one broker config in different units, the finest first. The finest that is set wins.
_BROKER_SYNONYMS: tuple[tuple[str, ...], ...] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYM_NAMES: dict[str, tuple[str, ...]] = {
    # The scheduler's interval is a fallback of the flush interval, but not the reverse.
    name: (name,) if name == "log.flush.scheduler.interval.ms" else group
    for group in _BROKER_SYNONYMS
    for name in group
}


_CLEANER_THREADS = "log.cleaner.threads"
_CLEANER_BUFFER_MIN = 1024 * 1024
_CODEC_MAX = 4  # none, gzip, snappy, lz4, zstd


class BrokerConfig:
    """Typed access to the configs of one broker.

    Owned by the event loop. `set_dynamic` replaces the values altered at run time in place, so
    every holder of the object sees the new values at the next call of a getter.

    Attributes:
        file: The contents of the file that the administrator named, before options replaced some.
            None without a file.
    """

    def __init__(
        self, properties: Mapping[str, object], file: Mapping[str, str] | None = None
    ) -> None:
        self.file = file
        self._initial = {
            name: value if isinstance(value, str) else value_text(value)
            for name, value in properties.items()
            if value is not None
        }
        others = sorted(self._initial.keys() - _EFFECTIVE - CONSENTS.keys())
        self.inapplicable_keys = tuple(n for n in others if inapplicable_reason(n) is not None)
        self.unknown_keys = tuple(n for n in others if inapplicable_reason(n) is None)
        self._static = {n: t for n, t in self._initial.items() if n in BROKER_CONFIGS}
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in self._static:
                self._static.setdefault(other, self._static[name])
        is_in_cluster = bool(self._static.get("zookeeper.connect", "").strip())
        self._defaults: Mapping[str, int] = CLUSTER_DEFAULTS if is_in_cluster else {}
        self._broker: dict[str, str] = {}
        self._cluster: dict[str, str] = {}
        self._values: dict[str, ConfigValue | None] = {}
        self._resolve()
        self.node_id = _node_id(self)
        for name in CONSENTS:
            self.permits(name)

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, object], file: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Return the configs of Kafka's names and values as text. `file` is the attribute.

        Keys that do not apply are kept in `inapplicable_keys`, unknown keys in `unknown_keys`.

        Raises:
            KafkaError: INVALID_CONFIG for the first value that is wrong.
        """
        return cls(properties, file)

    def _resolve(self) -> None:
        merged = {**self._static, **self._cluster, **self._broker}
        self._values = {
            name: key.parse(merged[name])
            if name in merged
            else self._defaults.get(name, key.default)
            for name, key in BROKER_CONFIGS.items()
        }
        self._topic_defaults = {name: self._topic_default(name) for name in TOPIC_CONFIGS}
        self.connections_per_ip()
        self._check_codec("offsets.topic.compression.codec")
        self._check_cleaner()

    def _check_cleaner(self) -> None:
        name = "log.cleaner.dedupe.buffer.size"
        size, threads = self.get_int(name), self.get_int(_CLEANER_THREADS)
        if threads and size // threads <= _CLEANER_BUFFER_MIN:
            reason = "it must be at least 1MB per cleaner thread."
            raise invalid_value(name, size, reason)

    def _check_codec(self, name: str) -> None:
        number = self.get_int(name)
        if not 0 <= number <= _CODEC_MAX:
            raise invalid_value(name, number, f"Unknown compression type id: {number}")

    def set_dynamic(self, broker: Mapping[str, str], cluster: Mapping[str, str]) -> None:
        """Replace the values altered at run time.

        Args:
            broker: Values for this broker.
            cluster: Values for all brokers.

        Raises:
            KafkaError: INVALID_CONFIG for a wrong value. Nothing is changed.
        """
        previous = self._broker, self._cluster
        self._broker, self._cluster = dict(broker), dict(cluster)
        try:
            self._resolve()
        except Exception:
            self._broker, self._cluster = previous
            self._resolve()
            raise

    def set_valid_dynamic(
        self, broker: Mapping[str, str], cluster: Mapping[str, str]
    ) -> dict[str, str]:
        """Replace the values altered at run time. Leave out values that do not fit this broker.

        Another broker, with other initial values, has accepted them.

        Returns:
            The reason for each config that is left out.
        """
        try:
            self.set_dynamic(broker, cluster)
        except KafkaError:
            pass
        else:
            return {}
        refused: dict[str, str] = {}
        own: dict[str, str] = {}
        common: dict[str, str] = {}
        self.set_dynamic(own, common)
        for values, accepted in ((cluster, common), (broker, own)):
            for name, value in values.items():
                accepted[name] = value
                try:
                    self.set_dynamic(own, common)
                except KafkaError as error:
                    del accepted[name]
                    refused[name] = error.message
        return refused

    def check_dynamic(self, broker: Mapping[str, str], cluster: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG if `set_dynamic` would refuse these values. Change nothing."""
        self.with_dynamic(broker, cluster)

    def with_dynamic(self, broker: Mapping[str, str], cluster: Mapping[str, str]) -> BrokerConfig:
        """Return a copy with these values altered at run time, see `set_dynamic`."""
        copy = BrokerConfig(self._initial, self.file)
        copy.set_dynamic(broker, cluster)
        return copy

    def check_resizing(self, broker: Mapping[str, str], cluster: Mapping[str, str]) -> None:
        """Check that valid values do not change the number of cleaner threads by too much.

        Kafka refuses to change it to none, to less than half or to more than double
        (``LogCleaner.validateReconfiguration``).

        Raises:
            KafkaError: INVALID_CONFIG.
        """
        changed = self.with_dynamic(broker, cluster)
        before, after = self.get_int(_CLEANER_THREADS), changed.get_int(_CLEANER_THREADS)
        if before == after or not changed.get_bool("log.cleaner.enable"):
            return
        if after < 1:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "Log cleaner threads should be at least 1")
        how = None
        if after < before // 2:
            how = "reduced to less than half"
        elif after > max(before, 1) * 2:
            how = "increased to more than double"
        if how is not None:
            text = f"Log cleaner threads cannot be {how} the current value {before}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)

    def get(self, name: str) -> ConfigValue | None:
        """Return the value in effect, or None where the default is "unset"."""
        return self._values[name]

    def get_int(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def get_bool(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def get_str(self, name: str) -> str:
        """Return the value in effect, or "" where the default is "unset"."""
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value or ""

    def get_list(self, name: str) -> list[str]:
        """Return a list config, or a text config that is a list, such as listeners and log.dirs."""
        value = self._values[name]
        if isinstance(value, list):
            return value
        return [part.strip() for part in self.get_str(name).split(",") if part.strip()]

    def explicit(self, name: str) -> bool:
        """Return whether a value was set at the start or at run time, instead of the default."""
        return name in self._static or name in self._broker or name in self._cluster

    def shown_value(self, name: str) -> str | None:
        """Return the value in effect as text. None when it is unset or secret."""
        value = self._values[name]
        return None if value is None or BROKER_CONFIGS[name].sensitive else to_text(value)

    @property
    def initial(self) -> Mapping[str, str]:
        """The initial value of each key that was set, applicable or not."""
        return self._initial

    def initial_text(self, name: str) -> str:
        """Return the initial value of any key, applicable or not. "" when it was not set."""
        return self._initial.get(name, "")

    def permits(self, name: str) -> bool:
        """Return whether an administrator has set a config of `CONSENTS`.

        Raises:
            KafkaError: INVALID_CONFIG. It is neither true nor false.
        """
        text = self.initial_text(name).strip().lower()
        if text not in ("", "true", "false"):
            raise invalid_value(name, text, "it must be true or false")
        return text == "true"

    def log_dirs(self) -> list[str]:
        return self.get_list("log.dirs") or self.get_list("log.dir")

    def connections_per_ip(self) -> dict[str, int]:
        """Return the exceptions of ``max.connections.per.ip.overrides``, by address."""
        name = "max.connections.per.ip.overrides"
        limits: dict[str, int] = {}
        for text in self.get_list(name):
            host, _, count = text.rpartition(":")
            if not host or not count.isascii() or not count.isdigit():
                raise invalid_value(name, self.get_str(name), f"{text} is not ADDRESS:COUNT")
            limits[host] = int(count)
        return limits

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
        """Return every topic config in effect for a topic with these overrides, by name.

        An override of one of Kafka's topic configs that does not apply here has no effect.
        """
        values = dict(self._topic_defaults)
        for name, text in overrides.items():
            if name in values:
                values[name] = TOPIC_CONFIGS[name].parse(text)
        return values

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the topic configs in effect for a log.

        A wrong override has no effect. Another program has written it, or a broker of another
        release has accepted it. It must end neither this broker nor the take-over of a controller.
        """
        try:
            values = self.topic_values(overrides)
        except KafkaError:
            values = self.topic_values(valid_overrides(overrides))
        policy = values.pop("cleanup.policy")
        assert isinstance(policy, list)
        fields = {
            name.replace(".", "_"): value
            for name, value in values.items()
            if name not in WITHOUT_EFFECT
        }
        return LogConfig(
            cleanup_delete="delete" in policy,
            cleanup_compact="compact" in policy,
            **fields,  # type: ignore[arg-type]  # a test checks the names, `parse` the types
        )

    def _topic_default(self, name: str) -> ConfigValue:
        """Return a topic config's value without an override: the broker's, in the topic's unit."""
        for synonym in SYNONYMS.get(name, ()):
            value = self._values[synonym.name]
            if value is not None:
                return scaled(value, synonym)
        default = TOPIC_CONFIGS[name].default
        assert default is not None
        return default

    def topic_default_text(self, name: str) -> str:
        """Return a topic config's value without an override, as text."""
        return to_text(self._topic_defaults[name])

    def origins(self, name: str) -> list[ConfigOrigin]:
        """Return every source that sets a broker config, the one in effect first.

        There is none if only another unit of the config is set.
        """
        names = _SYNONYM_NAMES.get(name, (name,))
        found = list(self._origins(names))
        # Values in another unit are left out at the front (ConfigHelper.configSynonyms).
        while found and found[0].name != name:
            found.pop(0)
        return found

    def _origins(self, names: tuple[str, ...]) -> Iterator[ConfigOrigin]:
        levels = (
            (self._broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for values, source in levels:
            for name in names:
                if name in values:
                    yield ConfigOrigin(name, shown(BROKER_CONFIGS[name], values[name]), source)
        for name in names:
            default = BROKER_CONFIGS[name].default_text()
            if name in self._defaults:
                default = to_text(self._defaults[name])
            if default is not None:
                yield ConfigOrigin(name, default, ConfigSource.DEFAULT_CONFIG)


def valid_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return a topic's overrides without the wrong ones, which are logged."""
    valid: dict[str, str] = {}
    for name, text in overrides.items():
        try:
            if name in TOPIC_CONFIGS:
                TOPIC_CONFIGS[name].parse(text)
        except KafkaError as error:
            _log_wrong_override(name, text, str(error))
        else:
            valid[name] = text
    return valid


@lru_cache(maxsize=WRONG_OVERRIDES_MAX)
def _log_wrong_override(name: str, text: str, reason: str) -> None:
    logger.warning(
        "the topic config %s=%r in the metadata has no effect: %s. Alter or delete it",
        name,
        text,
        reason,
    )


def scaled(value: ConfigValue, synonym: Synonym) -> ConfigValue:
    """Convert a broker config's value to the unit of the topic config. Negative becomes -1."""
    if not isinstance(value, int) or synonym.factor == 1:
        return value
    return -1 if value < 0 else value * synonym.factor


def shown(key: ConfigKey, text: str) -> str | None:
    """Return a set value as clients may see it: normalised, or None when it is secret."""
    return None if key.sensitive else to_text(key.parse(text))


def dynamic_reason(name: str, per_broker: bool) -> str | None:
    """Return why this broker config cannot be altered at run time, or None if it can."""
    mode = BROKER_CONFIGS[name].mode
    if mode is UpdateMode.READ_ONLY:
        return f"Cannot update these configs dynamically: Set({name})"
    if mode is UpdateMode.PER_BROKER and not per_broker:
        return (
            "Cannot update these configs at default cluster level, "
            f"broker id must be specified: Set({name})"
        )
    return None


def _node_id(config: BrokerConfig) -> int:
    """Return node.id, which must equal broker.id if that is set."""
    node_id, broker_id = config.get_int("node.id"), config.get_int("broker.id")
    if config.explicit("broker.id") and node_id != broker_id:
        raise invalid_value("node.id", node_id, f"broker.id is {broker_id}, and both must be equal")
    return node_id


__all__ = [
    "BROKER_CONFIGS",
    "HOUR_MS",
    "MINUTE_MS",
    "BrokerConfig",
    "ConfigOrigin",
    "ConfigSource",
    "dynamic_reason",
    "scaled",
    "shown",
]
