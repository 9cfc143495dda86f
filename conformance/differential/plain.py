"""Responses as plain values, without the differences that exist between any two brokers.

Identifiers that a broker generates become ``<topic_id 1>`` and so on, in the order in which they
first occur. Two responses are equal if the same fields hold the same identifier.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from odradek.records.batch import HEADER_BYTES, LOG_OVERHEAD, parse_header

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MEMBER_ID = re.compile(r"[A-Za-z0-9_-]{22}")  # A UUID in base64, as KIP-848 has it.
DROPPED = {"throttle_time_ms", "host", "port", "rack", "client_host", "log_dir", "endpoints"}
DROPPED |= {"total_bytes", "usable_bytes"}
PRESENCE = {"error_message", "documentation", "message", "batch_index_error_message", "cluster_id"}
IDS = {"topic_id", "producer_id", "session_id", "controller_id"}
# Epochs of consumer groups. Each broker selects its first epoch: 2 in Kafka 4.3, 1 in Odradek.
EPOCHS = {"member_epoch", "group_epoch", "assignment_epoch"}
# The least timestamp of the broker's own clock. Scenarios use earlier timestamps.
NOW_MS = 1_700_000_000_000
NATURAL_KEYS = (
    "name", "topic", "topic_id", "partition_index", "partition", "index", "group_id", "group",
    "key", "resource_name", "member_id", "broker_id", "node_id", "api_key",
)  # fmt: skip


class Plainer:
    """The conversion of one session's responses into plain values."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._aliases: dict[str, dict[Any, str]] = {}

    def alias(self, kind: str, value: Any) -> str:
        """Return the alias of `value` in this session."""
        known = self._aliases.setdefault(kind, {})
        return known.setdefault(value, f"<{kind} {len(known) + 1}>")

    def plain(self, value: Any, name: str = "") -> Any:
        if name in DROPPED:
            return "*"
        if is_dataclass(value):
            return {f.name: self.plain(getattr(value, f.name), f.name) for f in fields(value)}
        if isinstance(value, list):
            return self._list(value, name)
        handle: Callable[[Any, str], Any] | None = {
            str: self._string, int: self._number, bytes: self._bytes, memoryview: self._bytes,
        }.get(type(value))  # fmt: skip
        return handle(value, name) if handle else value

    def _list(self, values: list[Any], name: str) -> Any:
        items = [self.plain(value, name) for value in values]
        if name == "partitions" and all(isinstance(item, int) for item in items):
            return sorted(items)  # Kafka uses the order of a hash table.
        if not items or not isinstance(items[0], dict):
            return items
        if name == "synonyms":  # The order says which one wins.
            return items
        return keyed(items)

    def _string(self, value: str, name: str) -> Any:
        if name in PRESENCE:
            return "<text>" if value else value
        if name == "member_id" and MEMBER_ID.fullmatch(value):
            return self.alias(name, value)
        value = value.replace(self._prefix, "~")
        return UUID.sub(lambda match: self.alias("uuid", match.group()), value)

    def _number(self, value: int, name: str) -> Any:
        if name in IDS and value > 0:
            return self.alias(name, value)
        if name in EPOCHS and value > 0:
            return self.alias("group_epoch", value)
        if ("timestamp" in name or name.endswith("time_ms")) and value > NOW_MS:
            return "<now>"
        return value

    def _bytes(self, value: Any, name: str) -> Any:
        data = bytes(value)
        if name == "records":
            return batches(data)
        if name == "topic_id":
            return self.alias(name, data) if any(data) else "<zero>"
        return data.hex()


def keyed(items: list[dict[str, Any]]) -> Any:
    """Return a dict by the items' natural key, so that order does not matter.

    If no natural key is unique, return the items sorted by their JSON text.
    """
    for key in NATURAL_KEYS:
        if key in items[0]:
            names = [str(item[key]) for item in items]
            if len(set(names)) == len(names):
                return {f"[{name}]": item for name, item in sorted(zip(names, items, strict=True))}
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, default=str))


def batches(data: bytes) -> list[Any]:
    """Return the headers of the batches in `data`, and the length of an incomplete last batch."""
    found: list[Any] = []
    pos = 0
    while pos + HEADER_BYTES <= len(data):
        header = parse_header(data, pos)
        end = pos + LOG_OVERHEAD + header.batch_length
        if end > len(data) or header.batch_length <= 0:
            break
        batch = {k: v for k, v in header._asdict().items() if k not in {"crc", "producer_id"}}
        if batch["max_timestamp"] > NOW_MS:
            batch["max_timestamp"] = "<now>"
        batch["body"] = zlib.crc32(data[pos + HEADER_BYTES : end])
        found.append(batch)
        pos = end
    if pos < len(data):
        found.append({"rest": len(data) - pos, "head": struct.pack(">i", pos).hex()})
    return found
