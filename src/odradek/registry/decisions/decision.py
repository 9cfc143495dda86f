"""The result of a request that may write: records and a response. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.registry.json_value import JsonValue
from odradek.registry.records import Record


@dataclass(frozen=True, slots=True)
class Decision:
    """Records for one transaction, and the body of the response.

    Without records there is nothing to write, and the response can be sent at once.
    """

    records: tuple[Record, ...]
    response: JsonValue
