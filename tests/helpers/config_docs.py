"""Render docs/configuration.md from the config tables: ``python -m tests.helpers.config_docs``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from odradek.config.broker import BROKER_CONFIGS
from odradek.config.consents import CONSENTS
from odradek.config.definition import ConfigDef, ConfigKey
from odradek.config.inapplicable import inapplicable_names
from odradek.config.topic import SYNONYMS, TOPIC_CONFIGS

PATH = Path(__file__).resolve().parent.parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

On this page you look up the name, type, default and meaning of each config.

The page is generated from the tables in `src/odradek/config`
(`python -m tests.helpers.config_docs`). Names, types, defaults and valid values are those of Apache
Kafka 4.1.

| set a config | with |
|---|---|
| of a broker, in a file | `odradek serve --config FILE`, Kafka's `server.properties` |
| of a broker, on the command line | `odradek serve --set KEY=VALUE`, which overrides the file |
| of a broker in a test | `Broker({"KEY": "VALUE"})` |
| of a broker, topic or group while the broker runs | `odradek config alter` |

Some defaults differ from Kafka's, because they suit a single broker. `node.id` need not be set.
Without `zookeeper.connect`, internal topics have one replica. The first rebalance of a group does
not wait for more members.
When the broker starts, it logs the keys of Kafka that have no effect, and unknown keys.
"""


def render() -> str:
    return "\n".join([HEAD, *_broker(), *_topic(), *_consents(), *_inapplicable()]) + "\n"


def _broker() -> Iterator[str]:
    yield "## Broker configs\n"
    yield "`altered` is whether a config can be altered at run time, and for one or all brokers.\n"
    yield "| name | type | default | valid values | importance | altered | purpose |"
    yield "|-|-|-|-|-|-|-|"
    for key in _shown(BROKER_CONFIGS):
        yield f"| {_cells(key)} | {key.importance.value} | {key.mode.value} | {key.doc} |"


def _topic() -> Iterator[str]:
    yield "\n## Topic configs\n"
    yield "Without an override, a topic has the value of its first broker config that is set.\n"
    yield "| name | type | default | valid values | default from broker config | purpose |"
    yield "|-|-|-|-|-|-|"
    for key in _shown(TOPIC_CONFIGS):
        behind = ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS.get(key.name, ()))
        yield f"| {_cells(key)} | {behind} | {key.doc} |"


def _consents() -> Iterator[str]:
    yield "\n## Consents\n"
    yield "Configs of Odradek, `true` or `false`. Each permits a start that is refused otherwise.\n"
    yield "| name | with `true` |"
    yield "|-|-|"
    for name, doc in CONSENTS.items():
        yield f"| `{name}` | {doc} |"


def _inapplicable() -> Iterator[str]:
    yield "\n## Kafka's configs without effect\n"
    names = sorted(inapplicable_names(), key=lambda pair: (pair[1], pair[0]))
    for reason, group in groupby(names, key=lambda pair: pair[1]):
        listed = ", ".join(f"`{name}`" for name, _ in group)
        yield f"- {reason[0].upper()}{reason[1:]}: {listed}"


def _shown(table: ConfigDef) -> Iterator[ConfigKey]:
    return (key for key in table.values() if not key.internal)


def _cells(key: ConfigKey) -> str:
    default = key.default_text()
    shown = "unset" if default is None else f"`{default}`" if default else "empty"
    valid = "" if key.valid is None else f"`{key.valid}`"
    return f"`{key.name}` | {key.type.name.lower()} | {shown} | {valid}"


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
