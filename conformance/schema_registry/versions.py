"""The pinned version of each client, from the file that pins it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import version

from conformance.go_programs import PROGRAMS
from conformance.schema_registry.programs import NODE
from testkit.peer.artifacts import FLINK_VERSION

SHADED_CLIENT = "7.5.3"
"""Confluent's client in Flink's jar, as its META-INF/NOTICE says."""


def versions() -> Mapping[str, str]:
    """Return the version of each client by the client's short name."""
    python = version("confluent-kafka")
    node = json.loads((NODE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    return {
        "py": python,
        "py asyncio": python,
        "go": _go("github.com/confluentinc/confluent-kafka-go/v2"),
        "franz": _go("github.com/twmb/franz-go/pkg/sr"),
        "js": node["@confluentinc/schemaregistry"],
        "kafkajs": node["@kafkajs/confluent-schema-registry"],
        "java": f"{SHADED_CLIENT} in flink-sql-avro-confluent-registry {FLINK_VERSION}",
    }


def _go(module: str) -> str:
    text = (PROGRAMS / "registry_go" / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^\t{re.escape(module)} v(\S+)", text, re.M)
    assert found is not None, f"go.mod does not require {module}"
    return found[1]
