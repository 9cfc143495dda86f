"""The config tables compared with those of Kafka 4.1.0, as its own ``ConfigDef``s print them.

``kafka-4.1-configs.json`` was printed from ``KafkaConfig.configDef()`` and
``LogConfig.configDefCopy()`` of the jars on Maven Central: names, types, defaults, valid values,
importance, and whether a broker config is dynamic. No documentation.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from odradek.config import inapplicable
from odradek.config.broker import BROKER_CONFIGS, BrokerConfig
from odradek.config.definition import ConfigDef, ConfigKey, OneOf, UpdateMode
from odradek.config.log_config import LogConfig
from odradek.config.topic import SYNONYMS, TOPIC_CONFIGS, WITHOUT_EFFECT

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src" / "odradek"
FACTS: list[dict[str, Any]] = json.loads((HERE / "kafka-4.1-configs.json").read_text("utf-8"))
KAFKA_BROKER = {fact["name"]: fact for fact in FACTS if fact["table"] == "broker"}
# Of Kafka 3.9, its last release with ZooKeeper.
KAFKA_BROKER |= {
    name: {
        "name": name,
        "type": kind,
        "default": default,
        "valid": None,
        "importance": "HIGH",
        "internal": False,
        "dynamic": False,
    }
    for name, kind, default in (
        ("zookeeper.connect", "STRING", None),
        ("zookeeper.session.timeout.ms", "INT", "18000"),
        ("zookeeper.connection.timeout.ms", "INT", None),
    )
}
KAFKA_TOPIC = {fact["name"]: fact for fact in FACTS if fact["table"] == "topic"}

# A single node is the whole cluster, and its id is optional.
OTHER_DEFAULTS = {
    "node.id": ("1", "<required>"),
    "group.initial.rebalance.delay.ms": ("0", "3000"),
    "offsets.topic.replication.factor": ("1", "3"),
    "transaction.state.log.min.isr": ("1", "2"),
    "transaction.state.log.replication.factor": ("1", "3"),
}
# Kafka's own test hook.
ABSENT_TOPIC_CONFIGS = {"internal.segment.bytes"}


def valid_text(key: ConfigKey) -> str | None:
    return None if key.valid is None else str(key.valid)


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_topic_config_equals_kafkas(name: str) -> None:
    check_facts(TOPIC_CONFIGS, name, KAFKA_TOPIC[name])


@pytest.mark.parametrize("name", BROKER_CONFIGS)
def test_broker_config_equals_kafkas(name: str) -> None:
    fact = KAFKA_BROKER[name]
    check_facts(BROKER_CONFIGS, name, fact)
    dynamic = BROKER_CONFIGS[name].mode is not UpdateMode.READ_ONLY
    assert dynamic == (fact["dynamic"] and name != "listeners")


def check_facts(table: ConfigDef, name: str, fact: dict[str, Any]) -> None:
    key = table[name]
    assert key.type.name == fact["type"]
    assert key.importance.name == fact["importance"]
    assert key.internal == fact["internal"]
    expected = (fact["default"], fact["default"])
    assert (key.default_text(), fact["default"]) == OTHER_DEFAULTS.get(name, expected)
    if isinstance(key.valid, OneOf):
        choices = fact["valid"].removeprefix("(case insensitive) ")
        assert key.valid.any_case == (choices != fact["valid"])
        assert sorted(key.valid.choices) == sorted(choices.strip("[]").split(", "))
    else:
        assert valid_text(key) == fact["valid"]


def test_only_known_topic_configs_are_absent() -> None:
    assert set(KAFKA_TOPIC) - set(TOPIC_CONFIGS) == ABSENT_TOPIC_CONFIGS


@pytest.mark.parametrize("name", sorted(set(KAFKA_BROKER) - set(BROKER_CONFIGS)))
def test_every_other_broker_config_of_kafka_has_a_reason(name: str) -> None:
    assert inapplicable.inapplicable_reason(name)


def test_only_kept_configs_are_both_defined_and_inapplicable() -> None:
    assert set(inapplicable._SINGLE) & set(BROKER_CONFIGS) == inapplicable.KEPT_NAMES


def test_every_topic_config_is_a_field_of_the_logs_config() -> None:
    obeyed = set(TOPIC_CONFIGS) - WITHOUT_EFFECT - {"cleanup.policy"}
    names = {name.replace(".", "_") for name in obeyed}
    fields = set(LogConfig.__dataclass_fields__) - {"cleanup_delete", "cleanup_compact"}
    assert names == fields


def test_every_topic_config_has_default_broker_configs_of_its_type() -> None:
    assert set(SYNONYMS) == set(TOPIC_CONFIGS) - WITHOUT_EFFECT
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            assert synonym.name in BROKER_CONFIGS
        assert BROKER_CONFIGS[synonyms[0].name].type is TOPIC_CONFIGS[name].type


def test_every_broker_config_is_read_by_some_code() -> None:
    """A config without effect belongs to the inapplicable ones, with the reason.

    Some of those are kept for tools.
    """
    text = "\n".join(
        path.read_text("utf-8")
        for path in SOURCE.rglob("*.py")
        if path.parent.name != "config" or path.name in ("broker.py", "listeners.py")
    )
    behind_topics = {synonym.name for synonyms in SYNONYMS.values() for synonym in synonyms}
    unread = [
        name for name in BROKER_CONFIGS if name not in behind_topics and f'"{name}"' not in text
    ]
    assert set(unread) == inapplicable.KEPT_NAMES


def test_documentation_exists_and_ends_as_a_sentence() -> None:
    for key in [*TOPIC_CONFIGS.values(), *BROKER_CONFIGS.values()]:
        assert re.search(r"[.]$", key.doc), key.name


@pytest.mark.parametrize("key", ["transaction.max.timout.ms", "transactions.state.log.min.isr"])
def test_a_misspelt_key_is_unknown(key: str) -> None:
    config = BrokerConfig.from_properties({key: "1"})
    assert (config.unknown_keys, config.inapplicable_keys) == ((key,), ())
