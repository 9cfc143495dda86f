"""A registry for tests of routes: a real state, and a writer that applies its records at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from starlette.testclient import TestClient

from odradek.registry.compatibility.levels import incompatibilities
from odradek.registry.decisions.decision import Decision
from odradek.registry.decisions.tools import SchemaTools
from odradek.registry.forwarding import ForwardableRequest
from odradek.registry.json_value import JsonValue
from odradek.registry.records import Record, decode, encode
from odradek.registry.schemas.parsers import Parsers
from odradek.registry.service import Identity
from odradek.registry.state import RegistryState

TIMESTAMP_MS = 1_700_000_000_000

ORDER_1 = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
ORDER_2 = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},'
    '{"name":"note","type":"string","default":""}]}'
)
ORDER_BROKEN = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'
"""A schema that cannot read data of `ORDER_2`."""
LINE = '{"type":"record","name":"Line","fields":[{"name":"order","type":"Order"}]}'
"""A schema with a reference to `ORDER_1`."""
EUROPE = '{"type":"enum","name":"Country","symbols":["DE","FR"]}'
GONE = '{"type":"fixed","name":"Gone","size":4}'
CONTRACT = '{"type":"record","name":"Contract","fields":[]}'
INVALID = '{"type":"record","name":"Order"}'

T = TypeVar("T")


class MemoryRegistry:
    """An implementation of `odradek.registry.service.Registry` without a log.

    Attributes:
        requests: The writes in the form in which they would be forwarded.
        records: The records of all writes.
    """

    def __init__(self) -> None:
        self.state = RegistryState()
        self.tools = SchemaTools(Parsers(), incompatibilities)
        self.identity = Identity("cluster-1", "schema-registry", "0.1.0", "abc")
        self.epoch = 1
        self.requests: list[ForwardableRequest] = []
        self.records: list[Record] = []

    async def write(
        self, decide: Callable[[RegistryState], Decision], request: ForwardableRequest
    ) -> JsonValue:
        self.requests.append(request)
        decision = await self.read_off_loop(decide)
        for record in decision.records:
            self.records.append(record)
            skipped = self.state.apply(decode(*encode(record)), self.state.offset + 1, TIMESTAMP_MS)
            assert skipped is None, skipped
        return decision.response

    async def parse_off_loop(self, call: Callable[[], T]) -> T:
        return call()

    async def read_off_loop(self, read: Callable[[RegistryState], T]) -> T:
        return await self.parse_off_loop(lambda: read(self.state))

    async def catch_up(self) -> bool:
        return False


def schema_body(text: str, **fields: JsonValue) -> JsonValue:
    """Return the body of a request with a schema."""
    return {"schema": text, **fields}


def order_reference() -> JsonValue:
    """Return the reference of `LINE`."""
    return [{"name": "Order", "subject": "orders", "version": 1}]


def fill(client: TestClient) -> None:
    """Register the schemas that the examples name.

    =================  ========  ======  ==================================
    subject            versions  ids     remarks
    =================  ========  ======  ==================================
    orders             1, 2      1, 2    `ORDER_1`, `ORDER_2`
    orders/eu          1         3
    lines              1         4       references version 1 of orders
    gone               1         5       soft-deleted
    contracts          1         6       has the property owner=team
    :.sales:orders     1         1       the id of its own context
    :.sales:invoices   1         1
    =================  ========  ======  ==================================
    """
    for subject, body in (
        ("orders", schema_body(ORDER_1)),
        ("orders", schema_body(ORDER_2)),
        ("orders%2Feu", schema_body(EUROPE)),
        ("lines", schema_body(LINE, references=order_reference())),
        ("gone", schema_body(GONE)),
        ("contracts", schema_body(CONTRACT, metadata={"properties": {"owner": "team"}})),
        (":.sales:orders", schema_body(ORDER_1)),
        (":.sales:invoices", schema_body(ORDER_1)),
    ):
        response = client.post(f"/subjects/{subject}/versions", content=json.dumps(body))
        assert response.status_code == 200, response.text
    assert client.delete("/subjects/gone").json() == [1]
