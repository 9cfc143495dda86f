"""Configs of an instance: a file of properties, and options that replace them. Pure.

The names are those of ``schema-registry.properties`` where Confluent's registry has the same
config:

=============================== ===============================================================
config                          meaning
=============================== ===============================================================
``listeners``                   ``http://HOST:PORT``
``advertised.url``              the URL to which other instances forward writes
``kafkastore.bootstrap.servers`` ``HOST:PORT[,HOST:PORT]`` of the Kafka cluster
``kafkastore.topic``            the topic of the schemas
``schema.compatibility.level``  the compatibility level of subjects without a config
``kafka.NAME``                  the property NAME of librdkafka, such as ``kafka.sasl.password``
=============================== ===============================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.kafka_settings import DEFAULT_TOPIC, KafkaSettings, RefusedSetting
from odradek.registry.server import DEFAULT_HOST, DEFAULT_PORT, ServerOptions
from odradek.registry.state import DEFAULT_LEVEL

LISTENERS = "listeners"
ADVERTISED_URL = "advertised.url"
BOOTSTRAP_SERVERS = "kafkastore.bootstrap.servers"
TOPIC = "kafkastore.topic"
LEVEL = "schema.compatibility.level"
KAFKA_PREFIX = "kafka."

KNOWN = frozenset({LISTENERS, ADVERTISED_URL, BOOTSTRAP_SERVERS, TOPIC, LEVEL})
DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LISTENER = re.compile(
    r"(?:http://)?(?:\[(?P<ipv6>[^\]]+)\]|(?P<host>[^:/\s]*)):(?P<port>\d{1,5})/?"
)
_PORT_MAX = 65_535


def server_options(configs: Mapping[str, str]) -> ServerOptions:
    """Return the options of an instance. Unknown configs are ignored: see `unknown_configs`.

    Raises:
        RefusedSetting: A config has an invalid value.
    """
    host, port = _listener(configs.get(LISTENERS))
    properties = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in configs.items()
        if name.startswith(KAFKA_PREFIX)
    }
    topic = configs.get(TOPIC, DEFAULT_TOPIC)
    if not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise RefusedSetting(f"{topic!r} is not the name of a topic. Change {TOPIC} or --topic.")
    servers = configs.get(BOOTSTRAP_SERVERS, DEFAULT_BOOTSTRAP_SERVERS).strip()
    if not servers:
        raise RefusedSetting(f"{BOOTSTRAP_SERVERS} is empty. It takes HOST:PORT of a broker.")
    return ServerOptions(
        kafka=KafkaSettings(servers, topic, properties),
        host=host,
        port=port,
        advertised_url=_advertised_url(configs.get(ADVERTISED_URL)),
        default_level=_level(configs.get(LEVEL)),
    )


def unknown_configs(configs: Mapping[str, str]) -> list[str]:
    """Return the names of configs that have no effect, sorted."""
    return sorted(
        name for name in configs if name not in KNOWN and not name.startswith(KAFKA_PREFIX)
    )


def _listener(text: str | None) -> tuple[str, int]:
    """Return host and port of the first listener."""
    if text is None:
        return DEFAULT_HOST, DEFAULT_PORT
    match = _LISTENER.fullmatch(text.split(",")[0].strip())
    if match is None or int(match["port"]) > _PORT_MAX:
        raise RefusedSetting(
            f"{text!r} is not an address to listen on. {LISTENERS} takes http://HOST:PORT, and"
            " --listen takes HOST:PORT."
        )
    return match["ipv6"] or match["host"] or "0.0.0.0", int(match["port"])  # noqa: S104


def _advertised_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    try:
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        is_valid = False
    if not is_valid or parts.username is not None or parts.query or parts.fragment:
        raise RefusedSetting(
            f"{ADVERTISED_URL} and --advertise take http://HOST:PORT without a user, as other"
            " instances reach this one."
        )
    return url


def _level(name: str | None) -> CompatibilityLevel:
    if name is None:
        return DEFAULT_LEVEL
    try:
        return CompatibilityLevel(name.strip().upper())
    except ValueError:
        levels = ", ".join(CompatibilityLevel)
        raise RefusedSetting(f"{LEVEL} is one of {levels}, not {name!r}.") from None
