"""The configs of client metrics subscriptions (resource type CLIENT_METRICS, KIP-714).

They are stored and described, but the broker requests no metrics from clients, like a Kafka broker
without a receiver for them. Rules and error messages are those of ``ClientMetricsConfigs``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from odradek.config.definition import ConfigDef, ConfigKey, ConfigType, Importance
from odradek.errors import ErrorCode, KafkaError

INTERVAL = "interval.ms"
MATCH = "match"
INTERVAL_MIN_MS = 100
INTERVAL_MAX_MS = 3_600_000
_MATCHED = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS_CONFIGS = ConfigDef(
    [
        ConfigKey(
            "metrics",
            ConfigType.LIST,
            [],
            Importance.MEDIUM,
            "Prefixes of the names of the metrics that clients shall send.",
        ),
        ConfigKey(
            INTERVAL, ConfigType.INT, 300_000, Importance.MEDIUM, "Interval of sending metrics."
        ),
        ConfigKey(
            MATCH,
            ConfigType.LIST,
            [],
            Importance.MEDIUM,
            "Clients that shall send metrics: a list of NAME=PATTERN, which all must match.",
        ),
    ]
)


def check_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Check that a subscription may have these overrides.

    Raises:
        KafkaError: INVALID_REQUEST or INVALID_CONFIG, as in Kafka.
    """
    if not name:
        raise _invalid("Subscription name can't be empty")
    for key in overrides:
        if key not in CLIENT_METRICS_CONFIGS:
            raise _invalid(f"Unknown client metrics configuration: {key}")
    values = {key: CLIENT_METRICS_CONFIGS[key].parse(text) for key, text in overrides.items()}
    interval = values.get(INTERVAL)
    if isinstance(interval, int) and not INTERVAL_MIN_MS <= interval <= INTERVAL_MAX_MS:
        raise _invalid(
            f"Invalid value {interval} for {INTERVAL}, "
            f"interval must be between {INTERVAL_MIN_MS} and {INTERVAL_MAX_MS} (1 hour)"
        )
    patterns = values.get(MATCH, [])
    assert isinstance(patterns, list)
    for pattern in patterns:
        _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    name, *rest = pattern.split("=")
    try:
        if len(rest) != 1 or name.strip() not in _MATCHED:
            raise ValueError(pattern)
        re.compile(rest[0].strip())
    except (ValueError, re.error):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}"
        ) from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
